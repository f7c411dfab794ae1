/** The state of a view in the query of its address. All values are plain texts, which a person can read and change. */
export type Search = Record<string, string>;

export function parseSearch(text: string): Search {
  return Object.fromEntries([...new URLSearchParams(text)].filter(([, value]) => value !== ""));
}

/** Serializes the state of a view with sorted keys, so that equal states have equal addresses. */
export function stringifySearch(search: Record<string, unknown>): string {
  const pairs = Object.entries(search).filter((pair): pair is [string, string] => typeof pair[1] === "string" && pair[1] !== "");
  pairs.sort(([left], [right]) => (left < right ? -1 : 1));
  return pairs.length === 0 ? "" : `?${new URLSearchParams(pairs)}`;
}

/** The named filters of an address for a request. Other members of the address are ignored. */
export function filtersOf(search: Search, names: readonly string[]): Record<string, string | undefined> {
  return Object.fromEntries(names.map((name) => [name, search[name] || undefined]));
}

/** Converts a period before now, such as `24h` or `7d`, to its start. Returns an absolute time unchanged. */
export function sinceOf(text: string | undefined, now: number): string | undefined {
  if (!text) return undefined;
  const match = /^(\d{1,4})(m|h|d)$/.exec(text);
  if (match) {
    const unit = { m: 60_000, h: 3_600_000, d: 86_400_000 }[match[2] as "m" | "h" | "d"];
    // Rounds to whole minutes, so that the request does not change with every rendering.
    return new Date(Math.floor((now - Number(match[1]) * unit) / 60_000) * 60_000).toISOString();
  }
  const time = Date.parse(text);
  return Number.isNaN(time) ? undefined : new Date(time).toISOString();
}
