// Verifies the approved text of a release (whose digest reviewers approve), and the versions that it names.
import { checksumOf } from "./bytes.mjs";

/**
 * The lines of a text, split like in `fairway verify`: a final line feed ends the last line and begins no further line.
 */
export function linesOf(text) {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines.map((line) => (line.endsWith("\r") ? line.slice(0, -1) : line));
}

/** Compares the first lines of the approved text with the workload and the environment. */
export function checkHead(report, digestText, workload, environment) {
  const [form, ofWorkload, ofEnvironment] = linesOf(digestText);
  report.compare("form of the approved text", "", "fairway.release.v1", form ?? "");
  report.compare("workload of the release", "", workload, ofWorkload ?? "");
  report.compare("environment of the release", "", environment, ofEnvironment ?? "");
}

/** Checks that the approved text and the release name the same versions. */
export function checkVersions(report, release) {
  // Skips the line with the policy bundle that the release requires, which has two words. The lines of bindings and
  // references have more words.
  const lines = linesOf(release.digest_text).slice(4).filter((line) => line.split(" ").length > 2);
  const references = lines.filter((line) => line.startsWith("reference "));
  report.compare("number of bindings", "", String(lines.length - references.length), String(release.bindings.length));
  const lineOf = (version) => `${version.role} ${version.asset_version_id} ${version.checksum}`;
  for (const version of release.bindings) {
    const line = lineOf(version);
    report.compare("binding in the approved text", version.role, line, lines.includes(line) ? line : "none");
    checkContent(report, version);
  }
  const included = release.bindings.map(lineOf);
  const missing = lines.filter((line) => !references.includes(line) && !included.includes(line));
  report.compare("bindings without a version", "", "0", String(missing.length));
  const endOf = (version) => ` ${version.asset_version_id} ${version.checksum}`;
  for (const version of release.references) {
    const end = endOf(version);
    const isNamed = references.some((line) => line.endsWith(end));
    report.compare("reference in the approved text", version.role, end, isNamed ? end : "none");
    checkContent(report, version);
  }
  const unnamed = references.filter((line) => !release.references.some((version) => line.endsWith(endOf(version))));
  report.compare("references without a version", "", "0", String(unnamed.length));
}

function checkContent(report, version) {
  const part = `${version.role} ${version.asset_version_id}`;
  if (version.content === null) report.skip("content of the version", part, version.checksum);
  else report.compare("content of the version", part, version.checksum, checksumOf(version.content));
}
