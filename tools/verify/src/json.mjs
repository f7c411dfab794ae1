// JSON with the limits of the verifier, its canonical form (RFC 8785), and the shape of values.

/** The deepest nesting that is read. `fairway verify` reads no deeper either. */
const MAX_DEPTH = 127;

export const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** Whether a canonical form exists for the value: finite numbers, whole characters, and no deep nesting. */
function isReadable(value, depth = 0) {
  if (typeof value === "string") return value.isWellFormed();
  if (typeof value === "number") return Number.isFinite(value);
  if (typeof value !== "object" || value === null) return true;
  if (depth >= MAX_DEPTH) return false;
  return Object.keys(value).every((name) => name.isWellFormed() && isReadable(value[name], depth + 1));
}

/** The value of a JSON text; undefined for every other text. */
export function readJson(text) {
  try {
    const value = JSON.parse(text);
    return isReadable(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The canonical form of a value that was read. Names are sorted by their UTF-16 units, as JavaScript sorts. */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (!isObject(value)) return JSON.stringify(value);
  const members = Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`);
  return `{${members.join(",")}}`;
}

/** A member of an object; undefined if it is no object or lacks the member. */
export const member = (value, name) => (isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined);

/** The text at a path of members; the empty text if there is none. */
export function textAt(value, ...path) {
  const found = path.reduce(member, value);
  return typeof found === "string" ? found : "";
}

/** The list that is a member of an object; the empty list if there is none. */
export const listAt = (value, name) => (Array.isArray(member(value, name)) ? value[name] : []);

// Shapes: functions that say whether a value has a form.
export const isText = (value) => typeof value === "string";
export const isTextOrNull = (value) => value === null || isText(value);
export const isCount = (value) => Number.isSafeInteger(value) && value >= 0;
export const isUuid = (value) => isText(value) && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(value);
export const isOneOf = (...values) => (value) => values.includes(value);
export const isListOf = (isItem) => (value) => Array.isArray(value) && value.every(isItem);
export const isMapOf = (isItem) => (value) => isObject(value) && Object.keys(value).every((name) => isItem(value[name]));
/** Exactly these members. */
export const hasExactly = (shape) => (value) =>
  isObject(value) &&
  Object.keys(value).length === Object.keys(shape).length &&
  Object.entries(shape).every(([name, isItem]) => Object.hasOwn(value, name) && isItem(value[name]));
