import { useState } from "react";
import { apiPath } from "../../api/paths";
import { useConsole, useList } from "../core/console";
import type { Schemas } from "../core/types";
import { useAddress } from "../core/useAddress";
import { useConsoleText, useValueText } from "../i18n";
import { Action, Commands, Empty, GuardedRowAction, Tag, Time } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Field, Filters, FilterSelect } from "../ui/Filters";
import { VirtualTable } from "../ui/VirtualTable";

type Destination = Schemas["Destination"];
const TYPES = ["email", "chat_a", "chat_b", "chat_c", "paging", "webhook"] as const;

/** The destinations of notifications of a workspace or of the organization. Secrets are references, never values. */
export function Destinations() {
  const text = useConsoleText();
  const valueText = useValueText();
  const { workspace, session } = useConsole();
  const [search] = useAddress();
  const isOrganization = search["scope"] === "organization";
  const workspace_id = workspace.workspace_id;
  const base = isOrganization ? apiPath("/v1/notifications/organization/destinations", {}) : apiPath("/v1/notifications/workspaces/{workspace_id}/destinations", { workspace_id });
  const scope = isOrganization ? ({ kind: "tenant", ref: session.tenant_id } as const) : ({ kind: "workspace", ref: workspace_id } as const);
  const operation = (verb: string) => `${verb}_${isOrganization ? "organization" : "workspace"}_destination`;
  const path = `${base}?limit=200`;
  const list = useList<Destination>(path);
  const [open, setOpen] = useState<{ kind: "new" } | { kind: "toggle" | "delete" | "test"; one: Destination } | null>(null);
  const [tested, setTested] = useState<{ name: string; result: Schemas["DestinationTest"] } | null>(null);
  const pathOf = (one: Destination) => `${base}/${encodeURIComponent(one.destination_id)}`;
  return (
    <>
      <Filters names={["scope"]}>
        <FilterSelect name="scope" label={text("scope")} none={text("scope_workspace", { name: workspace.name })} options={["organization"]} />
      </Filters>
      <div className="buttons">
        <Action label={text("new_destination")} operation={operation("create")} scope={scope} onClick={() => setOpen({ kind: "new" })} />
      </div>
      {tested && (
        <p className={`notice ${tested.result.status === "sent" ? "notice-good" : "notice-error"}`} role="status" data-testid="tested">
          {tested.result.status === "sent"
            ? text("test_sent", { name: tested.name, ms: tested.result.duration_ms })
            : text("test_failed", { name: tested.name, error: tested.result.error ?? "–", status: tested.result.response_status ?? "–" })}
        </p>
      )}
      <VirtualTable
        label={text("tab_destinations")}
        list={list}
        keyOf={(one) => one.destination_id}
        empty={<Empty>{text("destinations_empty")}</Empty>}
        columns={[
          { name: text("name"), render: (one) => one.display_name },
          { name: text("kind"), render: (one) => valueText(one.destination_type) },
          { name: text("state"), render: (one) => <Tag value={one.is_enabled ? "on" : "off"} /> },
          { name: text("secret"), render: (one) => text(one.has_secret_ref ? "yes" : "no") },
          { name: text("changed"), render: (one) => <Time value={one.updated_at} /> },
          {
            name: text("action"),
            render: (one) => (
              <span className="buttons">
                <GuardedRowAction
                  operation={operation("change")}
                  scope={scope}
                  label={text(one.is_enabled ? "off_short" : "on_short")}
                  name={text(one.is_enabled ? "turn_off" : "turn_on", { name: one.display_name })}
                  onClick={() => setOpen({ kind: "toggle", one })}
                />
                <GuardedRowAction operation={operation("test")} scope={scope} label={text("test")} name={text("test_named", { name: one.display_name })} onClick={() => setOpen({ kind: "test", one })} />
                <GuardedRowAction operation={operation("delete")} scope={scope} label={text("delete")} name={text("delete_named", { name: one.display_name })} onClick={() => setOpen({ kind: "delete", one })} />
              </span>
            ),
          },
        ]}
      />
      <Commands items={[{ label: text("tab_destinations"), request: { method: "GET", path }, words: ["notifications", "destinations", "list", ...(isOrganization ? ["--organization"] : [])] }]} />
      {open?.kind === "new" && <NewDestination path={base} onClose={() => setOpen(null)} />}
      {open?.kind === "toggle" && (
        <Dialog
          title={text(open.one.is_enabled ? "turn_off" : "turn_on", { name: open.one.display_name })}
          confirm={text("change")}
          request={{ method: "PATCH", path: pathOf(open.one), body: { is_enabled: !open.one.is_enabled } }}
          onClose={() => setOpen(null)}
        >
          <p>{text(open.one.is_enabled ? "turn_off_text" : "turn_on_text")}</p>
        </Dialog>
      )}
      {open?.kind === "test" && (
        <Dialog
          title={text("test_named", { name: open.one.display_name })}
          confirm={text("test")}
          request={{ method: "POST", path: `${pathOf(open.one)}/test` }}
          onClose={() => setOpen(null)}
          onDone={(result) => setTested({ name: open.one.display_name, result: result as Schemas["DestinationTest"] })}
        >
          <p>{text("test_text")}</p>
        </Dialog>
      )}
      {open?.kind === "delete" && (
        <Dialog title={text("delete_named", { name: open.one.display_name })} confirm={text("delete")} danger request={{ method: "DELETE", path: pathOf(open.one) }} onClose={() => setOpen(null)}>
          <p>{text("delete_destination_text")}</p>
        </Dialog>
      )}
    </>
  );
}

function NewDestination({ path, onClose }: { path: string; onClose: () => void }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const [name, setName] = useState("");
  const [type, setType] = useState<(typeof TYPES)[number]>("webhook");
  const [target, setTarget] = useState("");
  const [secret, setSecret] = useState("");
  const metadata = type === "email" ? { to: target.trim() } : { url: target.trim() };
  const body = { display_name: name.trim(), destination_type: type, ...(target.trim() ? { redacted_metadata: metadata } : {}), ...(secret.trim() ? { secret_ref: secret.trim() } : {}) };
  return (
    <Dialog title={text("new_destination")} confirm={text("new_destination")} request={{ method: "POST", path, body }} blocked={name.trim() ? null : text("name_needed")} onClose={onClose}>
      <Field label={text("name")}>{(id) => <input id={id} maxLength={100} value={name} onChange={(event) => setName(event.target.value)} />}</Field>
      <Field label={text("kind")}>
        {(id) => (
          <select id={id} value={type} onChange={(event) => setType(event.target.value as typeof type)}>
            {TYPES.map((one) => (
              <option key={one} value={one}>
                {valueText(one)}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field label={text(type === "email" ? "address" : "url")}>{(id) => <input id={id} value={target} onChange={(event) => setTarget(event.target.value)} />}</Field>
      <Field label={text("secret_ref")} hint={text("secret_hint")}>
        {(id) => <input id={id} value={secret} placeholder="env:CHAT_HOOK" onChange={(event) => setSecret(event.target.value)} />}
      </Field>
    </Dialog>
  );
}
