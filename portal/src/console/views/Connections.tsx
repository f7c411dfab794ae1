import { useState } from "react";
import { apiPath } from "../../api/paths";
import { useConsole, useList, useRead } from "../core/console";
import type { Schemas } from "../core/types";
import { useConsoleText, useValueText } from "../i18n";
import { Action, Commands, Empty, Failed, GuardedRowAction, RowAction, Tag, Time } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Field, Filters, FilterSelect, NoteField } from "../ui/Filters";
import { TabBar } from "../ui/TabBar";
import { Table } from "../ui/Table";
import { useTitle } from "../ui/useTitle";
import { VirtualTable } from "../ui/VirtualTable";
import { useAddress } from "../core/useAddress";

type Connection = Schemas["Connection"];
type Request = Schemas["AccessRequest"];
const KINDS = ["http", "postgres", "s3", "smtp", "other"] as const;

/** The list of connections to other systems with their health, and of requests for access to them. */
export function Connections() {
  const text = useConsoleText();
  useTitle(text("nav_connections"));
  return (
    <>
      <h1>{text("nav_connections")}</h1>
      <TabBar
        label={text("nav_connections")}
        tabs={[
          { value: "connections", label: text("nav_connections"), content: () => <ConnectionList /> },
          { value: "requests", label: text("access_requests"), content: () => <Requests /> },
        ]}
      />
    </>
  );
}

function ConnectionList() {
  const text = useConsoleText();
  const valueText = useValueText();
  const { workspace } = useConsole();
  const workspace_id = workspace.workspace_id;
  const scope = { kind: "workspace", ref: workspace_id } as const;
  const path = apiPath("/v1/connections", {}, { workspace_id, limit: "200" });
  const list = useList<Connection>(path, { refresh: true });
  const [open, setOpen] = useState<{ kind: "new" } | { kind: "check" | "delete" | "history"; one: Connection } | null>(null);
  const pathParameters = (one: Connection) => ({ connection_id: one.connection_id });
  return (
    <>
      <div className="buttons">
        <Action label={text("new_connection")} operation="create_connection" scope={scope} onClick={() => setOpen({ kind: "new" })} />
      </div>
      <VirtualTable
        label={text("nav_connections")}
        list={list}
        keyOf={(one) => one.connection_id}
        empty={<Empty>{text("connections_empty")}</Empty>}
        columns={[
          { name: text("name"), render: (one) => one.name },
          { name: text("kind"), render: (one) => valueText(one.connector_kind) },
          { name: text("state"), render: (one) => <Tag value={one.status} /> },
          { name: text("health"), render: (one) => <><Tag value={one.health} /> {one.health_code ?? ""}</> },
          { name: text("checked"), render: (one) => <Time value={one.checked_at} /> },
          { name: text("expires"), render: (one) => <Time value={one.expires_at} /> },
          {
            name: text("action"),
            render: (one) => (
              <span className="buttons">
                <GuardedRowAction operation="check_connection" scope={scope} label={text("check")} name={text("check_named", { name: one.name })} onClick={() => setOpen({ kind: "check", one })} />
                <RowAction label={text("checks")} name={text("history_named", { name: one.name })} onClick={() => setOpen({ kind: "history", one })} />
                <GuardedRowAction operation="delete_connection" scope={scope} label={text("delete")} name={text("delete_named", { name: one.name })} onClick={() => setOpen({ kind: "delete", one })} />
              </span>
            ),
          },
        ]}
      />
      {open?.kind === "history" && <Checks one={open.one} />}
      <Commands items={[{ label: text("nav_connections"), request: { method: "GET", path }, words: ["connections", "list"] }]} />
      {open?.kind === "new" && <NewConnection workspace={workspace_id} onClose={() => setOpen(null)} />}
      {open?.kind === "check" && (
        <Dialog
          title={text("check_named", { name: open.one.name })}
          confirm={text("check")}
          request={{ method: "POST", path: apiPath("/v1/connections/{connection_id}/check", pathParameters(open.one), { workspace_id }), body: {} }}
          onClose={() => setOpen(null)}
        >
          <p>{text("check_text")}</p>
        </Dialog>
      )}
      {open?.kind === "delete" && (
        <Dialog
          title={text("delete_named", { name: open.one.name })}
          confirm={text("delete")}
          danger
          request={{ method: "DELETE", path: apiPath("/v1/connections/{connection_id}", pathParameters(open.one), { workspace_id }) }}
          onClose={() => setOpen(null)}
        >
          <p>{text("delete_connection_text")}</p>
        </Dialog>
      )}
    </>
  );
}

function Checks({ one }: { one: Connection }) {
  const text = useConsoleText();
  const { workspace } = useConsole();
  const detail = useRead<Schemas["ConnectionDetail"]>(apiPath("/v1/connections/{connection_id}", { connection_id: one.connection_id }, { workspace_id: workspace.workspace_id }), { refresh: true });
  if (detail.error) return <Failed problem={detail.error} />;
  return (
    <Table
      label={text("history_named", { name: one.name })}
      rows={detail.data?.value.checks ?? []}
      keyOf={(check) => check.connection_check_id}
      empty={<Empty>{text("checks_empty")}</Empty>}
      columns={[
        { name: text("health"), render: (check) => <Tag value={check.health} /> },
        { name: text("reason"), render: (check) => check.health_code ?? "" },
        { name: text("time"), render: (check) => <Time value={check.checked_at} /> },
        { name: text("by"), render: (check) => check.checked_by },
      ]}
    />
  );
}

