import type { Json } from "../api/types";

/** Converts a value to plain text: strings unchanged, flat objects as lines, other values as JSON. */
export function plainText(value: Json): string {
  if (value === null) return "";
  if (typeof value !== "object") return String(value);
  const isScalar = (member: Json) => member === null || typeof member !== "object";
  if (!Array.isArray(value)) {
    const members = Object.entries(value);
    if (members.length > 0 && members.every(([, member]) => isScalar(member))) {
      return members.map(([name, member]) => `${name}: ${String(member)}`).join("\n");
    }
  }
  return JSON.stringify(value, null, 2);
}

/** Parses a string that contains JSON, which models often return. Returns other values unchanged. */
export function parsed(value: Json): Json {
  if (typeof value !== "string") return value;
  try {
    return JSON.parse(value) as Json;
  } catch {
    return value;
  }
}

/**
 * Whether a result contains a name in brackets, which may be a citation. Only the server can tell whether the run
 * retrieved a document with this name.
 */
export function mayCite(value: Json): boolean {
  return /\[[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}\]/.test(typeof value === "string" ? value : JSON.stringify(value));
}
