// Compares three verifiers on changed evidence bundles: `fairway verify`, the page, and the Python program
// `independent_verifier.py`. All must reach the same verdict, and the page and `fairway verify` must report the same failed checks.
//
// Environment: VERIFY_MODULES (folder of the npm packages), VERIFY_COMMAND (path of `fairway`), VERIFY_PYTHON (an
// interpreter with the PyPI packages), VERIFY_BUNDLES (a folder with `execution.json`, `retrieval.json` and
// `release.json`), VERIFY_KEY (the private key of the log in base64).
import { execFile, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { loadLibrary } from "./library.mjs";
import { mutationsOf } from "./mutations.mjs";
import { checkSecondCheckpoints } from "./second_checkpoint.mjs";

const { VERIFY_MODULES, VERIFY_COMMAND, VERIFY_PYTHON, VERIFY_BUNDLES, VERIFY_KEY } = process.env;
const KINDS = ["execution", "retrieval", "release"];
/** The minimum number of changes for each bundle. */
const MIN_REFUSED = 100;
const PARALLEL = 2;

const failures = [];
const expect = (holds, sentence) => holds || failures.push(sentence);

/** Runs `fairway verify` on a file; returns its exit code and report. */
function runCommand({ path, keys }) {
  const keyArguments = keys.flatMap((key) => ["--key", key]);
  return new Promise((resolve) => {
    execFile(VERIFY_COMMAND, ["verify", path, ...keyArguments, "--output", "json"], { maxBuffer: 1 << 26 }, (error, stdout) => {
      const code = error ? error.code : 0;
      resolve({ code, report: code <= 1 ? JSON.parse(stdout) : null });
    });
  });
}

async function runCommandOnAll(cases) {
  const results = [];
  const queue = [...cases.entries()];
  const work = async () => {
    for (let next = queue.shift(); next; next = queue.shift()) results[next[0]] = await runCommand(next[1]);
  };
  await Promise.all(Array.from({ length: PARALLEL }, work));
  return results;
}

/** Runs the Python program on all files; returns the names of the failed checks for each file. */
function runPython(cases) {
  const program = fileURLToPath(new URL("independent_verifier.py", import.meta.url));
  const input = JSON.stringify(cases.map(({ path, keys }) => ({ path, keys })));
  const child = spawnSync(VERIFY_PYTHON, [program], { input, encoding: "utf8", maxBuffer: 1 << 28 });
  if (child.status !== 0) throw new Error(`independent_verifier.py failed: ${child.stderr}`);
  return JSON.parse(child.stdout);
}

const failedOf = (checks) => checks.filter(({ verdict }) => verdict === "failed").map(({ name }) => name);

async function compare(lib, kind, folder) {
  // Removes the final line feed, which is not part of the canonical form.
  const file = Buffer.from(readFileSync(join(VERIFY_BUNDLES, `${kind}.json`), "utf8").trimEnd());
  const { log, statement, cases } = mutationsOf(lib, file, Buffer.from(VERIFY_KEY, "base64"));
  cases.forEach((mutation, index) => {
    mutation.path = join(folder, `${kind}-${index}.json`);
    writeFileSync(mutation.path, mutation.file);
  });
  const [commands, pythons] = [await runCommandOnAll(cases), runPython(cases)];
  let refusedCount = 0;
  cases.forEach(({ name, expected, path, keys }, index) => {
    const page = lib.verifyBundle(new Uint8Array(readFileSync(path)), { keys: lib.readLogKeys(keys.join("\n")) });
    const { code, report } = commands[index];
    const label = `${kind}: ${name}`;
    expect(code === 0 || code === 1, `${label}: fairway exits with ${code}`);
    expect(expected === "either" || (code === 0) === (expected === "holds"), `${label}: fairway exits with ${code}, expected: ${expected}`);
    expect(page.hasPassed === (code === 0), `${label}: the page says ${page.hasPassed}, fairway exits with ${code}`);
    const python = pythons[index];
    expect((python.length === 0) === (code === 0), `${label}: Python names ${JSON.stringify(python)}, fairway exits with ${code}`);
    const [byCommand, byPage] = [failedOf(report?.checks ?? []), failedOf(page.checks)];
    expect(byCommand.join() === byPage.join(), `${label}: fairway names ${byCommand.join()}, the page ${byPage.join()}`);
    expect(page.hasPassed === page.proven.length > 0, `${label}: a failed bundle shows something`);
    if (code === 1) refusedCount += 1;
  });
  expect(refusedCount >= MIN_REFUSED, `${kind}: only ${refusedCount} changes were found`);
  console.log(`${kind}: ${cases.length} files, ${refusedCount} refused, by three verifiers`);
  checkSecondCheckpoints(lib, { statement, log, kind, expect, run: { command: VERIFY_COMMAND, folder } });
}

const lib = await loadLibrary(VERIFY_MODULES);
const folder = mkdtempSync(join(tmpdir(), "verify-agree-"));
try {
  for (const kind of KINDS) await compare(lib, kind, folder);
} finally {
  rmSync(folder, { recursive: true });
}
if (failures.length > 0) {
  console.log(`${failures.length} failures:\n  ${failures.slice(0, 40).join("\n  ")}`);
  process.exitCode = 1;
}
