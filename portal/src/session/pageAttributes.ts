/** The server's data about the page, from the attributes of the root element. */
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

/** Moves the share token from the address to the tab's storage, so that history and `Referer` do not contain it. */
export function takeShareToken(page: PageInfo): string | null {
  const key = `fairway.link ${page.slug ?? ""}`;
  const address = new URL(location.href);
  let token = address.searchParams.get("token");
  // Replaces a text that is invalid in a header. The server refuses the replacement like any invalid token.
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

/** The form of actors that a page in local mode may act as. */
export const ACTOR_PATTERN = "(user|service):[a-z0-9][a-z0-9._@+\\-]{0,126}|anonymous";

/** The stored actor that a page in local mode acts as; null for the default local user. */
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
    // Ignores unavailable storage: the choice then applies only until the next page load.
  }
}
