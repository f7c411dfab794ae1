import { Problem, problemOf, unreachable } from "./problem";

/** The identity with which the page sends requests. A share token is never combined with another identity. */
export type Identity =
  | { kind: "local"; actor: string | null }
  | { kind: "session"; csrf: string | null }
  | { kind: "link"; token: string };

/** The parts of a request other than path and identity. */
export interface RequestOptions {
  method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  body?: unknown;
  accept?: string;
  headers?: Record<string, string | undefined>;
  signal?: AbortSignal;
}

/** Sends requests to this server with the identity of the page. */
export class Client {
  constructor(readonly identity: Identity) {}

  /** The identity as part of cache keys; it contains no secret. */
  get cacheKey(): string {
    return this.identity.kind === "local" ? `local ${this.identity.actor ?? ""}` : this.identity.kind;
  }

  #headers(options: RequestOptions): Headers {
    const headers = new Headers({ Accept: options.accept ?? "application/json" });
    if (options.body !== undefined) headers.set("Content-Type", "application/json");
    for (const [name, value] of Object.entries(options.headers ?? {})) {
      if (value !== undefined) headers.set(name, value);
    }
    const { identity } = this;
    if (identity.kind === "local" && identity.actor) headers.set("X-Actor-Ref", identity.actor);
    if (identity.kind === "link") headers.set("X-Share-Token", identity.token);
    if (identity.kind === "session" && identity.csrf && options.method && options.method !== "GET") {
      headers.set("X-CSRF-Token", identity.csrf);
    }
    return headers;
  }

  /** Sends a request; throws a `Problem` for an error status or a lost connection. */
  async send(path: string, options: RequestOptions = {}): Promise<Response> {
    const init: RequestInit = {
      method: options.method ?? "GET",
      headers: this.#headers(options),
      referrerPolicy: "no-referrer",
      cache: "no-store",
      redirect: "error",
      // Only sessions send cookies: an embedded page acts by its share link or as a public visitor.
      credentials: this.identity.kind === "session" ? "same-origin" : "omit",
    };
    if (options.body !== undefined) init.body = JSON.stringify(options.body);
    if (options.signal) init.signal = options.signal;
    let response: Response;
    try {
      response = await fetch(path, init);
    } catch (cause) {
      if (cause instanceof DOMException && cause.name === "AbortError") throw cause;
      throw unreachable();
    }
    if (!response.ok) throw await problemOf(response);
    return response;
  }

  /** Ends the session at Fairway. Returns the address at which the browser ends the identity provider's session too. */
  async signOut(): Promise<string> {
    const csrf = this.identity.kind === "session" ? this.identity.csrf : null;
    const response = await fetch("/sign-out", {
      method: "POST",
      headers: { Accept: "application/json" },
      body: new URLSearchParams({ csrf_token: csrf ?? "" }),
      referrerPolicy: "no-referrer",
      cache: "no-store",
      redirect: "error",
      credentials: "same-origin",
    });
    if (!response.ok) throw await problemOf(response);
    return ((await response.json()) as { location: string }).location;
  }

  /** Reads a JSON resource. */
  async get<T>(path: string, signal?: AbortSignal): Promise<T> {
    const response = await this.send(path, signal ? { signal } : {});
    try {
      return (await response.json()) as T;
    } catch {
      throw new Problem(response.status, "unreadable", "", response.headers.get("x-request-id"));
    }
  }
}

/** A random identifier of 128 bits. `crypto.randomUUID` is not used, because it requires a secure context (HTTPS). */
export function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
