import { expect, test } from "vitest";
import { apiPath } from "./paths";

test("encodes placeholders and omits empty query parameters", () => {
  expect(apiPath("/v1/workloads/by-slug/{slug}", { slug: "a/../b?c#d" })).toBe("/v1/workloads/by-slug/a%2F..%2Fb%3Fc%23d");
  expect(apiPath("/v1/workloads/runtime-enabled", {}, { q: "a b&c", owner_ref: "" })).toBe("/v1/workloads/runtime-enabled?q=a+b%26c");
});

test("refuses segments that would name another route", () => {
  for (const slug of ["", ".", ".."]) expect(() => apiPath("/v1/workloads/by-slug/{slug}", { slug })).toThrow();
});
