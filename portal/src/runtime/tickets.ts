import type { Client } from "../api/client";
import type { RunTicket } from "./run";

/** Stores the last run of each workload, so that a reload or a return finds it again. Tokens stay in the tab. */
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
        // Storage is unavailable or was written by something else.
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
      // Without storage the run is only lost on reload.
    }
  }

  clear(): void {
    for (const store of [sessionStorage, localStorage]) {
      try {
        store.removeItem(this.#key);
      } catch {
        // Nothing was stored.
      }
    }
  }
}
