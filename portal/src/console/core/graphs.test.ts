import { expect, test } from "vitest";
import { flowGraph, impactGraph } from "./graphs";
import { changedRules } from "./rules";
import type { Asset, Schemas } from "./types";

test("a flow is a graph of its steps, and a comparison names what changed", () => {
  const before = { steps: [{ id: "a", type: "task", on_success: "b" }, { id: "b", type: "llm_call", next: "c" }, { id: "c", type: "return" }] };
  const after = { steps: [{ id: "a", type: "task", on_success: "d" }, { id: "d", type: "llm_call", next: "c" }, { id: "c", type: "return" }] };
  expect(flowGraph(before).edges).toEqual([{ source: "a", target: "b", relationship: "on_success" }, { source: "b", target: "c", relationship: "next" }]);
  expect(flowGraph(after, before).nodes.map(({ id, change }) => [id, change])).toEqual([["a", "changed"], ["d", "added"], ["c", undefined], ["b", "removed"]]);
  for (const content of [undefined, null, "x", [], { steps: [1, { id: 2 }, null] }]) expect(flowGraph(content as never).nodes).toEqual([]);
});

test("what depends on an asset leads from it to releases and workloads", () => {
  const asset = { asset_id: "a", slug: "kb", asset_kind: "knowledge_base" } as Asset;
  const skill = { asset_version_id: "v", asset_slug: "skill", asset_kind: "skill", version_label: "v1", towards: null };
  const impact = {
    via: [skill], truncated: false,
    releases: [{ release_id: "r", environment: "dev", state: "active", path: [skill] }, { release_id: "s", environment: "dev", state: "draft", path: [null] }],
    workloads: [{ workload_id: "w", slug: "desk", release_ids: ["r", "unseen"] }],
  } as unknown as Schemas["BlastRadius"];
  expect(impactGraph(asset, impact).edges.map(({ source, target }) => `${source}-${target}`)).toEqual(["a-v", "v-r", "a-s", "r-w"]);
});

test("policies are compared by rules", () => {
  const rule = (id: string, outcome: string) => ({ id, outcome });
  expect(changedRules({ rules: [rule("a", "allow"), rule("b", "deny"), rule("c", "deny")] }, { rules: [rule("c", "deny"), rule("b", "allow"), rule("d", "deny")] })).toEqual([
    { id: "a", before: rule("a", "allow"), after: null },
    { id: "b", before: rule("b", "deny"), after: rule("b", "allow") },
    { id: "d", before: null, after: rule("d", "deny") },
  ]);
  expect(changedRules("x", { rules: [1, { id: 2 }] })).toEqual([]);
});
