import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { apiPath } from "../../api/paths";
import type { Problem } from "../../api/problem";
import { ACTOR_PATTERN } from "../../session/pageAttributes";
import { accessPath, useConsole, useList, useRead, type Scope } from "../core/console";
import { useWorkloads } from "../core/resources";
import { PRINCIPAL_PATTERN, ROLES, type Schemas } from "../core/types";
import { useAddress } from "../core/useAddress";
import { useConsoleText, useValueText } from "../i18n";
import { Action, Commands, Empty, Failed, GuardedRowAction, Id, Loading, Time } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Field, FilterSelect, FilterText } from "../ui/Filters";
import { TabBar } from "../ui/TabBar";
import { Table } from "../ui/Table";
import { useTitle } from "../ui/useTitle";
import { VirtualTable } from "../ui/VirtualTable";
import { AllOperations } from "./AllOperations";
import { Erasures } from "./Erasures";
import { OPERATIONS } from "./operations";
import { EnvironmentSettings, TenantSettings } from "./Settings";
import { Tenants } from "./Tenants";

type Binding = Schemas["RoleBinding"];

/** The view of role bindings and access decisions in the workspace. */
export function Access() {
  const text = useConsoleText();
  useTitle(text("nav_access"));
  return (
    <>
      <h1>{text("nav_access")}</h1>
      <TabBar
        label={text("nav_access")}
        tabs={[
          { value: "bindings", label: text("tab_bindings"), content: () => <Bindings /> },
          { value: "can", label: text("tab_can"), content: () => <Can /> },
          { value: "roles", label: text("tab_roles"), content: () => <Roles /> },
          { value: "me", label: text("tab_me"), content: () => <Me /> },
          { value: "settings", label: text("tab_settings"), content: () => <TenantSettings /> },
          { value: "environments", label: text("tab_environments"), content: () => <EnvironmentSettings /> },
          { value: "erasures", label: text("tab_erasures"), content: () => <Erasures /> },
          { value: "tenants", label: text("tab_tenants"), content: () => <Tenants /> },
        ]}
      />
    </>
  );
}

function Bindings() {
  const text = useConsoleText();
  const valueText = useValueText();
  const { workspace } = useConsole();
  const { slugOf } = useWorkloads();
  const scope = { kind: "workspace", ref: workspace.workspace_id } as const;
  const path = apiPath("/v1/role-bindings", {}, { workspace_id: workspace.workspace_id, limit: "200" });
  const list = useList<Binding>(path, { refresh: true });
  const [open, setOpen] = useState<"new" | Binding | null>(null);
  return (
    <>
      <div className="buttons">
        <Action label={text("new_binding")} operation="create_role_binding" scope={scope} onClick={() => setOpen("new")} />
      </div>
      <VirtualTable
        label={text("tab_bindings")}
        list={list}
        keyOf={(one) => one.role_binding_id}
        empty={<Empty>{text("bindings_none")}</Empty>}
        columns={[
          { name: text("principal"), render: (one) => one.principal },
          { name: text("role"), render: (one) => valueText(one.role) },
          { name: text("scope"), render: (one) => <>{valueText(one.scope_kind)} {one.scope_ref && (slugOf(one.scope_ref) ?? <Id id={one.scope_ref} />)}</> },
          { name: text("created_by"), render: (one) => one.created_by },
          { name: text("time"), render: (one) => <Time value={one.created_at} /> },
          {
            name: text("action"),
            render: (one) => (
              <GuardedRowAction operation="delete_role_binding" scope={scope} label={text("take_back_confirm")} name={text("take_back", { role: valueText(one.role), name: one.principal })} onClick={() => setOpen(one)} />
            ),
          },
        ]}
      />
      <Commands items={[{ label: text("tab_bindings"), request: { method: "GET", path }, words: ["role-bindings", "list"] }]} />
      {open === "new" && <NewBinding onClose={() => setOpen(null)} />}
      {open !== null && open !== "new" && (
        <Dialog
          title={text("take_back", { role: valueText(open.role), name: open.principal })}
          confirm={text("take_back_confirm")}
          danger
          request={{ method: "DELETE", path: apiPath("/v1/role-bindings/{role_binding_id}", { role_binding_id: open.role_binding_id }) }}
          onClose={() => setOpen(null)}
        >
          <p>{text("take_back_text", { name: open.principal })}</p>
        </Dialog>
      )}
    </>
  );
}

