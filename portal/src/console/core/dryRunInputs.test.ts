import { expect, test } from "vitest";
import { argumentFields, argumentValues, argumentWords, firstInput } from "./dryRunInputs";

test("the arguments of a template are its declared variables and its placeholders, each once", () => {
  const content = {
    system_prompt: "$arg:count {{ who }} {{who}} {{count}} {{two words}} @asset-ref:tone",
    variables: [{ name: "count", type: "number" }, { name: "topic" }, { name: "odd", type: "date" }, null, 7],
  };
  expect(argumentFields(content)).toEqual([
    { name: "count", type: "number" },
    { name: "topic", type: "string" },
    { name: "who", type: "string" },
  ]);
  for (const invalidContent of [null, {}, { system_prompt: 3, variables: "x" }]) expect(argumentFields(invalidContent)).toEqual([]);
});

test("typed text becomes a value of the declared type; what is left empty is no argument", () => {
  const fields = [
    { name: "topic", type: "string" },
    { name: "count", type: "number" },
    { name: "strict", type: "boolean" },
    { name: "tags", type: "array" },
  ] as const;
  expect(argumentValues(fields, { topic: "7", count: "2.5", strict: "true", tags: '["a"]' }, { topic: "x", other: 1 })).toEqual({ topic: "7", count: 2.5, strict: true, tags: ["a"], other: 1 });
  expect(argumentValues(fields, { topic: "", count: " ", tags: "[" }, {})).toEqual({ topic: "", tags: "[" });
  expect(argumentValues(fields, {}, { count: 3 })).toEqual({ count: 3 });
});

test("arguments of the command say which of them are JSON", () => {
  expect(argumentWords({ topic: "a b", count: 2, tags: ["x"] })).toEqual(["--arg", "topic=a b", "--arg", "count:=2", "--arg", 'tags:=["x"]']);
});

test("a trial begins with the input of the first test", () => {
  expect(firstInput({ tests: [{ name: "t", input: { lane: "guided" } }] })).toEqual({ lane: "guided" });
  for (const invalidContent of [null, {}, { tests: [] }, { tests: [{ name: "t" }] }, { tests: [7] }]) expect(firstInput(invalidContent)).toEqual({ environment: "dev", inputs: {} });
});
