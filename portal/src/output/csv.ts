import type { Json } from "../api/types";

/** A row of a table. It is a `Map`, because an object would have inherited members such as `constructor`. */
export type Row = Map<string, Json>;

/** The rows of an array of objects; null for any other value. */
export function rowsOf(value: Json): Row[] | null {
  if (!Array.isArray(value) || value.length === 0) return null;
  const rows: Row[] = [];
  for (const item of value) {
    if (item === null || typeof item !== "object" || Array.isArray(item)) return null;
    rows.push(new Map(Object.entries(item)));
  }
  return rows;
}

/** The columns of all rows, in the order of their first occurrence. */
export function columnsOf(rows: readonly Row[]): string[] {
  return [...new Set(rows.flatMap((row) => [...row.keys()]))];
}

/** The text of a cell. */
export function cellText(value: Json | undefined): string {
  if (value === undefined || value === null) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Sorts rows by a column: numbers by value, other cells by text, empty cells last. */
export function sorted(rows: readonly Row[], column: string, descending: boolean): Row[] {
  const collator = new Intl.Collator(undefined, { numeric: true });
  const compare = (leftRow: Row, rightRow: Row) => {
    const [a, b] = [leftRow.get(column), rightRow.get(column)];
    const [left, right] = [cellText(a), cellText(b)];
    if (left === "" || right === "") return Number(left === "") - Number(right === "");
    const order = typeof a === "number" && typeof b === "number" ? a - b : collator.compare(left, right);
    return descending ? -order : order;
  };
  return [...rows].sort(compare);
}

/** The table as CSV (RFC 4180). An apostrophe precedes texts that a spreadsheet would evaluate as a formula. */
export function toCsv(columns: readonly string[], rows: readonly Row[]): string {
  const quote = (value: Json | undefined) => {
    const text = cellText(value);
    const safe = typeof value !== "number" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const lines = [columns.map(quote), ...rows.map((row) => columns.map((column) => quote(row.get(column))))];
  return `${lines.map((cells) => cells.join(",")).join("\r\n")}\r\n`;
}
