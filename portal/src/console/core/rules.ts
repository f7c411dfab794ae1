import type { Json } from "../../api/types";
import { sortedJson } from "./diff";

/** A rule that differs between two policies; a side is null if its policy lacks the rule. */
export interface RuleChange {
  id: string;
  before: Json | null;
  after: Json | null;
}

function rulesOf(content: Json): Map<string, Json> {
  const rules = content && typeof content === "object" && !Array.isArray(content) ? content["rules"] : null;
  const entries = (Array.isArray(rules) ? rules : []).flatMap((rule): [string, Json][] =>
    rule && typeof rule === "object" && !Array.isArray(rule) && typeof rule["id"] === "string" ? [[rule["id"], rule]] : [],
  );
  return new Map(entries);
}

/** The rules that differ between two policies, by their identifiers. */
export function changedRules(before: Json, after: Json): RuleChange[] {
  const [oldRules, newRules] = [rulesOf(before), rulesOf(after)];
  return [...new Set([...oldRules.keys(), ...newRules.keys()])]
    .map((id) => ({ id, before: oldRules.get(id) ?? null, after: newRules.get(id) ?? null }))
    .filter((change) => sortedJson(change.before) !== sortedJson(change.after));
}
