import type { Json } from "../api/types";

/** A value as plain text: texts as they are, flat objects as lines, everything else as JSON. */
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

/** A value that may be JSON in a text, as models write it. */
export function parsed(value: Json): Json {
  if (typeof value !== "string") return value;
  try {
    return JSON.parse(value) as Json;
  } catch {
    return value;
  }
}

/** Whether a result may cite documents: it has a name in brackets. Only the server knows which documents the run retrieved. */
export function mayCite(value: Json): boolean {
  return /\[[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}\]/.test(typeof value === "string" ? value : JSON.stringify(value));
}
