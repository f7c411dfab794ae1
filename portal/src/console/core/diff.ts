import type { Json } from "../../api/types";

/** A piece of a comparison, which is in both texts, only in the old text, or only in the new text. */
export interface Piece {
  kind: "same" | "removed" | "added";
  text: string;
}

/** Maximum product of the lengths of both lists. Longer changed parts are shown as one removal and one addition. */
const MAX_CELLS = 4_000_000;

/** The shortest edit script between two lists, by their longest common subsequence. */
function compare(before: readonly string[], after: readonly string[]): Piece[] {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < before.length - start && end < after.length - start && before[before.length - 1 - end] === after[after.length - 1 - end]) end += 1;
  const left = before.slice(start, before.length - end);
  const right = after.slice(start, after.length - end);
  const toPiece = (kind: Piece["kind"]) => (text: string): Piece => ({ kind, text });
  return [...before.slice(0, start).map(toPiece("same")), ...middle(left, right), ...before.slice(before.length - end).map(toPiece("same"))];
}

function middle(left: readonly string[], right: readonly string[]): Piece[] {
  const removed = (text: string): Piece => ({ kind: "removed", text });
  const added = (text: string): Piece => ({ kind: "added", text });
  if (left.length * right.length > MAX_CELLS || left.length === 0 || right.length === 0) return [...left.map(removed), ...right.map(added)];
  const width = right.length + 1;
  const lengths = new Uint32Array((left.length + 1) * width);
  const lengthAt = (row: number, column: number): number => lengths[row * width + column] ?? 0;
  for (let row = left.length - 1; row >= 0; row -= 1) {
    for (let column = right.length - 1; column >= 0; column -= 1) {
      const best = left[row] === right[column] ? lengthAt(row + 1, column + 1) + 1 : Math.max(lengthAt(row + 1, column), lengthAt(row, column + 1));
      lengths[row * width + column] = best;
    }
  }
  const pieces: Piece[] = [];
  let row = 0;
  let column = 0;
  while (row < left.length || column < right.length) {
    const [oldItem, newItem] = [left[row], right[column]];
    if (oldItem !== undefined && oldItem === newItem) {
      pieces.push({ kind: "same", text: oldItem });
      row += 1;
      column += 1;
    } else if (oldItem !== undefined && (newItem === undefined || lengthAt(row + 1, column) >= lengthAt(row, column + 1))) {
      pieces.push(removed(oldItem));
      row += 1;
    } else if (newItem !== undefined) {
      pieces.push(added(newItem));
      column += 1;
    }
  }
  return pieces;
}

/** Joins adjacent pieces of the same kind. */
function joinAdjacent(pieces: readonly Piece[]): Piece[] {
  const result: Piece[] = [];
  for (const piece of pieces) {
    const previous = result.at(-1);
    if (previous?.kind === piece.kind) previous.text += piece.text;
    else result.push({ ...piece });
  }
  return result;
}

/** Joins changes that only spaces separate into one removal and one addition, which are easier to read. */
function readable(pieces: readonly Piece[]): Piece[] {
  const result: Piece[] = [];
  let [removed, added, spaces] = ["", "", ""];
  const flush = () => {
    if (removed) result.push({ kind: "removed", text: removed });
    if (added) result.push({ kind: "added", text: added });
    if (spaces) result.push({ kind: "same", text: spaces });
    [removed, added, spaces] = ["", "", ""];
  };
  for (const { kind, text } of pieces) {
    if (kind !== "same") {
      removed += spaces + (kind === "removed" ? text : "");
      added += spaces + (kind === "added" ? text : "");
      spaces = "";
    } else if ((removed || added) && !text.trim()) {
      spaces += text;
    } else {
      flush();
      result.push({ kind, text });
    }
  }
  flush();
  return joinAdjacent(result);
}

/** Compares two texts word by word. Spaces and punctuation are separate pieces. */
export const diffWords = (before: string, after: string): Piece[] =>
  readable(compare(before.match(/[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu) ?? [], after.match(/[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu) ?? []));

/** A row of a side-by-side comparison; a side is null if it has no line there. */
export interface Row {
  before: string | null;
  after: string | null;
  changed: boolean;
}

/** Compares two texts line by line. A removed line and the added line that replaces it are in one row. */
export function diffLines(before: string, after: string): Row[] {
  const rows: Row[] = [];
  let removed: string[] = [];
  let added: string[] = [];
  const flush = () => {
    for (let index = 0; index < Math.max(removed.length, added.length); index += 1) {
      rows.push({ before: removed[index] ?? null, after: added[index] ?? null, changed: true });
    }
    removed = [];
    added = [];
  };
  const lines = (text: string): string[] => (text === "" ? [] : text.split("\n"));
  for (const { kind, text } of compare(lines(before), lines(after))) {
    if (kind === "removed") removed.push(text);
    else if (kind === "added") added.push(text);
    else {
      flush();
      rows.push({ before: text, after: text, changed: false });
    }
  }
  flush();
  return rows;
}

/** A value as indented JSON with sorted keys, so that a comparison ignores the order of keys. */
export function sortedJson(value: Json): string {
  const sorted = (part: Json): Json => {
    if (Array.isArray(part)) return part.map(sorted);
    if (part === null || typeof part !== "object") return part;
    // `Object.fromEntries` creates a member `__proto__`, where an assignment would set the prototype.
    return Object.fromEntries(Object.keys(part).sort().map((key) => [key, sorted(part[key] ?? null)]));
  };
  return JSON.stringify(sorted(value), null, 2);
}

/** The differing strings at equal paths of two contents that are long enough for a word-by-word comparison. */
export function changedTexts(before: Json, after: Json, path = ""): { path: string; before: string; after: string }[] {
  if (typeof before === "string" && typeof after === "string") {
    const isProse = before.length + after.length > 60;
    return before !== after && isProse ? [{ path: path || "/", before, after }] : [];
  }
  if (before === null || after === null || typeof before !== "object" || typeof after !== "object") return [];
  const [left, right] = [before as Record<string, Json>, after as Record<string, Json>];
  return Object.keys(left).flatMap((key) =>
    Object.hasOwn(right, key) ? changedTexts(left[key] ?? null, right[key] ?? null, `${path}/${key}`) : [],
  );
}
