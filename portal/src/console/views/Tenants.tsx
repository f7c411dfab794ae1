import { useState } from "react";
import { apiPath } from "../../api/paths";
import { useList } from "../core/console";
import type { Schemas } from "../core/types";
import { useConsoleText } from "../i18n";
import { Action, Commands, Empty, Id, Time } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Field } from "../ui/Filters";
import { VirtualTable } from "../ui/VirtualTable";

/** The list of all organizations (tenants) of the server. */
export function Tenants() {
  const text = useConsoleText();
  const path = apiPath("/v1/tenants", {}, { limit: "200" });
  const list = useList<Schemas["Tenant"]>(path, { refresh: true });
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <div className="buttons">
        <Action label={text("new_tenant")} operation="create_tenant" scope={{ kind: "platform" }} onClick={() => setOpen(true)} />
      </div>
      <VirtualTable
        label={text("tab_tenants")}
        list={list}
        keyOf={(one) => one.tenant_id}
        empty={<Empty>{text("tenants_empty")}</Empty>}
        columns={[
          { name: text("name"), render: (one) => <span dir="auto">{one.name}</span> },
          { name: text("slug"), render: (one) => <code>{one.slug}</code> },
          { name: text("identifier"), render: (one) => <Id id={one.tenant_id} /> },
          { name: text("created_by"), render: (one) => one.created_by },
          { name: text("time"), render: (one) => <Time value={one.created_at} /> },
        ]}
      />
      <Commands items={[{ label: text("tab_tenants"), request: { method: "GET", path } }]} />
      {isOpen && <NewTenant onClose={() => setOpen(false)} />}
    </>
  );
}

function NewTenant({ onClose }: { onClose: () => void }) {
  const text = useConsoleText();
  const [slug, setSlug] = useState("");
  const [name, setName] = useState("");
  const blocked = !/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(slug) ? text("slug_invalid") : name.trim() ? null : text("name_needed");
  return (
    <Dialog title={text("new_tenant")} confirm={text("new_tenant")} request={{ method: "POST", path: apiPath("/v1/tenants", {}), body: { slug, name: name.trim() } }} blocked={blocked} onClose={onClose}>
      <p>{text("new_tenant_text")}</p>
      <Field label={text("slug")}>{(id) => <input id={id} value={slug} maxLength={63} autoComplete="off" spellCheck={false} onChange={(event) => setSlug(event.target.value.trim())} />}</Field>
      <Field label={text("name")}>{(id) => <input id={id} value={name} maxLength={200} onChange={(event) => setName(event.target.value)} />}</Field>
    </Dialog>
  );
}
