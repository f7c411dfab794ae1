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

/** The document names in brackets that an answer cites, each once. */
export function citations(text: string): string[] {
  const found = text.matchAll(/\[([A-Za-z0-9][A-Za-z0-9._:-]{0,127})\](?![([:])/g);
  return [...new Set([...found].map((match) => match[1] ?? ""))].slice(0, 50);
}
