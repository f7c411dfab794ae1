import { expect, test } from "vitest";
import type { InputField } from "../api/types";
import { en } from "../i18n/en";
import { translator } from "../i18n";
import { boundsOf, initialValues, inputsOf, serverMessages } from "./values";

const text = translator(en);
const field = (more: Partial<InputField>): InputField => ({ name: "a", type: "text", ...more });
const check = (more: Partial<InputField>, value: string | boolean) => inputsOf([field(more)], { a: value }, text);

test("starts with the defaults", () => {
  const fields = [field({ default: "x" }), field({ name: "b", type: "boolean", default: true }), field({ name: "c", type: "number", default: 0 })];
  expect(initialValues(fields)).toEqual({ a: "x", b: true, c: "0" });
});

test("says the bounds of a number", () => {
  expect(boundsOf(field({ type: "number", min: 0, max: 10 }), text)).toBe("From 0 to 10");
  expect(boundsOf(field({ type: "number", min: 1 }), text)).toBe("1 or more");
  expect(boundsOf(field({ type: "number", max: -1 }), text)).toBe("-1 or less");
  expect(boundsOf(field({ type: "number" }), text)).toBe("");
  expect(boundsOf(field({ min: 1, max: 2 }), text)).toBe("");
});

test("sends typed values and omits empty ones", () => {
  expect(check({ type: "number" }, "1,5")).toEqual({ inputs: { a: 1.5 }, messages: {} });
  expect(check({ type: "boolean" }, false)).toEqual({ inputs: { a: false }, messages: {} });
  expect(check({}, "")).toEqual({ inputs: {}, messages: {} });
});

test("refuses wrong values at their field", () => {
  expect(check({ required: true }, "  ").messages).toEqual({ a: "Enter a value." });
  expect(check({ type: "number", min: 2 }, "1").messages).toEqual({ a: "Enter 2 or more." });
  expect(check({ type: "number", max: 2 }, "3").messages).toEqual({ a: "Enter 2 or less." });
  expect(check({ type: "number" }, "1e999").messages).toEqual({ a: "Enter a number." });
  for (const day of ["2026-02-30", "0000-01", "2026-1-1", "2026-01-01T00:00"]) {
    expect(check({ type: "date" }, day).messages, day).toEqual({ a: "Enter a date." });
  }
  expect(check({ type: "date" }, "2028-02-29").messages).toEqual({});
});

test("shows the server's problems at their fields", () => {
  const problem = (path: string, code: string) => ({ path, code, message: "must be at least 2" });
  expect(serverMessages([problem("inputs.a", "missing"), problem("inputs.b", "min"), problem("environment", "invalid")], text)).toEqual({
    a: "Enter a value.",
    b: "must be at least 2",
  });
});
