import { RouterProvider } from "@tanstack/react-router";
import { useEffect, useMemo } from "react";
import { useText } from "../i18n";
import type { PageInfo } from "../session/page";
import { useIdentity } from "../session/useIdentity";
import { useConsoleText } from "./i18n";
import { makeRouter } from "./router";

/** The console for one identity. In a server with an identity provider it asks for a sign-in first. */
export function App({ page }: { page: PageInfo }) {
  const text = useText();
  const say = useConsoleText();
  const { client, session, isPending, actAs } = useIdentity(page, null);
  const router = useMemo(makeRouter, []);
  const needsSignIn = client !== null && page.authMode !== "local" && !session;
  const target = `/sign-in?return_to=${encodeURIComponent(location.pathname + location.search)}`;
  useEffect(() => {
    if (!needsSignIn) return;
    try {
      // Once for a tab: a sign-in that fails must not lead here again without end.
      if (sessionStorage.getItem("fairway.signing-in")) return;
      sessionStorage.setItem("fairway.signing-in", "1");
    } catch {
      return;
    }
    location.assign(target);
  }, [needsSignIn, target]);
  useEffect(() => {
    if (session) sessionStorage.removeItem("fairway.signing-in");
  }, [session]);
  if (needsSignIn) {
    return (
      <main className="alone">
        <h1>Fairway</h1>
        <p>{say("sign_in_needed")}</p>
        <p>
          <a href={target}>{text("sign_in")}</a>
        </p>
      </main>
    );
  }
  if (!client || isPending) return <p role="status">{text("loading")}</p>;
  return <RouterProvider router={router} context={{ client, session, actAs }} key={client.cacheKey} />;
}
