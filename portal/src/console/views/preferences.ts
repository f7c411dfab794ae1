import type { Schemas } from "../core/types";

type Preference = Schemas["NotificationPreference"];
export type Category = Preference["category"];
export type Channel = Preference["channel"];
/** What a scope says about a channel. `inherit` says nothing: wider scopes decide. */
export type Choice = "inherit" | "on" | "off";

export const CATEGORIES = ["executions", "approvals", "incidents", "compliance_findings", "reports", "connector_health", "credential_expiry", "policy_changes"] as const satisfies readonly Category[];
export const CHANNELS = ["portal", "email", "chat_a", "chat_b", "chat_c", "paging", "webhook"] as const satisfies readonly Channel[];

export function choiceOf(stored: readonly Preference[], category: Category, channel: Channel): Choice {
  const found = stored.find((one) => one.category === category && one.channel === channel);
  return found ? (found.enabled ? "on" : "off") : "inherit";
}

/** The change that a choice sends. Nothing returns to inherit, so that choice sends nothing. */
export function changeOf(category: Category, channel: Channel, choice: Choice): Preference | null {
  return choice === "inherit" ? null : { category, channel, enabled: choice === "on" };
}
