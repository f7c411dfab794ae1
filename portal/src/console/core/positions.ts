import type { Json } from "../../api/types";

/** A part of a text, as start and end offset. */
export interface Span {
  from: number;
  to: number;
}

/** The positions of keys and values in a JSON text. */
export interface Positions {
  /** Positions of keys, by paths in the server's form such as `content.variables[1].name`. */
  keys: ReadonlyMap<string, Span>;
  values: ReadonlyMap<string, Span>;
  /** The offset of the first syntax error; null if the text is valid JSON. */
  error: number | null;
}

const SPACE = /[ \t\r\n]*/y;
const SCALAR = /true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
/** Maximum nesting depth, beyond which the server refuses a text too. */
const MAX_DEPTH = 200;

class Scanner {
  offset = 0;
  readonly keys = new Map<string, Span>();
  readonly values = new Map<string, Span>();

  constructor(readonly text: string) {}

  /** Skips a match of the pattern at the current offset; returns false if there is no match. */
  skip(pattern: RegExp): boolean {
    pattern.lastIndex = this.offset;
    const [match] = pattern.exec(this.text) ?? [];
    if (match === undefined) return false;
    this.offset += match.length;
    return true;
  }

  take(sign: string): boolean {
    this.skip(SPACE);
    if (this.text[this.offset] !== sign) return false;
    this.offset += 1;
    return true;
  }

  value(path: string, depth: number): boolean {
    if (depth > MAX_DEPTH) return false;
    this.skip(SPACE);
    const from = this.offset;
    const isValid = this.take("{") ? this.object(path, depth) : this.take("[") ? this.array(path, depth) : this.skip(STRING) || this.skip(SCALAR);
    this.values.set(path, { from, to: this.offset });
    return isValid;
  }

  object(path: string, depth: number): boolean {
    if (this.take("}")) return true;
    do {
      this.skip(SPACE);
      const from = this.offset;
      if (!this.skip(STRING)) return false;
      const key = `${path}.${JSON.parse(this.text.slice(from, this.offset)) as string}`;
      this.keys.set(key, { from, to: this.offset });
      if (!this.take(":") || !this.value(key, depth + 1)) return false;
    } while (this.take(","));
    return this.take("}");
  }

  array(path: string, depth: number): boolean {
    if (this.take("]")) return true;
    let index = 0;
    do {
      if (!this.value(`${path}[${index}]`, depth + 1)) return false;
      index += 1;
    } while (this.take(","));
    return this.take("]");
  }
}

/** Finds the positions of keys and values in a JSON text, up to the first syntax error. */
export function positionsOf(text: string, root = "content"): Positions {
  const scanner = new Scanner(text);
  const isValid = scanner.value(root, 0);
  scanner.skip(SPACE);
  return { keys: scanner.keys, values: scanner.values, error: isValid && scanner.offset === text.length ? null : scanner.offset };
}

/** A message about a part of a text. Lines and columns start at 1. */
export interface Finding extends Span {
  line: number;
  column: number;
  code: string;
  message: string;
  /** The path of the field, and the server's message about it. */
  field?: { path: string; message: string };
}

/** The offset of a line and column. Positions outside the text are moved to the nearest position in it. */
export function offsetOf(text: string, line: number, column: number): number {
  const lines = text.split("\n");
  const index = Math.min(Math.max(line, 1), lines.length) - 1;
  const before = lines.slice(0, index).reduce((sum, precedingLine) => sum + precedingLine.length + 1, 0);
  // The server's columns count characters, and the offset counts UTF-16 code units.
  const units = [...(lines[index] ?? "")].slice(0, Math.max(column, 1) - 1).join("").length;
  return before + units;
}

function findingAt(text: string, { from, to }: Span, code: string, message: string): Finding {
  const before = text.slice(0, from).split("\n");
  const end = text.indexOf("\n", from);
  const lastLine = before.at(-1) ?? "";
  return { from, to: Math.min(to, end < 0 ? text.length : end), line: before.length, column: [...lastLine].length + 1, code, message };
}

/** The first syntax error of a JSON text as a message; null if the text is valid. */
export function syntaxFinding(text: string, message: string): Finding | null {
  const { error } = positionsOf(text);
  return error === null ? null : findingAt(text, { from: error, to: error + 1 }, "json_syntax", message);
}

/**
 * The server's messages about fields of a JSON text. A message about a missing field is at the
 * closest existing ancestor.
 */
export function findingsOfFields(text: string, fields: readonly { path: string; code: string; message: string }[]): Finding[] {
  const { keys, values } = positionsOf(text);
  const spanOf = (path: string, code: string): Span => {
    for (let ancestor = path; ancestor !== ""; ancestor = ancestor.replace(/(\.[^.[]*|\[\d+\]|^[^.[]*)$/, "")) {
      // Marks only the key, because marking a whole object would not show which part is wrong.
      const span = (code === "wrong_type" && ancestor === path ? values.get(ancestor) : undefined) ?? keys.get(ancestor) ?? values.get(ancestor);
      if (span) return span;
    }
    return { from: 0, to: 0 };
  };
  return fields
    .map(({ path, code, message }) => ({ ...findingAt(text, spanOf(path, code), code, `${path.replace(/^content\.?/, "") || "/"}: ${message}`), field: { path, message } }))
    .sort((left, right) => left.from - right.from);
}

/** The server's messages about lines of a YAML text. */
export function findingsOfLines(text: string, errors: readonly { line?: number | null; column?: number | null; code: string; message: string }[]): Finding[] {
  return errors
    .map(({ line, column, code, message }) => {
      const from = offsetOf(text, line ?? 1, column ?? 1);
      const end = /[\s:]|$/g;
      end.lastIndex = from + 1;
      return findingAt(text, { from, to: Math.min(text.length, end.exec(text)?.index ?? from + 1) }, code, message);
    })
    .sort((left, right) => left.from - right.from);
}

/** A JSON object; null for any other text. */
export function parsedObject(text: string): Record<string, Json> | null {
  try {
    const value = JSON.parse(text) as Json;
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

/** Whether a form would lose a part of a value: a member named `__proto__`, or a number that JSON cannot represent. */
export function isLostByForm(value: Json): boolean {
  if (typeof value === "number") return !Number.isFinite(value);
  if (value === null || typeof value !== "object") return false;
  return Object.hasOwn(value, "__proto__") || Object.values(value).some(isLostByForm);
}

/** One character of the source of a JSON string: an escaped pair, an escape, or the character itself. */
const CHARACTER = /\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|\\u[\da-fA-F]{4}|\\.|[^]/uy;

/** The server's message about a byte offset in `system_prompt`, at the corresponding character of the JSON text. */
export function findingOfOffset(text: string, offset: number, code: string, message: string): Finding {
  const span = positionsOf(text).values.get("content.system_prompt") ?? { from: 0, to: 0 };
  const encoder = new TextEncoder();
  let position = span.from + 1;
  for (let remainingBytes = offset; remainingBytes > 0 && position < span.to - 1; ) {
    CHARACTER.lastIndex = position;
    const [character = ""] = CHARACTER.exec(text) ?? [];
    if (character === "") break;
    remainingBytes -= character.length === 1 && character < "\u0080" ? 1 : encoder.encode(character.startsWith("\\") ? (JSON.parse(`"${character}"`) as string) : character).length;
    position += character.length;
  }
  const end = /[\s"\\]|$/g;
  end.lastIndex = position + 1;
  return { ...findingAt(text, { from: Math.min(position, text.length), to: end.exec(text)?.index ?? text.length }, code, message), field: { path: "content.system_prompt", message } };
}
