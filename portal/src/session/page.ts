/** What the server says about the page, from the root element. */
export interface PageInfo {
  kind: "gallery" | "runtime" | "embed";
  slug: string | null;
  authMode: string;
  /** The sources that may frame an embedded page, as in `frame-ancestors`. */
  ancestors: string[];
}

export function readPage(root: HTMLElement): PageInfo {
  const { page, slug, auth, ancestors } = root.dataset;
  return {
    kind: page === "embed" || page === "runtime" ? page : "gallery",
    slug: slug ?? null,
    authMode: auth ?? "local",
    ancestors: (ancestors ?? "").split(" ").filter(Boolean),
  };
}

/** Takes the share token out of the address, so that neither history nor `Referer` carries it. It stays in the tab. */
export function takeShareToken(page: PageInfo): string | null {
  const key = `fairway.link ${page.slug ?? ""}`;
  const address = new URL(location.href);
  let token = address.searchParams.get("token");
  // A text that no header can carry is no token; the server refuses the shorter one in the same way.
  if (token !== null && !/^[\x21-\x7e]{1,200}$/.test(token)) token = "malformed";
  if (token !== null) {
    address.searchParams.delete("token");
    history.replaceState(history.state, "", address);
  }
  try {
    if (token) sessionStorage.setItem(key, token);
    return token || (page.slug ? sessionStorage.getItem(key) : null);
  } catch {
    return token;
  }
}

/** The actors that a page in local mode may act as. */
export const ACTOR_PATTERN = "(user|service):[a-z0-9][a-z0-9._@+\\-]{0,126}|anonymous";

/** The actor that a page in local mode acts as; null for the local user. */
export function storedActor(): string | null {
  try {
    const actor = localStorage.getItem("fairway.actor");
    return actor !== null && new RegExp(`^(?:${ACTOR_PATTERN})$`).test(actor) ? actor : null;
  } catch {
    return null;
  }
}

export function storeActor(actor: string): void {
  try {
    if (actor) localStorage.setItem("fairway.actor", actor);
    else localStorage.removeItem("fairway.actor");
  } catch {
    // Without storage the choice lasts until the next page.
  }
}
