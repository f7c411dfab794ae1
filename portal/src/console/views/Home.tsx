import { useQueries } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState, type ReactNode } from "react";
import { apiPath } from "../../api/paths";
import { REFRESH_MS, useConsole, useList } from "../core/console";
import { useWorkloads } from "../core/resources";
import type { Execution, Release, Schemas, Workload } from "../core/types";
import { useConsoleText } from "../i18n";
import { Commands, Empty, Failed, Section, shortId, Tag, Time } from "../ui/basics";
import { useTitle } from "../ui/useTitle";
import { percent } from "./Rollout";

const SHOWN = "20";
/** Credentials that expire within this time are listed, in milliseconds. */
const EXPIRY_MS = 14 * 86_400_000;

/** The start view: tasks that wait for the caller, failures, and recent changes. The lists refresh automatically. */
export function Home() {
  const text = useConsoleText();
  const { workspace, session } = useConsole();
  const { slugOf } = useWorkloads();
  useTitle(text("nav_home"));
  const workspace_id = workspace.workspace_id;
  const can = (permission: string) => session.permissions.includes(permission);
  const [since] = useState(() => new Date(Math.floor(Date.now() / 60_000) * 60_000 - 86_400_000).toISOString());
  const live = { refresh: true };
  const inReview = useList<Release>(can("release.view") ? apiPath("/v1/releases", {}, { workspace_id, state: "review_ready", limit: SHOWN }) : null, live);
  const drafts = useList<Release>(can("release.view") ? apiPath("/v1/releases", {}, { workspace_id, state: "draft", limit: SHOWN }) : null, live);
  const newest = useList<Release>(can("release.view") ? apiPath("/v1/releases", {}, { workspace_id, limit: SHOWN }) : null, live);
  const active = useList<Release>(can("release.view") ? apiPath("/v1/releases", {}, { workspace_id, state: "active", limit: SHOWN }) : null, live);
  const reviews = useList<Execution>(can("execution.view") ? apiPath("/v1/executions", {}, { review: "pending", limit: SHOWN }) : null, live);
  const failed = useList<Execution>(can("execution.view") ? apiPath("/v1/executions", {}, { status: "failed", since, limit: SHOWN }) : null, live);
  const requests = useList<Schemas["AccessRequest"]>(can("connection.read") ? apiPath("/v1/access-requests", {}, { workspace_id, status: "pending", limit: SHOWN }) : null, live);
  const connections = useList<Schemas["Connection"]>(can("connection.read") ? apiPath("/v1/connections", {}, { workspace_id, limit: "200" }) : null, live);
  const cases = useList<Schemas["UseCase"]>(can("workload.view") ? apiPath("/v1/use-cases", {}, { workspace_id, status: "draft", limit: SHOWN }) : null, live);
  const suspended = useList<Workload>(can("workload.view") ? apiPath("/v1/workloads", {}, { workspace_id, status: "suspended", limit: SHOWN }) : null, live);
  const advised = useAdvised(active.rows);
  const name = (release: Release) => `${slugOf(release.workload_id) ?? shortId(release.workload_id)}@${release.environment}`;
  const releaseLink = (release: Release) => (
    <Link to="/releases/$id" params={{ id: release.release_id }}>
      {name(release)}
    </Link>
  );
  const runLink = (run: Execution) => (
    <Link to="/runs/$id" params={{ id: run.execution_id }}>
      {run.workload_slug ?? run.workload_id}@{run.environment}
    </Link>
  );
  const waiting: Entry[] = [
    ...(can("release.approve") ? inReview.rows : [])
      .filter((release) => release.created_by !== session.actor)
      .map((release) => ({ key: release.release_id, what: text("wait_approval"), link: releaseLink(release), by: release.created_by, at: release.updated_at })),
    ...(can("release.approve") ? reviews.rows : [])
      .filter((run) => run.submitted_by !== session.actor)
      .map((run) => ({ key: run.execution_id, what: text("wait_review"), link: runLink(run), by: run.submitted_by, at: run.started_at })),
    ...(can("access_request.grant") ? requests.rows : []).map((request) => ({
      key: request.access_request_id,
      what: text("wait_access"),
      link: <Link to="/connections" search={{ tab: "requests" } as never}>{request.connection_name}</Link>,
      by: request.requested_by,
      at: request.created_at,
    })),
    ...drafts.rows
      .filter((release) => release.created_by === session.actor)
      .map((release) => ({ key: release.release_id, what: text("wait_draft"), link: releaseLink(release), by: text("you"), at: release.updated_at })),
    ...cases.rows
      .filter((one) => one.created_by === session.actor)
      .map((one) => ({ key: one.use_case_id, what: text("wait_use_case"), link: <Link to="/use-cases/$id" params={{ id: one.use_case_id }}>{one.name}</Link>, by: text("you"), at: one.updated_at })),
  ];
  const wrong: Entry[] = [
    ...advised.map(({ release, advice }) => ({ key: `advice ${release.release_id}`, what: text("wrong_advice", { rate: percent(advice.error_rate) }), link: releaseLink(release), by: release.created_by, at: release.updated_at })),
    ...suspended.rows.map((workload) => ({ key: workload.workload_id, what: text("wrong_suspended"), link: <Link to="/workloads/$id" params={{ id: workload.workload_id }}>{workload.slug}</Link>, by: workload.owner_ref, at: workload.updated_at })),
    ...connections.rows
      .filter((one) => one.expires_at && Date.parse(one.expires_at) < Date.now() + EXPIRY_MS)
      .map((one) => ({ key: one.connection_id, what: text("wrong_expiry"), link: <Link to="/connections">{one.name}</Link>, by: one.created_by, at: one.expires_at ?? "" })),
    ...connections.rows
      .filter((one) => one.health === "unhealthy")
      .map((one) => ({ key: `${one.connection_id} health`, what: text("wrong_unhealthy"), link: <Link to="/connections">{one.name}</Link>, by: one.created_by, at: one.checked_at ?? "" })),
    ...failed.rows.map((run) => ({ key: run.execution_id, what: `${text("wrong_failed")} ${run.error?.code ?? ""}`, link: runLink(run), by: run.submitted_by, at: run.started_at })),
  ];
  const problem = [inReview, reviews, failed, requests, connections].find((one) => one.problem)?.problem ?? null;
  return (
    <>
      <h1>{text("nav_home")}</h1>
      {problem && <Failed problem={problem} />}
      {[inReview, drafts, reviews, failed, requests, connections, cases, suspended].some((one) => one.hasMore) && <p className="hint">{text("home_more", { count: SHOWN })}</p>}
      <Section title={text("home_waiting")}>
        {!can("release.approve") && <p className="hint">{text("home_no_approvals")} {text("needs_permission", { permission: "release.approve" })}</p>}
        <Entries entries={waiting} empty={text("home_waiting_empty")} label={text("home_waiting")} />
      </Section>
      <Section title={text("home_wrong")}>
        {!can("execution.view") && <p className="hint">{text("home_no_runs")} {text("needs_permission", { permission: "execution.view" })}</p>}
        <Entries entries={wrong} empty={text(can("execution.view") ? "home_wrong_empty" : "home_wrong_unseen")} label={text("home_wrong")} />
      </Section>
      <Section title={text("home_changed")}>
        {!can("release.view") && <Empty>{text("needs_permission", { permission: "release.view" })}</Empty>}
        <ul className="entries">
          {newest.rows.map((release) => (
            <li key={release.release_id}>
              <Tag value={release.state} /> {releaseLink(release)} <span className="hint">{release.created_by}, <Time value={release.updated_at} /></span>
            </li>
          ))}
        </ul>
        {can("release.view") && !newest.isPending && newest.rows.length === 0 && <Empty>{text("releases_empty")}</Empty>}
      </Section>
      <Commands
        items={[
          { label: text("wait_approval"), request: { method: "GET", path: apiPath("/v1/releases", {}, { workspace_id, state: "review_ready" }) }, words: ["releases", "list", "--state", "review_ready"] },
          { label: text("wait_review"), request: { method: "GET", path: apiPath("/v1/executions", {}, { review: "pending" }) }, words: ["reviews", "list"] },
          { label: text("wrong_failed"), request: { method: "GET", path: apiPath("/v1/executions", {}, { status: "failed", since }) }, words: ["executions", "list", "--status", "failed", "--since", "24h"] },
        ]}
      />
    </>
  );
}

