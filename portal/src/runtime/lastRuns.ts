import type { Client } from "../api/client";
import type { RunTicket } from "./run";

/**
 * Stores the last run of each workload, so that the page restores it after a reload. Tokens are stored only in the tab.
 */
export class TicketStore {
  readonly #key: string;

  constructor(client: Client, slug: string) {
    this.#key = `fairway.run ${client.cacheKey} ${slug}`;
  }

  load(): RunTicket | null {
    for (const store of [sessionStorage, localStorage]) {
      try {
        const ticket = JSON.parse(store.getItem(this.#key) ?? "null") as RunTicket | null;
        if (ticket && typeof ticket.executionId === "string") return ticket;
      } catch {
        // Ignores unavailable storage and malformed entries.
      }
    }
    return null;
  }

  save(ticket: RunTicket, isGuest: boolean): void {
    this.clear();
    this.#write(ticket.resultToken || isGuest ? sessionStorage : localStorage, ticket);
  }

  #write(store: Storage, ticket: RunTicket): void {
    try {
      store.setItem(this.#key, JSON.stringify(ticket));
    } catch {
      // Ignores unavailable storage, because it only means that the run is not restored after a reload.
    }
  }

  clear(): void {
    for (const store of [sessionStorage, localStorage]) {
      try {
        store.removeItem(this.#key);
      } catch {
        // Ignores unavailable storage, which then contains no entry to delete.
      }
    }
  }
}
