import type { Schemas } from "../core/types";

type Preference = Schemas["NotificationPreference"];
export type Category = Preference["category"];
export type Channel = Preference["channel"];
/** The preference of a scope for a channel. `inherit` means that the wider scopes decide. */
export type Choice = "inherit" | "on" | "off";

export const CATEGORIES = ["executions", "approvals", "incidents", "compliance_findings", "reports", "connector_health", "credential_expiry", "policy_changes"] as const satisfies readonly Category[];
export const CHANNELS = ["portal", "email", "chat_a", "chat_b", "chat_c", "paging", "webhook"] as const satisfies readonly Channel[];

export function choiceOf(stored: readonly Preference[], category: Category, channel: Channel): Choice {
  const preference = stored.find((one) => one.category === category && one.channel === channel);
  return preference ? (preference.enabled ? "on" : "off") : "inherit";
}

/** The request for a choice; null for `inherit`, because the API cannot remove a stored preference. */
export function changeOf(category: Category, channel: Channel, choice: Choice): Preference | null {
  return choice === "inherit" ? null : { category, channel, enabled: choice === "on" };
}
