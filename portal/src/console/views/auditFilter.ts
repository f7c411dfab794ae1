import type { Search } from "../core/address";
import type { Schemas } from "../core/types";

/** Whether a row of the log fits the filters of the address. */
export function fits(event: Schemas["AuditEvent"], search: Search): boolean {
  const { kind, actor, subject } = search;
  return (!kind || event.kind === kind) && (!actor || event.actor.includes(actor)) && (!subject || event.subject.id.startsWith(subject));
}
