const MAX_TEXT = 160;

/** The data of an event as one line of names and values, without the members that other views show. */
export function lineOf(data: string): string {
  let value: unknown;
  try {
    value = JSON.parse(data);
  } catch {
    return data.slice(0, MAX_TEXT);
  }
  if (value === null || typeof value !== "object") return String(value).slice(0, MAX_TEXT);
  const hidden = new Set(["execution_id", "output", "metadata"]);
  const parts = Object.entries(value as Record<string, unknown>)
    .filter(([name, part]) => !hidden.has(name) && part !== null)
    .map(([name, part]) => `${name}: ${typeof part === "string" ? part : JSON.stringify(part)}`);
  const line = parts.join(", ");
  return line.length > MAX_TEXT ? `${line.slice(0, MAX_TEXT)}…` : line;
}
