/** The state of a view in its address: plain texts, so that a person can read and change it. */
export type Search = Record<string, string>;

export function parseSearch(text: string): Search {
  return Object.fromEntries([...new URLSearchParams(text)].filter(([, value]) => value !== ""));
}

/** Keys are sorted, so that the same state has the same address. */
export function stringifySearch(search: Record<string, unknown>): string {
  const pairs = Object.entries(search).filter((pair): pair is [string, string] => typeof pair[1] === "string" && pair[1] !== "");
  pairs.sort(([left], [right]) => (left < right ? -1 : 1));
  return pairs.length === 0 ? "" : `?${new URLSearchParams(pairs)}`;
}

/** Only the named filters, for a request; an address may carry others. */
export function filtersOf(search: Search, names: readonly string[]): Record<string, string | undefined> {
  return Object.fromEntries(names.map((name) => [name, search[name] || undefined]));
}

/** The start of a period such as `24h` or `7d` before now; an absolute time stays. */
export function sinceOf(text: string | undefined, now: number): string | undefined {
  if (!text) return undefined;
  const match = /^(\d{1,4})(m|h|d)$/.exec(text);
  if (match) {
    const unit = { m: 60_000, h: 3_600_000, d: 86_400_000 }[match[2] as "m" | "h" | "d"];
    // Whole minutes, so that the address of a page stays the same while it is read.
    return new Date(Math.floor((now - Number(match[1]) * unit) / 60_000) * 60_000).toISOString();
  }
  const time = Date.parse(text);
  return Number.isNaN(time) ? undefined : new Date(time).toISOString();
}
