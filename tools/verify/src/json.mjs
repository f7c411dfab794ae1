// Parses JSON within limits, writes its canonical form (RFC 8785), and checks the shape of values.

/** The maximum nesting depth of JSON, which equals the limit of `fairway verify`. */
const MAX_DEPTH = 127;

export const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * Whether the value has a canonical form: only finite numbers and well-formed Unicode, nested at most `MAX_DEPTH` deep.
 */
function isReadable(value, depth = 0) {
  if (typeof value === "string") return value.isWellFormed();
  if (typeof value === "number") return Number.isFinite(value);
  if (typeof value !== "object" || value === null) return true;
  if (depth >= MAX_DEPTH) return false;
  return Object.keys(value).every((name) => name.isWellFormed() && isReadable(value[name], depth + 1));
}

/** Parses a JSON text; undefined for invalid JSON and for values without a canonical form. */
export function readJson(text) {
  try {
    const value = JSON.parse(text);
    return isReadable(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The canonical form of a value that `readJson` returned. Names are sorted by UTF-16 code units,
 * like JavaScript's `sort`.
 */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (!isObject(value)) return JSON.stringify(value);
  const members = Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`);
  return `{${members.join(",")}}`;
}

/** A member of an object; undefined if the value is not an object or lacks the member. */
export const member = (value, name) => (isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined);

/** The string at a path of member names; the empty string if the path does not lead to a string. */
export function textAt(value, ...path) {
  const found = path.reduce(member, value);
  return typeof found === "string" ? found : "";
}

/** The member of an object that is an array; an empty array if the member is missing or has another type. */
export const listAt = (value, name) => (Array.isArray(member(value, name)) ? value[name] : []);

// Shapes: predicates on values, and functions that combine them.
export const isText = (value) => typeof value === "string";
export const isTextOrNull = (value) => value === null || isText(value);
export const isCount = (value) => Number.isSafeInteger(value) && value >= 0;
export const isUuid = (value) => isText(value) && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(value);
export const isOneOf = (...values) => (value) => values.includes(value);
export const isListOf = (isItem) => (value) => Array.isArray(value) && value.every(isItem);
export const isMapOf = (isItem) => (value) => isObject(value) && Object.keys(value).every((name) => isItem(value[name]));
/** A predicate for objects that have exactly the members of `shape`, each of which satisfies its predicate. */
export const hasExactly = (shape) => (value) =>
  isObject(value) &&
  Object.keys(value).length === Object.keys(shape).length &&
  Object.entries(shape).every(([name, isItem]) => Object.hasOwn(value, name) && isItem(value[name]));
