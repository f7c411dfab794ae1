import type { RJSFSchema } from "@rjsf/utils";
import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { fieldId, formSchema, isChoice, isMap, nameOf, needsJson, withoutEmptyFields } from "./schema";
import { validator } from "./validator";

const ROOT = `${import.meta.dirname}/../../../..`;
const read = (path: string) => JSON.parse(readFileSync(`${ROOT}/${path}`, "utf8")) as RJSFSchema;
const KINDS = readdirSync(`${ROOT}/crates/domain/src/asset/schemas`).map((name) => name.replace(".json", ""));
const schemaOf = (kind: string) => formSchema(read(`crates/domain/src/asset/schemas/${kind}.json`));

test.each(KINDS)("keeps the example content of %s", (kind) => {
  const [prepared, content] = [schemaOf(kind), read(`examples/assets/${kind}.json`)];
  expect(withoutEmptyFields(prepared, content)).toEqual(content);
  expect(validator.isValid(prepared, content, prepared)).toBe(true);
  expect(JSON.stringify(prepared)).not.toContain('"default":');
});

test("turns several types into titled alternatives with their own keywords", () => {
  const { rate_limit: limit } = schemaOf("connector_definition").properties as Record<string, RJSFSchema>;
  const [number, object] = limit?.anyOf as RJSFSchema[];
  expect([number?.title, number?.properties, object?.title, object?.minimum]).toEqual(["integer", undefined, "object", undefined]);
  expect(limit?.["x-enforcement"]).toBeDefined();
  expect([validator.isValid(number ?? {}, 5, {}), validator.isValid(number ?? {}, {}, {})]).toEqual([true, false]);
});

test("tells the slug of a reference which kinds it may name", () => {
  const { model_policy_ref: reference, tools } = schemaOf("agent").properties as Record<string, RJSFSchema>;
  expect((reference?.properties?.["slug"] as RJSFSchema)["x-asset-kinds"]).toEqual(["model_policy"]);
  expect(((tools?.items as RJSFSchema).properties?.["slug"] as RJSFSchema)["x-asset-kinds"]).toEqual(["tool_definition"]);
  expect((reference?.properties?.["version"] as RJSFSchema)["x-asset-kinds"]).toBeUndefined();
});

test("shows values as JSON that have no field, or another type than their field", () => {
  const list = { type: "array", items: { type: "string" } } as const;
  const cases: [RJSFSchema, unknown, boolean][] = [
    [{ description: "Anything." }, undefined, true],
    [{ type: "object" }, undefined, true],
    [{ type: "object", properties: { a: {} } }, undefined, false],
    [{ type: "object", properties: { a: {} } }, "text", true],
    [{ type: "object", properties: { a: {} } }, null, true],
    [list, { a: 1 }, true],
    [list, [1], false],
    [{ type: "string" }, 3, false],
    [{ type: "string" }, ["a"], true],
    [{ type: ["string", "null"] }, null, false],
    [{ enum: ["a"] }, "b", false],
    [{ enum: ["a"] }, {}, true],
    [{ anyOf: [{ type: "string" }, { type: "object" }] }, [], true],
    [{ anyOf: [{ type: "string" }, { type: "object" }] }, {}, false],
  ];
  for (const [schema, value, isJson] of cases) expect(needsJson(schema, value), JSON.stringify([schema, value])).toBe(isJson);
});

test("knows maps and choices", () => {
  const { labels, variables } = schemaOf("prompt_template").properties as Record<string, RJSFSchema>;
  const { may } = schemaOf("hook_definition").properties as Record<string, RJSFSchema>;
  expect([isMap(labels ?? {}), isMap(variables ?? {}), isChoice(may ?? {}), isChoice(variables ?? {})]).toEqual([true, false, true, false]);
});

test("drops empty fields, and fills empty items of lists by their type", () => {
  const prepared = schemaOf("agent");
  const content = { name: undefined, tools: [undefined, { slug: "a", version: undefined }], bogus: { kept: [1] } };
  expect(withoutEmptyFields(prepared, content)).toEqual({ tools: [{}, { slug: "a" }], bogus: { kept: [1] } });
  expect(withoutEmptyFields(schemaOf("prompt_template"), { allowed_commands: [undefined, "x"] })).toEqual({ allowed_commands: ["", "x"] });
});

test("finds the field of a path of the server", () => {
  expect(fieldId("content.variables[1].name")).toBe("content.variables.1.name");
  expect([nameOf(["variables", 1, "name"]), nameOf(["variables", 1])]).toEqual(["name", "variables 2"]);
});
