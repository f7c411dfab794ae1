import type { Search } from "../core/address";
import type { Schemas } from "../core/types";

/** Whether an event of the audit log matches the filters in the address. */
export function fits(event: Schemas["AuditEvent"], search: Search): boolean {
  const { kind, actor, subject } = search;
  return (!kind || event.kind === kind) && (!actor || event.actor.includes(actor)) && (!subject || event.subject.id.startsWith(subject));
}
