import { expect, test } from "vitest";
import { entriesOf } from "../shell/palette";
import { de } from "../i18n/de";
import { en } from "../i18n/en";
import { nextPage } from "../core/console";
import type { Schemas } from "../core/types";
import { fits } from "./auditFilter";
import { changeOf, choiceOf } from "./preferences";
import { lineOf } from "./timeline";

test("both languages have the same placeholders", () => {
  const placeholders = (text: string) => (text.match(/\{\w+\}/g) ?? []).sort();
  for (const key of Object.keys(en) as (keyof typeof en)[]) expect(placeholders(de[key]), key).toEqual(placeholders(en[key]));
});

test("the palette finds views, workloads, assets and identifiers", () => {
  const views = [{ label: "Runs", to: "/runs" }];
  const workloads = [{ label: "Order desk (order-desk)", to: "/workloads/1" }];
  const names = { run: "Run", release: "Release" };
  expect(entriesOf("", views, workloads, names)).toHaveLength(2);
  expect(entriesOf("desk ORDER", views, workloads, names)).toEqual(workloads);
  const id = "01a21deb-12ef-72c7-ab4b-bed8a4549de3";
  expect(entriesOf(` ${id.toUpperCase()} `, views, workloads, names).map(({ to }) => to)).toEqual([`/runs/${id}`, `/releases/${id}`]);
});

test("only addresses of this API are followed as next pages", () => {
  expect(nextPage('</v1/releases?limit=1&cursor=a>; rel="next"')).toBe("/v1/releases?limit=1&cursor=a");
  for (const link of [null, "", '<https://elsewhere.example/v1/x>; rel="next"', '<//elsewhere.example/v1/x>; rel="next"', '</v1/x>; rel="prev"']) {
    expect(nextPage(link)).toBeNull();
  }
});

test("a choice sets on or off; inherit sends nothing", () => {
  const stored = [{ category: "approvals", channel: "email", enabled: false }] as const;
  expect(choiceOf(stored, "approvals", "email")).toBe("off");
  expect(choiceOf(stored, "approvals", "portal")).toBe("inherit");
  expect(changeOf("approvals", "email", "on")).toEqual({ category: "approvals", channel: "email", enabled: true });
  expect(changeOf("approvals", "email", "inherit")).toBeNull();
});

test("rows of the log are filtered by kind, actor and subject", () => {
  const event = { kind: "release.reviewed", actor: "user:ada", subject: { kind: "release", id: "01ab" } } as Schemas["AuditEvent"];
  expect(fits(event, {})).toBe(true);
  expect(fits(event, { kind: "release.reviewed", actor: "ada", subject: "01" })).toBe(true);
  expect(fits(event, { actor: "grace" })).toBe(false);
  expect(fits(event, { subject: "1a" })).toBe(false);
});

test("an event is one short line", () => {
  expect(lineOf('{"execution_id":"x","step_id":"check","error_code":null}')).toBe("step_id: check");
  expect(lineOf("no json")).toBe("no json");
  expect(lineOf(JSON.stringify({ delta: "x".repeat(500) })).length).toBe(161);
});
