import { useState } from "react";
import { apiPath } from "../../api/paths";
import { useList } from "../core/console";
import { LANES, PRINCIPAL_PATTERN, type Schemas, type Workload } from "../core/types";
import { useConsoleText, useValueText } from "../i18n";
import { Action, Commands, Empty, GuardedRowAction, Time } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Field } from "../ui/Filters";
import { VirtualTable } from "../ui/VirtualTable";

type Binding = Schemas["PrincipalBinding"];

/** The principals that may run a workload, each with its lane. */
export function Principals({ workload }: { workload: Workload }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const { workload_id } = workload;
  const scope = { kind: "workload", ref: workload_id } as const;
  const base = apiPath("/v1/workloads/{workload_id}/principal-bindings", { workload_id });
  const path = `${base}?limit=200`;
  const list = useList<Binding>(path, { refresh: true });
  const [open, setOpen] = useState<{ kind: "set"; one: Binding | null } | { kind: "remove"; one: Binding } | null>(null);
  return (
    <>
      <p className="hint">{text("principals_text")}</p>
      <div className="buttons">
        <Action label={text("bind_principal")} operation="set_principal_binding" scope={scope} onClick={() => setOpen({ kind: "set", one: null })} />
      </div>
      <VirtualTable
        label={text("principals")}
        list={list}
        keyOf={(one) => one.principal_binding_id}
        empty={<Empty>{text("principals_empty")}</Empty>}
        columns={[
          { name: text("principal"), render: (one) => one.principal },
          { name: text("lane"), render: (one) => (one.lane ? valueText(one.lane) : text("lane_default")) },
          { name: text("by"), render: (one) => one.updated_by },
          { name: text("changed"), render: (one) => <Time value={one.updated_at} /> },
          {
            name: text("action"),
            render: (one) => (
              <span className="buttons">
                <GuardedRowAction operation="set_principal_binding" scope={scope} label={text("change")} name={text("change_named", { name: one.principal })} onClick={() => setOpen({ kind: "set", one })} />
                <GuardedRowAction operation="delete_principal_binding" scope={scope} label={text("delete")} name={text("delete_named", { name: one.principal })} onClick={() => setOpen({ kind: "remove", one })} />
              </span>
            ),
          },
        ]}
      />
      <Commands items={[{ label: text("principals"), request: { method: "GET", path } }]} />
      {open?.kind === "set" && <SetDialog path={base} one={open.one} onClose={() => setOpen(null)} />}
      {open?.kind === "remove" && (
        <Dialog
          title={text("delete_named", { name: open.one.principal })}
          confirm={text("delete")}
          danger
          request={{ method: "DELETE", path: apiPath("/v1/workloads/{workload_id}/principal-bindings/{principal}", { workload_id, principal: open.one.principal }) }}
          onClose={() => setOpen(null)}
        >
          <p>{text("remove_principal_text", { name: open.one.principal })}</p>
        </Dialog>
      )}
    </>
  );
}

function SetDialog({ path, one, onClose }: { path: string; one: Binding | null; onClose: () => void }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const [principal, setPrincipal] = useState(one?.principal ?? "");
  const [lane, setLane] = useState<string>(one?.lane ?? "");
  const fits = PRINCIPAL_PATTERN.test(principal);
  return (
    <Dialog
      title={text("bind_principal")}
      confirm={text("bind_principal")}
      request={{ method: "PUT", path, body: { principal, lane: lane || null } }}
      blocked={fits ? null : text("principal_invalid")}
      onClose={onClose}
    >
      <p>{text("bind_principal_text")}</p>
      <Field label={text("principal")}>{(id) => <input id={id} value={principal} readOnly={one !== null} placeholder="user:ada" autoComplete="off" onChange={(event) => setPrincipal(event.target.value.trim())} />}</Field>
      <Field label={text("lane")}>
        {(id) => (
          <select id={id} value={lane} onChange={(event) => setLane(event.target.value)}>
            <option value="">{text("lane_default")}</option>
            {LANES.map((name) => (
              <option key={name} value={name}>
                {valueText(name)}
              </option>
            ))}
          </select>
        )}
      </Field>
    </Dialog>
  );
}
