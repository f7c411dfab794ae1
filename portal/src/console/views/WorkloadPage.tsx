import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { apiPath } from "../../api/paths";
import { useConsole, useList, useRead, type WithEntityTag } from "../core/console";
import { cost, duration } from "../core/format";
import type { Execution, Release, ReleaseDetail, Schemas, Workload } from "../core/types";
import { useId } from "../core/useAddress";
import { useConsoleText, useValueText } from "../i18n";
import { Action, Commands, Empty, Facts, Failed, Id, Loading, Section, Tag, Time } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { TabBar } from "../ui/TabBar";
import { Table } from "../ui/Table";
import { useTitle } from "../ui/useTitle";
import { VirtualTable } from "../ui/VirtualTable";
import { InterfaceEditor } from "./InterfaceEditor";
import { Principals } from "./Principals";
import { NewReleaseDialog } from "./ReleaseBinding";
import { runColumns } from "./runColumns";
import { ShareLinks } from "./ShareLinks";

/** The view of a workload: its lanes, releases, runs, share links, and its suspension. */
export function WorkloadPage() {
  const id = useId();
  const text = useConsoleText();
  const path = apiPath("/v1/workloads/{workload_id}", { workload_id: id });
  const read = useRead<Workload>(path, { refresh: true });
  if (read.error && !read.data) {
    return (
      <>
        <h1>{text("workload")}</h1>
        <Failed problem={read.error} onRetry={() => void read.refetch()} />
      </>
    );
  }
  if (!read.data) return <Loading what={text("workload")} />;
  return <WorkloadView read={read.data} />;
}

function WorkloadView({ read }: { read: WithEntityTag<Workload> }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const navigate = useNavigate();
  const workload = read.value;
  const workload_id = workload.workload_id;
  const scope = { kind: "workload", ref: workload_id } as const;
  const [open, setOpen] = useState<"suspend" | "resume" | "release" | null>(null);
  useTitle(workload.name || workload.slug);
  const isSuspended = workload.status === "suspended";
  return (
    <>
      <h1>
        <span dir="auto">{workload.name || workload.slug}</span> <Tag value={workload.status} />
      </h1>
      <p dir="auto">{workload.description}</p>
      <Facts
        items={[
          [text("slug"), <code key="s">{workload.slug}</code>],
          [text("owner"), workload.owner_ref],
          [text("mode"), valueText(workload.invocation_mode)],
          [text("access_mode"), valueText(workload.interface_config?.access_mode ?? "authenticated")],
          [text("runtime_page"), <a key="p" href={`/workload-runtime/${encodeURIComponent(workload.slug)}`}>{text("open_page")}</a>],
          [text("identifier"), <Id key="i" id={workload_id} />],
        ]}
      />
      <div className="buttons">
        {isSuspended ? (
          <Action label={text("resume")} tone="primary" operation="change_workload_status" scope={scope} onClick={() => setOpen("resume")} />
        ) : (
          <Action
            label={text("suspend")}
            tone="danger"
            operation="change_workload_status"
            scope={scope}
            blocked={workload.status === "retired" ? text("is_retired") : null}
            onClick={() => setOpen("suspend")}
          />
        )}
        <Action label={text("new_release")} operation="create_release" scope={scope} onClick={() => setOpen("release")} />
      </div>
      <TabBar
        label={workload.slug}
        tabs={[
          { value: "overview", label: text("tab_overview"), content: () => <Overview workload={workload} /> },
          { value: "releases", label: text("nav_releases"), content: () => <ReleaseTab workload={workload_id} /> },
          { value: "runs", label: text("nav_runs"), content: () => <RunTab workload={workload} /> },
          { value: "interface", label: text("interface"), content: () => <InterfaceEditor key={workload_id} read={read} /> },
          { value: "links", label: text("share_links"), content: () => <ShareLinks workload={workload} /> },
          { value: "principals", label: text("principals"), content: () => <Principals workload={workload} /> },
        ]}
      />
      <Commands
        items={[
          { label: text("workload"), request: { method: "GET", path: apiPath("/v1/workloads/{workload_id}", { workload_id }) }, words: ["workloads", "show", workload.slug] },
          {
            label: text(isSuspended ? "resume" : "suspend"),
            request: { method: "PATCH", path: apiPath("/v1/workloads/{workload_id}", { workload_id }), ifMatch: read.etag, body: { status: isSuspended ? "registered" : "suspended" } },
            words: ["workloads", isSuspended ? "resume" : "suspend", workload.slug],
          },
        ]}
      />
      {(open === "suspend" || open === "resume") && <StatusDialog read={read} to={open === "suspend" ? "suspended" : "registered"} onClose={() => setOpen(null)} />}
      {open === "release" && (
        <NewReleaseDialog
          workload={workload_id}
          onClose={() => setOpen(null)}
          onDone={(made) => void navigate({ to: "/releases/$id", params: { id: (made as Release).release_id } })}
        />
      )}
    </>
  );
}

