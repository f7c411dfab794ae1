import { RouterProvider } from "@tanstack/react-router";
import { useEffect, useMemo } from "react";
import { useText } from "../i18n";
import type { PageInfo } from "../session/pageAttributes";
import { useIdentity } from "../session/useIdentity";
import { useConsoleText } from "./i18n";
import { makeRouter } from "./router";

/** The console for one identity. If the server has an identity provider, the console first requires a sign-in. */
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
      // Redirects to the sign-in only once for each tab, because a failing sign-in would cause an endless loop.
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
