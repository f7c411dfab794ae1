import { expect, test } from "vitest";
import { findingsOfFields, findingsOfLines, offsetOf, positionsOf, syntaxFinding } from "./positions";

const TEXT = `{
  "system_prompt": 3,
  "variables": [{ "name": "é" }, { "nam": "y" }]
}`;

test("finds keys and values of a JSON text by the server's paths", () => {
  const { keys, values, error } = positionsOf(TEXT);
  const at = (span: { from: number; to: number } | undefined) => span && TEXT.slice(span.from, span.to);
  expect(error).toBeNull();
  expect(at(keys.get("content.variables[1].nam"))).toBe('"nam"');
  expect(at(values.get("content.system_prompt"))).toBe("3");
  expect(at(values.get("content.variables[0]"))).toBe('{ "name": "é" }');
});

test("messages about fields get a line and a column; a missing field stands at the part that lacks it", () => {
  const found = findingsOfFields(TEXT, [
    { path: "content.variables[1].name", code: "missing_field", message: "this field is required" },
    { path: "content.system_prompt", code: "wrong_type", message: "expected string" },
    { path: "content.other.deep", code: "missing_field", message: "this field is required" },
  ]);
  expect(found.map(({ line, column, message }) => [line, column, message])).toEqual([
    [1, 1, "other.deep: this field is required"],
    [2, 20, "system_prompt: expected string"],
    [3, 34, "variables[1].name: this field is required"],
  ]);
});

test("a text that is not JSON has one place where it ends to be JSON", () => {
  expect(syntaxFinding(TEXT, "x")).toBeNull();
  expect(syntaxFinding('{\n  "a": 1,\n}', "x")).toMatchObject({ line: 3, column: 1, code: "json_syntax" });
  for (const text of ["", "{", '{"a"', "[1 2]", "01", '"\n"', "[".repeat(5_000)]) expect(syntaxFinding(text, "x"), text).not.toBeNull();
});

test("places are counted in characters and stay inside of the text", () => {
  expect(offsetOf("a\n😀b", 2, 2)).toBe(4);
  expect(offsetOf("ab", 9, 9)).toBe(2);
  expect(findingsOfLines("a: 1\nbad: x", [{ line: 2, column: 1, code: "unknown_key", message: "m" }])).toEqual([
    { from: 5, to: 8, line: 2, column: 1, code: "unknown_key", message: "m" },
  ]);
  expect(findingsOfLines("", [{ line: null, column: null, code: "c", message: "m" }])).toMatchObject([{ from: 0, to: 0, line: 1, column: 1 }]);
});
