import { useState } from "react";
import { apiPath } from "../../api/paths";
import { useChange, useConsole, useList, useRead, randomId } from "../core/console";
import { useWorkloads } from "../core/resources";
import type { Schemas } from "../core/types";
import { useAddress } from "../core/useAddress";
import { useConsoleText, useValueText } from "../i18n";
import { ProblemNotice } from "../../ui/ProblemNotice";
import { Commands, Empty, Failed, Id, Loading, Tag, Time } from "../ui/basics";
import { Filters, FilterSelect } from "../ui/Filters";
import { TabBar } from "../ui/TabBar";
import { useTitle } from "../ui/useTitle";
import { VirtualTable } from "../ui/VirtualTable";
import { CATEGORIES } from "./preferences";
import { Announce } from "./Announce";
import { Defaults } from "./Defaults";
import { Deliveries } from "./Deliveries";
import { Destinations } from "./Destinations";
import { NotificationProfile } from "./NotificationProfile";
import { PreferenceMatrix } from "./PreferenceMatrix";

/** The view of notifications: inbox, preferences, destinations and deliveries. */
export function Notifications() {
  const text = useConsoleText();
  useTitle(text("nav_notifications"));
  return (
    <>
      <h1>{text("nav_notifications")}</h1>
      <TabBar
        label={text("nav_notifications")}
        tabs={[
          { value: "inbox", label: text("tab_inbox"), content: () => <Inbox /> },
          { value: "preferences", label: text("tab_preferences"), content: () => <Preferences /> },
          { value: "destinations", label: text("tab_destinations"), content: () => <Destinations /> },
          { value: "deliveries", label: text("tab_deliveries"), content: () => <Deliveries /> },
          { value: "profile", label: text("tab_profile"), content: () => <NotificationProfile /> },
          { value: "defaults", label: text("tab_defaults"), content: () => <Defaults /> },
          { value: "announce", label: text("tab_announce"), content: () => <Announce /> },
          { value: "suppressed", label: text("tab_suppressed"), content: () => <Suppressed /> },
        ]}
      />
    </>
  );
}

const INBOX = ["status", "category"] as const;

function Inbox() {
  const text = useConsoleText();
  const [search] = useAddress();
  const [key, setKey] = useState(randomId);
  const change = useChange(key);
  const path = apiPath("/v1/notifications/inbox", {}, { status: search["status"], category: search["category"], limit: "200" });
  const list = useList<Schemas["Notification"]>(path, { refresh: true });
  const set = (id: string, status: "read" | "unread" | "archived") => change.mutate({ method: "PATCH", path: apiPath("/v1/notifications/inbox/{notification_id}", { notification_id: id }), body: { status } });
  const readAll = { method: "POST", path: apiPath("/v1/notifications/inbox/read-all", {}), body: {} } as const;
  return (
    <>
      <Filters names={INBOX}>
        <FilterSelect name="status" label={text("state")} options={["unread", "read", "archived"]} />
        <FilterSelect name="category" label={text("category")} options={CATEGORIES} />
      </Filters>
      <div className="buttons">
        <button type="button" className="plain" onClick={() => change.mutate(readAll, { onSettled: () => setKey(randomId()) })}>
          {text("read_all")}
        </button>
      </div>
      {change.error && <ProblemNotice problem={change.error} />}
      <VirtualTable
        label={text("tab_inbox")}
        list={list}
        keyOf={(one) => one.notification_id}
        empty={<Empty>{text("inbox_empty")}</Empty>}
        columns={[
          { name: text("state"), render: (one) => <Tag value={one.status} /> },
          { name: text("severity"), render: (one) => <Tag value={one.severity} /> },
          {
            name: text("message"),
            render: (one) => (
              <>
                <strong dir="auto">{one.link ? <a href={one.link}>{one.title}</a> : one.title}</strong>
                <br />
                <span className="hint" dir="auto">
                  {one.body}
                </span>
              </>
            ),
          },
          { name: text("time"), render: (one) => <Time value={one.created_at} /> },
          {
            name: text("action"),
            render: (one) => (
              <span className="buttons">
                <button type="button" className="plain" onClick={() => set(one.notification_id, one.status === "unread" ? "read" : "unread")}>
                  {text(one.status === "unread" ? "mark_read" : "mark_unread")}
                </button>
                {one.status !== "archived" && (
                  <button type="button" className="plain" onClick={() => set(one.notification_id, "archived")}>
                    {text("archive")}
                  </button>
                )}
              </span>
            ),
          },
        ]}
      />
      <Commands
        items={[
          { label: text("tab_inbox"), request: { method: "GET", path }, words: ["notifications", "inbox"] },
          { label: text("read_all"), request: readAll, words: ["notifications", "mark", "all"] },
        ]}
      />
    </>
  );
}

