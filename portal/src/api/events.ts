/** An event of a run's stream. */
export interface StreamEvent {
  id: string;
  event: string;
  data: string;
}

/** Parses server-sent events (WHATWG HTML, 9.2.6) from text that arrives in arbitrary pieces. */
export class EventParser {
  #rest = "";
  #id = "";
  #event = "";
  #data: string[] = [];

  /** Adds a piece of text, and returns the events that it completes. */
  push(text: string): StreamEvent[] {
    const events: StreamEvent[] = [];
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") {
        if (this.#data.length > 0) {
          events.push({ id: this.#id, event: this.#event || "message", data: this.#data.join("\n") });
        }
        this.#event = "";
        this.#data = [];
        continue;
      }
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (name === "id") this.#id = value;
      else if (name === "event") this.#event = value;
      else if (name === "data") this.#data.push(value);
    }
    return events;
  }
}

/** Reads the events of a response until it ends. */
export async function readEvents(response: Response, onEvent: (event: StreamEvent) => void): Promise<void> {
  const reader = response.body?.getReader();
  if (!reader) return;
  const decoder = new TextDecoder();
  const parser = new EventParser();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    parser.push(decoder.decode(value, { stream: true })).forEach(onEvent);
  }
}
