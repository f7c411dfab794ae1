import { expect, test } from "vitest";
import { findingOfOffset, findingsOfFields, findingsOfLines, isLostByForm, offsetOf, parsedObject, positionsOf, syntaxFinding } from "./positions";

const TEXT = `{
  "system_prompt": 3,
  "variables": [{ "name": "é" }, { "nam": "y" }]
}`;

test("finds keys and values of a JSON text by the server's paths", () => {
  const { keys, values, error } = positionsOf(TEXT);
  const textOf = (span: { from: number; to: number } | undefined) => span && TEXT.slice(span.from, span.to);
  expect(error).toBeNull();
  expect(textOf(keys.get("content.variables[1].nam"))).toBe('"nam"');
  expect(textOf(values.get("content.system_prompt"))).toBe("3");
  expect(textOf(values.get("content.variables[0]"))).toBe('{ "name": "é" }');
});

test("messages about fields get a line and a column; a missing field stands at the part that lacks it", () => {
  const findings = findingsOfFields(TEXT, [
    { path: "content.variables[1].name", code: "missing_field", message: "this field is required" },
    { path: "content.system_prompt", code: "wrong_type", message: "expected string" },
    { path: "content.other.deep", code: "missing_field", message: "this field is required" },
  ]);
  expect(findings.map(({ line, column, message }) => [line, column, message])).toEqual([
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

test("a byte of the prompt stands at its character in the JSON text, whatever its escapes", () => {
  const prompt = 'é 😀 \n"x" @asset-ref:gone, and more';
  const offset = new TextEncoder().encode(prompt.slice(0, prompt.indexOf("@"))).length;
  const plain = JSON.stringify({ system_prompt: prompt }, null, 2);
  const escaped = plain.replaceAll("é", "\\u00e9").replaceAll("😀", "\\ud83d\\uDE00");
  for (const text of [plain, escaped]) {
    const finding = findingOfOffset(text, offset, "prompt_unknown_asset", "m");
    expect(text.slice(finding.from, finding.to)).toBe("@asset-ref:gone,");
    expect([finding.line, finding.code, finding.message]).toEqual([2, "prompt_unknown_asset", "m"]);
  }
  expect(findingOfOffset(plain, 0, "c", "m")).toMatchObject({ line: 2, column: 21 });
  expect(findingOfOffset("", 5, "c", "m")).toMatchObject({ from: 0, to: 0, line: 1, column: 1 });
  expect(findingOfOffset(plain, 9_999, "c", "m")).toMatchObject({ line: 2 });
});

test("only a JSON object is the content of an asset", () => {
  expect(parsedObject('{"a":1}')).toEqual({ a: 1 });
  for (const text of ["", "{", "[]", "null", "7"]) expect(parsedObject(text), text).toBeNull();
});

test("knows what a form would lose", () => {
  const cases = ['{"a": {"__proto__": 1}}', '{"a": [1e400]}', '{"\\u005f_proto__": 1}', '{"a": ["__proto__"], "b": null}', "{}"];
  expect(cases.map((text) => isLostByForm(parsedObject(text)))).toEqual([true, true, true, false, false]);
});
