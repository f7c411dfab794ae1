import { expect, test } from "vitest";
import { columnsOf, rowsOf, sorted, toCsv } from "./csv";
import { isTooDeep, linkTarget, nestHeadings } from "./markdown";
import { mayCite, parsed, plainText } from "./plain";

test("shows texts, flat objects and other values as plain text", () => {
  expect(plainText("a")).toBe("a");
  expect(plainText({ category: "billing", sure: true })).toBe("category: billing\nsure: true");
  expect(plainText({ a: [1] })).toBe('{\n  "a": [\n    1\n  ]\n}');
  expect(parsed('[{"a":1}]')).toEqual([{ a: 1 }]);
});

test("a name in brackets may be a citation, in any kind of result", () => {
  for (const value of ["Thirty days [leave].", "[hr/leave]", [{ text: "see [leave-2]" }], { a: { b: "[x]" } }]) expect(mayCite(value)).toBe(true);
  for (const value of ["Thirty days.", "[not this one]", "[]", ["leave"], null, 1, { a: ["b"] }]) expect(mayCite(value)).toBe(false);
});

test("a table accepts any column name, and only arrays of objects", () => {
  const rows = rowsOf(JSON.parse('[{"__proto__": 1, "b": 2}, {"constructor": 3}]'))!;
  expect(columnsOf(rows)).toEqual(["__proto__", "b", "constructor"]);
  for (const value of [[], [1], [null], [[1]], {}, "x", null]) expect(rowsOf(value)).toBeNull();
});

test("sorts numbers by value and empty cells last", () => {
  const rows = rowsOf([{ n: 10 }, {}, { n: 9 }])!;
  expect(sorted(rows, "n", false).map((row) => row.get("n"))).toEqual([9, 10, undefined]);
  expect(sorted(rows, "n", true).map((row) => row.get("n"))).toEqual([10, 9, undefined]);
});

test("csv quotes cells and disarms formulas", () => {
  const rows = rowsOf([{ a: '=cmd|"x"', b: -1, c: "l\n2" }])!;
  expect(toCsv(columnsOf(rows), rows)).toBe('a,b,c\r\n"\'=cmd|""x""",-1,"l\n2"\r\n');
});

test("markdown links lead to the web or to mail only", () => {
  for (const hostile of ["javascript:alert(1)", "data:text/html,x", "//evil", "/v1/x", "vbscript:x", " javascript:x", "java\nscript:x", "blob:x", "file:///x"]) {
    expect(linkTarget(hostile), hostile).toBeNull();
  }
  expect(linkTarget("https://user:pass@a.example/x")).toBeNull();
  expect(linkTarget("https://a.example/x?y")).toEqual({ href: "https://a.example/x?y", shown: "a.example" });
  expect(linkTarget("https://\u0440aypal.example/")?.shown).toBe("xn--aypal-uye.example");
  expect(linkTarget("mailto:a@b.example")?.shown).toBe("a@b.example");
});

test("headings skip no level", () => {
  const levels = (depths: number[]) => {
    const children = depths.map((depth) => ({ type: "heading", depth }));
    nestHeadings({ type: "root", children: [{ type: "blockquote", children }] });
    return children.map((node) => node.depth);
  };
  expect(levels([2, 4, 4, 3, 1, 6])).toEqual([3, 4, 4, 4, 3, 4]);
  expect(levels([1, 2, 3, 4, 5, 6])).toEqual([3, 4, 5, 6, 6, 6]);
});

test("refuses markdown that nests too deep", () => {
  expect(isTooDeep(`${"> ".repeat(500)}x`)).toBe(true);
  expect(isTooDeep(`${" ".repeat(400)}- x`)).toBe(true);
  expect(isTooDeep("- a\n  - b\n    - c")).toBe(false);
});
