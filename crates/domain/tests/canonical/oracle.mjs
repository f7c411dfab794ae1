// Writes corpus.jsonl: generated documents, each as a JSON text in a random spelling, with its RFC 8785 canonical form.
//
//     node crates/domain/tests/canonical/oracle.mjs > crates/domain/tests/canonical/corpus.jsonl
//
// This is the external oracle for Fairway's canonical JSON. RFC 8785 defines numbers and strings by ECMAScript's
// JSON.stringify, and the order of members by UTF-16 code units, as JavaScript compares strings. A JavaScript engine
// therefore is the reference implementation, and shares no code with Fairway.

const DOCUMENTS = 2_000;
const LARGEST_EXACT = Number.MAX_SAFE_INTEGER;

// mulberry32 with a fixed seed: every run generates the same documents, so a changed corpus shows a changed oracle.
let state = 0x5eed8785;
const random = () => {
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
};
const below = (count) => Math.floor(random() * count);
const one = (list) => list[below(list.length)];

const bits = new DataView(new ArrayBuffer(8));
const anyDouble = () => {
  for (;;) {
    bits.setUint32(0, below(4294967296));
    bits.setUint32(4, below(4294967296));
    const value = bits.getFloat64(0);
    if (Number.isFinite(value)) return value;
  }
};
const EDGES = [
  0, -0, 1, -1, 0.1, 0.2, 0.1 + 0.2, 1 / 3, 5e-324, 2.2250738585072014e-308, 1e-7, 1e-6, 9.999999999999999e-7, 1e20, 1e21,
  123456789012345680000, 333333333.3333333, 333333333.33333325, 4.5, 0.002, 1e-27, LARGEST_EXACT, -LARGEST_EXACT,
  LARGEST_EXACT + 1, 1.7976931348623157e308, 9007199254740993, 4503599627370497.5, 1.0000000000000002, 2 ** -1074, 2 ** 53,
];
const number = () => {
  switch (below(6)) {
    case 0: return one(EDGES);
    case 1: return below(1_000_000) - 500_000;
    case 2: return (random() - 0.5) * 10 ** (below(40) - 25);
    case 3: return below(2 ** 31) * 4_194_304 * one([1, -1]);
    case 4: return below(1_000_000) / one([10, 100, 1_000, 3, 7]);
    default: return random() < 0.5 ? anyDouble() : random();
  }
};

const RANGES = [[0x20, 0x7e], [0x20, 0x7e], [0x01, 0x1f], [0x7f, 0xff], [0x100, 0x7ff], [0x2000, 0x206f], [0xe000, 0xffff], [0x10000, 0x10ffff]];
const letter = () => {
  const [from, to] = one(RANGES);
  return String.fromCodePoint(from + below(to - from + 1));
};
const text = (most) => Array.from({ length: below(most + 1) }, letter).join("");

const value = (depth) => {
  const kind = below(depth > 3 ? 4 : 7);
  if (kind === 0) return one([null, true, false]);
  if (kind <= 2) return number();
  if (kind === 3) return text(12);
  if (kind === 4) return Array.from({ length: below(5) }, () => value(depth + 1));
  const members = {};
  for (let index = below(7); index > 0; index -= 1) members[text(4)] = value(depth + 1);
  return members;
};

// RFC 8785, section 3.2.
const canonical = (document) => {
  if (document === null || typeof document !== "object") return JSON.stringify(document);
  if (Array.isArray(document)) return `[${document.map(canonical).join(",")}]`;
  const members = Object.keys(document).sort().map((key) => `${JSON.stringify(key)}:${canonical(document[key])}`);
  return `{${members.join(",")}}`;
};

// Fairway refuses integers beyond 2^53 - 1, because some JSON parsers round them.
const refused = (document) => {
  if (typeof document === "number") return Number.isInteger(document) && Math.abs(document) > LARGEST_EXACT;
  return document !== null && typeof document === "object" && Object.values(document).some(refused);
};

const space = () => one(["", "", "", " ", "\n", "\t ", "\r\n"]);
const spelledText = (string) => {
  let spelled = '"';
  for (const unit of JSON.stringify(string).slice(1, -1).match(/\\u....|\\.|[^]/gu) ?? []) {
    const escape = random() < 0.1 && !unit.startsWith("\\");
    spelled += escape
      ? Array.from({ length: unit.length }, (_, at) => `\\u${unit.charCodeAt(at).toString(16).padStart(4, "0")}`).join("")
      : unit;
  }
  return `${spelled}"`;
};
const spelledNumber = (numeral) => {
  if (Object.is(numeral, -0)) return one(["-0", "-0.0", "-0e5"]);
  const plain = String(numeral);
  const candidates = [plain, plain.replace("e", "E"), numeral.toExponential(), `${numeral.toPrecision(21)}`, `${plain}${/[.e]/.test(plain) ? "" : ".0"}`];
  const spelled = one(candidates);
  // A spelling must parse to the same number.
  return Number(spelled) === numeral ? spelled : plain;
};
const shuffled = (list) => {
  for (let at = list.length - 1; at > 0; at -= 1) {
    const other = below(at + 1);
    [list[at], list[other]] = [list[other], list[at]];
  }
  return list;
};
const spelled = (document) => {
  if (typeof document === "number") return spelledNumber(document);
  if (typeof document === "string") return spelledText(document);
  if (document === null || typeof document !== "object") return String(document);
  if (Array.isArray(document)) return `[${document.map((item) => space() + spelled(item) + space()).join(",")}]`;
  const members = shuffled(Object.keys(document)).map((key) => `${space()}${spelledText(key)}${space()}:${space()}${spelled(document[key])}`);
  return `{${members.join(",")}${space()}}`;
};

for (let made = 0; made < DOCUMENTS; made += 1) {
  const document = value(0);
  const source = space() + spelled(document) + space();
  if (canonical(JSON.parse(source)) !== canonical(document)) throw new Error(`spelled wrongly: ${source}`);
  console.log(JSON.stringify({ source, canonical: refused(document) ? null : canonical(document) }));
}
