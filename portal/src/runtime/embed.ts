import type { Json } from "../api/types";

/** Messages from the embedding page. */
export type HostMessage =
  | { type: "fairway:hello"; version: 1 }
  | { type: "fairway:setInputs"; inputs: Record<string, Json> }
  | { type: "fairway:reset" };

/** Messages to the embedding page. They never contain outputs or inputs. */
export type FrameMessage =
  | { type: "fairway:ready"; version: 1; slug: string }
  | { type: "fairway:height"; height: number }
  | { type: "fairway:ended"; executionId: string; status: string }
  | { type: "fairway:error"; code: string; requestId: string | null };

/** Whether an origin matches one of the `frame-ancestors` sources that may frame the page. */
export function isAllowedOrigin(origin: string, ancestors: readonly string[], ownOrigin: string): boolean {
  return ancestors.some((source) => {
    if (source === "'self'") return origin === ownOrigin;
    let url: URL;
    try {
      url = new URL(origin);
    } catch {
      return false;
    }
    const match = source.match(/^(https?:)\/\/(\*\.)?([A-Za-z0-9.-]+)(?::(\d+))?$/);
    if (!match || url.origin !== origin) return false;
    const [, scheme, wildcard, host = "", port] = match;
    const name = host.toLowerCase();
    const actualPort = url.port || (url.protocol === "https:" ? "443" : "80");
    const expected = port ?? (scheme === "https:" ? "443" : "80");
    const isHostMatch = wildcard ? url.hostname.endsWith(`.${name}`) : url.hostname === name;
    return url.protocol === scheme && isHostMatch && actualPort === expected;
  });
}

/** Space below the content, in CSS pixels. */
const MARGIN = 16;

/** The message channel to the embedding page. It opens when a permitted ancestor sends `fairway:hello`. */
export class EmbedChannel {
  #host: string | null = null;
  readonly #waiting = new Map<string, FrameMessage>();

  constructor(
    private readonly slug: string,
    private readonly ancestors: readonly string[],
    private readonly onMessage: (message: HostMessage) => void,
  ) {}

  /** Starts to listen for messages; returns the function that stops it. */
  open(): () => void {
    const listen = (event: MessageEvent) => this.#receive(event);
    window.addEventListener("message", listen);
    const main = document.querySelector("main");
    const observer = new ResizeObserver(() => {
      // Measures `main`, because the root element always fills the frame.
      const bottom = main?.getBoundingClientRect().bottom ?? 0;
      this.send({ type: "fairway:height", height: Math.ceil(bottom + scrollY) + MARGIN });
    });
    if (main) observer.observe(main);
    return () => {
      window.removeEventListener("message", listen);
      observer.disconnect();
    };
  }

  /** Sends a message to the origin that opened the channel. Before that, the newest message of each type is queued. */
  send(message: FrameMessage): void {
    if (window.parent === window) return;
    if (this.#host === null) this.#waiting.set(message.type, message);
    else window.parent.postMessage(message, this.#host);
  }

  #receive(event: MessageEvent): void {
    const message: unknown = event.data;
    if (event.source !== window.parent || !isAllowedOrigin(event.origin, this.ancestors, location.origin)) return;
    if (typeof message !== "object" || message === null) return;
    const { type } = message as { type?: unknown };
    if (type === "fairway:hello") {
      this.#host = event.origin;
      this.send({ type: "fairway:ready", version: 1, slug: this.slug });
      this.#waiting.forEach((waiting) => this.send(waiting));
      this.#waiting.clear();
    } else if (event.origin !== this.#host) {
      return;
    } else if (type === "fairway:reset") {
      this.onMessage({ type });
    } else if (type === "fairway:setInputs") {
      const { inputs } = message as { inputs?: unknown };
      if (typeof inputs === "object" && inputs !== null && !Array.isArray(inputs)) {
        this.onMessage({ type, inputs: inputs as Record<string, Json> });
      }
    }
  }
}