/** The preference matrix of the scope that is selected in the address. */
function Preferences() {
  const text = useConsoleText();
  const { workspace } = useConsole();
  const [search] = useAddress();
  const { byId, slugOf } = useWorkloads();
  const workload = search["workload"] && byId.has(search["workload"]) ? search["workload"] : null;
  const environments = useRead<string[]>(
    workload ? apiPath("/v1/notifications/workspaces/{workspace_id}/workloads/{workload_id}/environments", { workspace_id: workspace.workspace_id, workload_id: workload }) : null,
  );
  const environment = workload ? (search["environment"] ?? null) : null;
  const level = search["scope"] === "workspace" || workload ? "workspace" : "global";
  const scopeName = level === "global" ? text("scope_global") : text("scope_workspace", { name: workspace.name });
  const scope = workload ? `${slugOf(workload) ?? workload}${environment ? `@${environment}` : ""}` : scopeName;
  return (
    <>
      <Filters names={["scope", "workload", "environment"]}>
        <FilterSelect name="scope" label={text("scope")} none={text("scope_global")} options={["workspace"]} labelOf={() => text("scope_workspace", { name: workspace.name })} />
        <FilterSelect name="workload" label={text("workload")} none={text("no_workload")} options={[...byId.keys()]} labelOf={(id) => slugOf(id) ?? id} />
        {workload && <FilterSelect name="environment" label={text("environment")} none={text("no_environment")} options={environments.data?.value ?? []} labelOf={(name) => name} />}
      </Filters>
      {environments.isLoading && <Loading what={text("environment")} />}
      {environments.error && <Failed problem={environments.error} />}
      <PreferenceMatrix key={`${level} ${workload} ${environment}`} scope={scope} workspace={level === "workspace" ? workspace.workspace_id : null} workload={workload} environment={environment} />
    </>
  );
}

/** The suppressed notifications, with the setting that suppressed each. */
function Suppressed() {
  const text = useConsoleText();
  const valueText = useValueText();
  const { workspace } = useConsole();
  const path = apiPath("/v1/notifications/suppressed-decisions", {}, { workspace_id: workspace.workspace_id, limit: "200" });
  const list = useList<Schemas["SuppressedDecision"]>(path, { refresh: true });
  return (
    <>
      <p>{text("suppressed_text")}</p>
      <VirtualTable
        label={text("tab_suppressed")}
        list={list}
        keyOf={(one) => one.suppressed_decision_id}
        empty={<Empty>{text("suppressed_empty")}</Empty>}
        columns={[
          { name: text("recipient"), render: (one) => one.recipient },
          { name: text("category"), render: (one) => valueText(one.category) },
          { name: text("reason"), render: (one) => valueText(one.reason_code) },
          { name: text("scope"), render: (one) => (one.scope ? valueText(one.scope) : "–") },
          { name: text("event"), render: (one) => one.source_event.kind },
          { name: text("time"), render: (one) => <Time value={one.created_at} /> },
          { name: text("digest"), render: (one) => <Id id={one.record_digest} /> },
        ]}
      />
      <Commands items={[{ label: text("tab_suppressed"), request: { method: "GET", path }, words: ["notifications", "suppressed"] }]} />
    </>
  );
}

