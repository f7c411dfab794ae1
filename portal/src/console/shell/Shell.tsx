import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useRouteContext } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState } from "react";
import { apiPath } from "../../api/paths";
import { Problem } from "../../api/problem";
import { useText } from "../../i18n";
import { ErrorBoundary } from "../../ui/ErrorBoundary";
import { ProblemNotice } from "../../ui/ProblemNotice";
import { useAddress } from "../core/useAddress";
import { ConsoleContext, useConsole, useList, type Console } from "../core/console";
import type { Workspace } from "../core/types";
import { useConsoleText } from "../i18n";
import { Identity } from "./Identity";
import { Palette } from "./Palette";
import { VIEWS } from "./views";

/** The layout of all views: navigation, workspace, identity and the command palette. */
export function Shell() {
  const text = useConsoleText();
  const shared = useText();
  const { client, session, actAs } = useRouteContext({ from: "__root__" });
  const [search, change] = useAddress();
  const [isOpen, setOpen] = useState(false);
  const main = useRef<HTMLElement>(null);
  const workspaces = useQuery<Workspace[], Problem>({
    queryKey: ["workspaces", client.cacheKey],
    retry: false,
    queryFn: ({ signal }) => client.get(apiPath("/v1/workspaces", {}, { limit: "200" }), signal),
  });
  // The address may contain the slug of a workspace, or its identifier in links of notifications.
  const requestedWorkspace = workspaces.data?.find(({ slug, workspace_id: id }) => slug === search["workspace"] || id === search["workspace"]);
  const workspace = requestedWorkspace ?? workspaces.data?.find(({ slug }) => slug === "default") ?? workspaces.data?.[0];
  const isUnknown = Boolean(search["workspace"] && workspaces.data && !requestedWorkspace);
  const context = useMemo<Console | null>(
    () => (session && workspace ? { client, session, workspace, workspaces: workspaces.data ?? [], actAs } : null),
    [client, session, workspace, workspaces.data, actAs],
  );
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setOpen(true);
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  return (
    <div className="shell">
      <button type="button" className="skip" onClick={() => main.current?.focus()}>
        {text("skip")}
      </button>
      <header className="bar">
        <Link to="/" className="brand">
          Fairway
        </Link>
        {(workspaces.data?.length ?? 0) > 0 && (
          <div className="inline-field">
            <label htmlFor="workspace">{text("workspace")}</label>
            <select id="workspace" value={workspace?.slug ?? ""} onChange={(event) => change({ workspace: event.target.value })}>
              {workspaces.data?.map(({ workspace_id: id, slug, name }) => (
                <option key={id} value={slug}>
                  {name}
                </option>
              ))}
            </select>
          </div>
        )}
        <button type="button" className="plain" disabled={!context} onClick={() => setOpen(true)}>
          {text("palette_open")} <kbd>{text("palette_keys")}</kbd>
        </button>
        <Identity client={client} session={session} onActAs={actAs} />
      </header>
      <nav aria-label={text("navigation")} className="nav">
        <ul>
          {VIEWS.map(({ to, key }) => (
            <li key={to}>
              <Link to={to} activeOptions={{ exact: to === "/", includeSearch: false }} activeProps={{ "aria-current": "page" }}>
                {text(key)}
                {key === "nav_notifications" && context && (
                  <ConsoleContext value={context}>
                    <Unread />
                  </ConsoleContext>
                )}
              </Link>
            </li>
          ))}
          <li>
            <a href="/workload-runtime">{text("nav_gallery")}</a>
          </li>
        </ul>
      </nav>
      <main ref={main} tabIndex={-1} className="view">
        {!context && !workspaces.isPending && <h1>Fairway</h1>}
        {workspaces.error && <ProblemNotice problem={workspaces.error} onRetry={() => void workspaces.refetch()} />}
        {workspaces.isPending && <p role="status">{shared("loading")}</p>}
        {workspaces.data?.length === 0 && <p>{text("no_workspace")}</p>}
        {isUnknown && <p className="notice notice-wait">{text("unknown_workspace")}</p>}
        {!session && workspaces.data && <p className="notice notice-wait">{text("no_identity")}</p>}
        {context && (
          <ConsoleContext value={context}>
            <ErrorBoundary fallback={<p role="alert">{text("view_failed")}</p>}>
              <Outlet />
            </ErrorBoundary>
            {isOpen && <Palette onClose={() => setOpen(false)} />}
          </ConsoleContext>
        )}
      </main>
    </div>
  );
}

/** Shows the number of unread notifications. */
function Unread() {
  const text = useConsoleText();
  const { session } = useConsole();
  const allowed = session.permissions.includes("notification.read");
  const { total } = useList(allowed ? apiPath("/v1/notifications/inbox", {}, { status: "unread", limit: "1" }) : null, { refresh: true });
  return total ? (
    <span className="badge" title={text("unread_count", { count: total })}>
      <span aria-hidden>{total}</span>
      <span className="unseen">{text("unread_count", { count: total })}</span>
    </span>
  ) : null;
}

export function NotFound() {
  const text = useConsoleText();
  return (
    <>
      <h1>{text("not_found_title")}</h1>
      <p>{text("not_found")}</p>
    </>
  );
}