function NewBinding({ onClose }: { onClose: () => void }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const { workspace, session } = useConsole();
  const { byId } = useWorkloads();
  const [principal, setPrincipal] = useState("");
  const [role, setRole] = useState<(typeof ROLES)[number]>("viewer");
  const [target, setTarget] = useState("workspace");
  const fits = PRINCIPAL_PATTERN.test(principal);
  const scope = target === "tenant" ? { scope_kind: "tenant", scope_ref: session.tenant_id } : target === "workspace" ? { scope_kind: "workspace", scope_ref: workspace.workspace_id } : { scope_kind: "workload", scope_ref: target };
  const roles = useRead<Schemas["Role"][]>(apiPath("/v1/roles", {}));
  const permissions = roles.data?.value.find((one) => one.role === role)?.permissions ?? [];
  return (
    <Dialog
      title={text("new_binding")}
      confirm={text("new_binding")}
      request={{ method: "POST", path: apiPath("/v1/role-bindings", {}), body: { principal, role, ...scope } }}
      blocked={fits ? null : text("principal_invalid")}
      onClose={onClose}
    >
      <Field label={text("principal")}>{(id) => <input id={id} value={principal} placeholder="user:ada" autoComplete="off" onChange={(event) => setPrincipal(event.target.value.trim())} />}</Field>
      <Field label={text("role")}>
        {(id) => (
          <select id={id} value={role} onChange={(event) => setRole(event.target.value as typeof role)}>
            {ROLES.map((one) => (
              <option key={one} value={one}>
                {valueText(one)}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field label={text("scope")}>
        {(id) => (
          <select id={id} value={target} onChange={(event) => setTarget(event.target.value)}>
            <option value="workspace">{text("scope_workspace", { name: workspace.name })}</option>
            <option value="tenant">{valueText("tenant")}</option>
            {[...byId.values()].map((workload) => (
              <option key={workload.workload_id} value={workload.workload_id}>
                {text("workload")} {workload.slug}
              </option>
            ))}
          </select>
        )}
      </Field>
      <p className="hint">{text("role_gives", { permissions: permissions.join(", ") || "…" })}</p>
    </Dialog>
  );
}

const PERSON_PATTERN = ACTOR_PATTERN.replace("|anonymous", "");

/** Shows the server's decision on an operation of a person, with the role that permits it. */
function Can() {
  const text = useConsoleText();
  const valueText = useValueText();
  const { client, session, workspace } = useConsole();
  const [search] = useAddress();
  const { byId, slugOf } = useWorkloads();
  const person = search["actor"] || session.actor;
  const operation = (OPERATIONS as readonly string[]).includes(search["operation"] ?? "") ? (search["operation"] ?? "") : "review_release";
  const workload = search["workload"] ?? "";
  const scope: Scope = byId.has(workload) ? { kind: "workload", ref: workload } : { kind: "workspace", ref: workspace.workspace_id };
  const path = accessPath(operation, scope, person === session.actor ? undefined : person);
  const answer = useQuery<Schemas["AccessExplanation"], Problem>({ queryKey: ["can", client.cacheKey, path], retry: false, queryFn: ({ signal }) => client.get(path, signal) });
  return (
    <>
      <form role="search" className="filters" onSubmit={(event) => event.preventDefault()}>
        <FilterText name="actor" label={text("person")} pattern={PERSON_PATTERN} placeholder={session.actor} />
        <FilterSelect name="operation" label={text("operation")} options={OPERATIONS} labelOf={(name) => name} />
        <FilterSelect name="workload" label={text("workload")} none={text("no_workload")} options={[...byId.keys()]} labelOf={(id) => slugOf(id) ?? id} />
      </form>
      {answer.error && <Failed problem={answer.error} />}
      {answer.isPending && <Loading what={text("tab_can")} />}
      {answer.data && (
        <div className={`notice ${answer.data.allowed ? "notice-good" : "notice-error"}`} role="status" data-testid="can">
          <p>
            <strong>
              {text(answer.data.allowed ? "can_yes" : "can_no", { name: person, operation })}
            </strong>
          </p>
          <p>{answer.data.permission ? text("can_permission", { permission: answer.data.permission }) : text("can_free")}</p>
          <ul>
            {answer.data.by.map((one) => (
              <li key={`${one.role} ${one.scope_kind} ${one.scope_ref}`}>{text("can_by", { role: valueText(one.role), scope: `${valueText(one.scope_kind)} ${one.scope_ref ?? ""}` })}</li>
            ))}
          </ul>
        </div>
      )}
      <AllOperations key={`${person} ${scope.kind} ${scope.ref}`} person={person} scope={scope} />
      <Commands items={[{ label: text("tab_can"), request: { method: "GET", path } }]} />
    </>
  );
}

function Roles() {
  const text = useConsoleText();
  const valueText = useValueText();
  const path = apiPath("/v1/roles", {});
  const roles = useRead<Schemas["Role"][]>(path);
  if (roles.error) return <Failed problem={roles.error} />;
  if (!roles.data) return <Loading what={text("tab_roles")} />;
  return (
    <>
      <Table
        label={text("tab_roles")}
        rows={roles.data.value}
        keyOf={(one) => one.role}
        columns={[
          { name: text("role"), render: (one) => valueText(one.role) },
          { name: text("permissions"), render: (one) => one.permissions.join(", ") },
        ]}
      />
      <Commands items={[{ label: text("tab_roles"), request: { method: "GET", path }, words: ["roles", "list"] }]} />
    </>
  );
}

function Me() {
  const text = useConsoleText();
  const valueText = useValueText();
  const { session } = useConsole();
  return (
    <>
      <p>{text("me_text", { actor: session.actor })}</p>
      <Table
        label={text("tab_me")}
        rows={session.roles}
        keyOf={(one) => `${one.role} ${one.scope_kind} ${one.scope_ref}`}
        empty={<Empty>{text("me_none")}</Empty>}
        columns={[
          { name: text("role"), render: (one) => valueText(one.role) },
          { name: text("scope"), render: (one) => <>{valueText(one.scope_kind)} {one.scope_ref && <Id id={one.scope_ref} />}</> },
        ]}
      />
      <p className="hint">{session.permissions.join(", ")}</p>
      <Commands items={[{ label: text("tab_me"), request: { method: "GET", path: apiPath("/v1/session", {}) }, words: ["whoami"] }]} />
    </>
  );
}
