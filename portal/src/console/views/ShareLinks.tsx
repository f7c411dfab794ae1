import { useState } from "react";
import { apiPath } from "../../api/paths";
import { CopyButton } from "../../ui/CopyButton";
import { useList } from "../core/console";
import type { Schemas, Workload } from "../core/types";
import { useConsoleText } from "../i18n";
import { Action, Commands, Empty, GuardedRowAction, Tag, Time } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Field } from "../ui/Filters";
import { VirtualTable } from "../ui/VirtualTable";

type Link = Schemas["ShareLink"];

/** The share links of a workload. The address of a new link is shown only once. */
export function ShareLinks({ workload }: { workload: Workload }) {
  const text = useConsoleText();
  const { workload_id, slug } = workload;
  const scope = { kind: "workload", ref: workload_id } as const;
  const path = apiPath("/v1/workloads/{workload_id}/share-links", { workload_id }, { limit: "200" });
  const list = useList<Link>(path, { refresh: true });
  const [open, setOpen] = useState<Link | "new" | null>(null);
  const [address, setAddress] = useState<string | null>(null);
  const [label, setLabel] = useState("");
  const [hours, setHours] = useState("24");
  const fits = /^\d{1,5}$/.test(hours) && Number(hours) > 0;
  const stateOf = (link: Link) => (link.revoked ? "revoked" : Date.parse(link.expires_at) <= Date.now() ? "expired" : link.use_count >= link.max_uses ? "exhausted" : "active");
  return (
    <>
      <div className="buttons">
        <Action label={text("new_link")} operation="create_share_link" scope={scope} onClick={() => setOpen("new")} />
      </div>
      {address && (
        <div className="notice" role="status" data-testid="new-link">
          <p>{text("link_once")}</p>
          <pre tabIndex={0} aria-label={text("new_link")} className="wrap">
            {address}
          </pre>
          <CopyButton value={address} />
        </div>
      )}
      <VirtualTable
        label={text("share_links")}
        list={list}
        keyOf={(link) => link.share_link_id}
        empty={<Empty>{text("links_empty")}</Empty>}
        columns={[
          { name: text("label"), render: (link) => link.label ?? "–" },
          { name: text("state"), render: (link) => <Tag value={stateOf(link)} /> },
          { name: text("uses"), render: (link) => `${link.use_count} / ${link.max_uses}` },
          { name: text("expires"), render: (link) => <Time value={link.expires_at} /> },
          { name: text("created_by"), render: (link) => link.created_by },
          {
            name: text("action"),
            render: (link) =>
              stateOf(link) === "active" && (
                <GuardedRowAction operation="revoke_share_link" scope={scope} label={text("revoke")} name={text("revoke_named", { name: link.label ?? link.share_link_id })} onClick={() => setOpen(link)} />
              ),
          },
        ]}
      />
      <Commands items={[{ label: text("share_links"), request: { method: "GET", path }, words: ["share-links", "list", slug] }]} />
      {open === "new" && (
        <Dialog
          title={text("new_link")}
          confirm={text("new_link")}
          request={{
            method: "POST",
            path: apiPath("/v1/workloads/{workload_id}/share-links", { workload_id }),
            body: { ttl_hours: fits ? Number(hours) : 24, ...(label.trim() ? { label: label.trim() } : {}) },
          }}
          blocked={fits ? null : text("hours_invalid")}
          onClose={() => setOpen(null)}
          onDone={(made) => {
            const { token } = made as Schemas["MadeShareLink"];
            setAddress(token ? `${location.origin}/workload-runtime/${encodeURIComponent(slug)}?token=${encodeURIComponent(token)}` : null);
          }}
        >
          <p>{text("new_link_text")}</p>
          <Field label={text("label")}>{(id) => <input id={id} maxLength={100} value={label} onChange={(event) => setLabel(event.target.value)} />}</Field>
          <Field label={text("hours")}>{(id) => <input id={id} inputMode="numeric" value={hours} onChange={(event) => setHours(event.target.value.trim())} />}</Field>
        </Dialog>
      )}
      {open !== null && open !== "new" && (
        <Dialog
          title={text("revoke_named", { name: open.label ?? open.share_link_id })}
          confirm={text("revoke")}
          danger
          request={{ method: "DELETE", path: apiPath("/v1/workloads/{workload_id}/share-links/{link_id}", { workload_id, link_id: open.share_link_id }) }}
          onClose={() => setOpen(null)}
        >
          <p>{text("revoke_text")}</p>
        </Dialog>
      )}
    </>
  );
}