function NewConnection({ workspace, onClose }: { workspace: string; onClose: () => void }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const [name, setName] = useState("");
  const [kind, setKind] = useState<(typeof KINDS)[number]>("http");
  const [endpoint, setEndpoint] = useState("");
  const body = { name: name.trim(), connector_kind: kind, ...(endpoint.trim() ? { endpoint: endpoint.trim() } : {}) };
  return (
    <Dialog
      title={text("new_connection")}
      confirm={text("new_connection")}
      request={{ method: "POST", path: apiPath("/v1/connections", {}, { workspace_id: workspace }), body }}
      blocked={name.trim() ? null : text("name_needed")}
      onClose={onClose}
    >
      <Field label={text("name")}>{(id) => <input id={id} maxLength={100} value={name} onChange={(event) => setName(event.target.value)} />}</Field>
      <Field label={text("kind")}>
        {(id) => (
          <select id={id} value={kind} onChange={(event) => setKind(event.target.value as typeof kind)}>
            {KINDS.map((one) => (
              <option key={one} value={one}>
                {valueText(one)}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field label={text("endpoint")}>{(id) => <input id={id} value={endpoint} placeholder="https://crm.example.org" onChange={(event) => setEndpoint(event.target.value)} />}</Field>
    </Dialog>
  );
}

function Requests() {
  const text = useConsoleText();
  const { workspace } = useConsole();
  const [search] = useAddress();
  const workspace_id = workspace.workspace_id;
  const path = apiPath("/v1/access-requests", {}, { workspace_id, status: search["status"], limit: "200" });
  const list = useList<Request>(path, { refresh: true });
  const [chosen, setChosen] = useState<Request | null>(null);
  return (
    <>
      <Filters names={["status"]}>
        <FilterSelect name="status" label={text("state")} options={["pending", "granted", "denied", "withdrawn"]} />
      </Filters>
      {chosen && <Decide request={chosen} onDone={() => setChosen(null)} />}
      <VirtualTable
        label={text("access_requests")}
        list={list}
        keyOf={(request) => request.access_request_id}
        empty={<Empty>{text("requests_empty")}</Empty>}
        columns={[
          { name: text("connection"), render: (request) => request.connection_name },
          { name: text("state"), render: (request) => <Tag value={request.status} /> },
          { name: text("requested_by"), render: (request) => request.requested_by },
          { name: text("time"), render: (request) => <Time value={request.created_at} /> },
          { name: text("by"), render: (request) => request.decided_by ?? "–" },
          { name: text("reason"), render: (request) => request.reason ?? "" },
          {
            name: text("action"),
            render: (request) =>
              request.status === "pending" && (
                <RowAction label={text("decide")} name={text("decide_on", { name: request.connection_name })} onClick={() => setChosen(request)} />
              ),
          },
        ]}
      />
      <Commands items={[{ label: text("access_requests"), request: { method: "GET", path }, words: ["access-requests", "list"] }]} />
    </>
  );
}

function Decide({ request, onDone }: { request: Request; onDone: () => void }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const { workspace } = useConsole();
  const workspace_id = workspace.workspace_id;
  const scope = { kind: "workspace", ref: workspace_id } as const;
  const [open, setOpen] = useState<"grant" | "deny" | null>(null);
  const [kind, setKind] = useState<(typeof KINDS)[number]>("other");
  const [endpoint, setEndpoint] = useState("");
  const [reason, setReason] = useState("");
  const pathParameters = { access_request_id: request.access_request_id };
  return (
    <>
      <p>{text("decide_text", { name: request.connection_name, by: request.requested_by })}</p>
      <div className="buttons">
        <Action label={text("grant")} tone="primary" operation="grant_access_request" scope={scope} onClick={() => setOpen("grant")} />
        <Action label={text("deny")} tone="danger" operation="deny_access_request" scope={scope} onClick={() => setOpen("deny")} />
      </div>
      {open === "grant" && (
        <Dialog
          title={text("grant")}
          confirm={text("grant")}
          request={{ method: "POST", path: apiPath("/v1/access-requests/{access_request_id}/grant", pathParameters, { workspace_id }), body: { connector_kind: kind, ...(endpoint.trim() ? { endpoint: endpoint.trim() } : {}) } }}
          onClose={() => setOpen(null)}
          onDone={onDone}
        >
          <p>{text("grant_text")}</p>
          <Field label={text("kind")}>
            {(id) => (
              <select id={id} value={kind} onChange={(event) => setKind(event.target.value as typeof kind)}>
                {KINDS.map((one) => (
                  <option key={one} value={one}>
                    {valueText(one)}
                  </option>
                ))}
              </select>
            )}
          </Field>
          <Field label={text("endpoint")}>{(id) => <input id={id} value={endpoint} onChange={(event) => setEndpoint(event.target.value)} />}</Field>
        </Dialog>
      )}
      {open === "deny" && (
        <Dialog
          title={text("deny")}
          confirm={text("deny")}
          danger
          request={{ method: "POST", path: apiPath("/v1/access-requests/{access_request_id}/deny", pathParameters, { workspace_id }), body: reason.trim() ? { reason: reason.trim() } : {} }}
          onClose={() => setOpen(null)}
          onDone={onDone}
        >
          <p>{text("deny_text")}</p>
          <NoteField label={text("reason")} value={reason} onChange={setReason} />
        </Dialog>
      )}
    </>
  );
}