interface Entry {
  key: string;
  what: string;
  link: ReactNode;
  by: string;
  at: string;
}

function Entries({ entries, empty, label }: { entries: readonly Entry[]; empty: string; label: string }) {
  if (entries.length === 0) return <Empty>{empty}</Empty>;
  return (
    <ul className="entries" aria-label={label}>
      {entries.map(({ key, what, link, by, at }) => (
        <li key={key}>
          <strong>{what}</strong> {link} <span className="hint">{by}, {at && <Time value={at} />}</span>
        </li>
      ))}
    </ul>
  );
}

/** The active releases for which the server recommends a rollback. */
function useAdvised(releases: readonly Release[]) {
  const { client } = useConsole();
  const answers = useQueries({
    queries: releases.map((release) => {
      const path = apiPath("/v1/releases/{release_id}/rollback-recommendation", { release_id: release.release_id });
      return {
        queryKey: ["advice", client.cacheKey, path],
        refetchInterval: REFRESH_MS * 3,
        retry: false,
        queryFn: ({ signal }: { signal: AbortSignal }): Promise<Schemas["RollbackRecommendation"]> => client.get(path, signal),
      };
    }),
  });
  return releases.flatMap((release, index) => {
    const advice = (answers[index]?.data ?? null) as Schemas["RollbackRecommendation"] | null;
    return advice?.recommended ? [{ release, advice }] : [];
  });
}

