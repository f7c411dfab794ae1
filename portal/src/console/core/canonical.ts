import type { Json } from "../../api/types";
import { blake3 } from "./blake3";
import type { ReleaseDetail } from "./types";

/** The canonical form of a JSON value (RFC 8785), from which checksums are computed. */
export function canonical(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  // The default order of `sort` compares UTF-16 code units, as RFC 8785 requires.
  const keys = Object.keys(value).sort();
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key] ?? null)}`).join(",")}}`;
}

/** The checksum of a content, which must equal the checksum that the server stores. */
export const checksumOf = (content: Json): string => blake3(canonical(content));

/** The text whose digest a reviewer approves, by the server's definition; null while a checksum is unknown. */
export function digestText(release: ReleaseDetail, checksums: ReadonlyMap<string, string>): string | null {
  const lines: string[] = [];
  for (const { role, asset_version_id: version } of release.bindings) {
    const checksum = checksums.get(version);
    if (!checksum) return null;
    lines.push(`${role} ${version} ${checksum}`);
  }
  for (const reference of release.references) {
    const checksum = checksums.get(reference.asset_version_id);
    if (!checksum) return null;
    const label = reference.pinned ? reference.version_label : "*";
    lines.push(`reference ${reference.from_asset_version_id} ${reference.asset_slug} ${label} ${reference.asset_version_id} ${checksum}`);
  }
  lines.sort();
  const head = ["fairway.release.v1", release.workload_id, release.environment, release.target_lane];
  if (release.policy_bundle_id) head.push(`policy_bundle ${release.policy_bundle_id}`);
  return [...head, lines.join("\n")].join("\n");
}
