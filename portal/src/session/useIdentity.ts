import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Client, type Identity } from "../api/client";
import { apiPath } from "../api/paths";
import { Problem } from "../api/problem";
import type { Session } from "../api/types";
import { storeActor, storedActor, type PageInfo } from "./pageAttributes";

export interface PageIdentity {
  /** Null until the session is known. */
  client: Client | null;
  session: Session | null;
  /** Whether the caller has no identity of its own, so that the server stores no conversations for it. */
  isGuest: boolean;
  /** Whether the session is being read. */
  isPending: boolean;
  actAs: (actor: string) => void;
}

/** The identity of the page: a share link, else (in local mode) the local actor, else the session of the browser. */
export function useIdentity(page: PageInfo, token: string | null): PageIdentity {
  const [actor, setActor] = useState(storedActor);
  const isLocal = page.authMode === "local";
  // Reads no session in an embedded page, because browsers send no cookies for it.
  const readsSession = token === null && page.kind !== "embed";
  const reader = useMemo(() => new Client(isLocal ? { kind: "local", actor } : { kind: "session", csrf: null }), [isLocal, actor]);
  const session = useQuery({
    queryKey: ["session", reader.cacheKey],
    enabled: readsSession,
    retry: false,
    queryFn: async ({ signal }) => {
      try {
        return await reader.get<Session>(apiPath("/v1/session", {}), signal);
      } catch (problem) {
        // A caller without an identity uses the page as an anonymous visitor.
        if (problem instanceof Problem && (problem.status === 401 || problem.status === 403)) return null;
        throw problem;
      }
    },
  });
  const csrf = session.data?.csrf_token ?? null;
  const client = useMemo(() => {
    const identity: Identity =
      token !== null ? { kind: "link", token } : isLocal ? { kind: "local", actor } : { kind: "session", csrf };
    return new Client(identity);
  }, [token, isLocal, actor, csrf]);
  const isKnown = !readsSession || isLocal || !session.isPending;
  const isGuest = token !== null || actor === "anonymous" || (!isLocal && !session.data);
  return {
    client: isKnown ? client : null,
    session: session.data ?? null,
    isGuest,
    isPending: readsSession && session.isPending,
    actAs: (name) => {
      storeActor(name);
      setActor(name || null);
    },
  };
}