/** The dialog that suspends or resumes a workload, and shows the affected runs. */
function StatusDialog({ read, to, onClose }: { read: WithEntityTag<Workload>; to: "suspended" | "registered"; onClose: () => void }) {
  const text = useConsoleText();
  const { workload_id, slug } = read.value;
  const stops = to === "suspended";
  const running = useRead<Execution[]>(stops ? apiPath("/v1/executions", {}, { workload_id, status: "running", limit: "200" }) : null);
  const queued = useRead<Execution[]>(stops ? apiPath("/v1/executions", {}, { workload_id, status: "queued", limit: "200" }) : null);
  const links = useRead<Schemas["ShareLink"][]>(stops ? apiPath("/v1/workloads/{workload_id}/share-links", { workload_id }, { limit: "200" }) : null);
  const count = (rows: unknown[] | undefined) => (rows === undefined ? "…" : rows.length >= 200 ? "200+" : String(rows.length));
  const usable = links.data?.value.filter((link) => !link.revoked && Date.parse(link.expires_at) > Date.now());
  return (
    <Dialog
      title={text(stops ? "suspend" : "resume")}
      confirm={text(stops ? "suspend" : "resume")}
      danger={stops}
      request={{ method: "PATCH", path: apiPath("/v1/workloads/{workload_id}", { workload_id }), body: { status: to }, ifMatch: read.etag }}
      onClose={onClose}
    >
      {stops ? (
        <ul data-testid="consequences">
          <li>{text("suspend_new", { slug })}</li>
          <li>{text("suspend_running", { count: count(running.data?.value) })}</li>
          <li>{text("suspend_queued", { count: count(queued.data?.value) })}</li>
          <li>{links.error ? text("suspend_links_unknown") : text("suspend_links", { count: count(usable) })}</li>
          <li>{text("suspend_undo")}</li>
        </ul>
      ) : (
        <p>{text("resume_text", { slug })}</p>
      )}
    </Dialog>
  );
}

function Overview({ workload }: { workload: Workload }) {
  const text = useConsoleText();
  const { workload_id } = workload;
  const path = apiPath("/v1/workloads/{workload_id}/releases", { workload_id }, { limit: "200" });
  const releases = useRead<Release[]>(path, { refresh: true });
  const environments = [...new Set((releases.data?.value ?? []).map(({ environment }) => environment))].sort();
  const [since] = useState(() => new Date(Math.floor(Date.now() / 60_000) * 60_000 - 7 * 86_400_000).toISOString());
  const usage = useRead<Schemas["Usage"][]>(apiPath("/v1/usage", {}, { workload_id, since, group_by: "day" }));
  return (
    <>
      <Section title={text("active_releases")}>
        {releases.error && <Failed problem={releases.error} />}
        {releases.data && environments.length === 0 && <Empty>{text("active_empty")}</Empty>}
        <ul className="cards">
          {environments.map((environment) => (
            <ActiveRelease key={environment} workload={workload_id} environment={environment} />
          ))}
        </ul>
      </Section>
      <Section title={text("usage")}>
        {usage.error && <Failed problem={usage.error} />}
        <Table
          label={text("usage")}
          rows={usage.data?.value ?? []}
          keyOf={(row) => row.day ?? ""}
          empty={<Empty>{text("usage_empty")}</Empty>}
          columns={[
            { name: text("day"), render: (row) => row.day ?? "" },
            { name: text("nav_runs"), render: (row) => row.runs },
            { name: text("error_rate"), render: (row) => (row.runs === 0 ? "–" : `${((100 * row.failures) / row.runs).toFixed(1)} %`) },
            { name: "p50", render: (row) => duration(row.p50_ms) },
            { name: "p95", render: (row) => duration(row.p95_ms) },
            { name: text("tokens"), render: (row) => `${row.tokens_in ?? 0} / ${row.tokens_out ?? 0}` },
            { name: text("cost"), render: (row) => cost(row.cost_micros) },
          ]}
        />
      </Section>
    </>
  );
}

function ActiveRelease({ workload, environment }: { workload: string; environment: string }) {
  const text = useConsoleText();
  const active = useRead<ReleaseDetail>(apiPath("/v1/workloads/{workload_id}/active-release", { workload_id: workload }, { environment }), { refresh: true });
  const release = active.data?.value;
  return (
    <li className="card">
      <h3>{environment}</h3>
      {release ? (
        <>
          <p>
            <Link to="/releases/$id" params={{ id: release.release_id }}>
              {text("release")} <Id id={release.release_id} />
            </Link>
          </p>
          <p className="hint">
            {release.created_by}, <Time value={release.updated_at} />
          </p>
        </>
      ) : (
        <p className="hint">{text(active.isPending ? "computing" : "no_active")}</p>
      )}
    </li>
  );
}

function ReleaseTab({ workload }: { workload: string }) {
  const text = useConsoleText();
  const list = useList<Release>(apiPath("/v1/workloads/{workload_id}/releases", { workload_id: workload }, { limit: "200" }), { refresh: true });
  return (
    <VirtualTable
      label={text("nav_releases")}
      list={list}
      keyOf={(release) => release.release_id}
      empty={<Empty>{text("releases_empty")}</Empty>}
      columns={[
        {
          name: text("release"),
          render: (release) => (
            <Link to="/releases/$id" params={{ id: release.release_id }}>
              {release.environment} <Id id={release.release_id} />
            </Link>
          ),
        },
        { name: text("state"), render: (release) => <Tag value={release.state} /> },
        { name: text("created_by"), render: (release) => release.created_by },
        { name: text("changed"), render: (release) => <Time value={release.updated_at} /> },
      ]}
    />
  );
}

function RunTab({ workload }: { workload: Workload }) {
  const text = useConsoleText();
  const { session } = useConsole();
  const list = useList<Execution>(apiPath("/v1/executions", {}, { workload_id: workload.workload_id, limit: "200" }), { refresh: true });
  return (
    <>
      <p>
        <Link to="/runs" search={{ workload_id: workload.workload_id } as never}>
          {text("filter_runs")}
        </Link>
      </p>
      <VirtualTable label={text("nav_runs")} list={list} keyOf={(run) => run.execution_id} empty={<Empty>{text("runs_empty")}</Empty>} columns={runColumns(text, session.actor, () => workload.slug)} />
    </>
  );
}
