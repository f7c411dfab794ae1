import { useState } from "react";
import { apiPath } from "../../api/paths";
import { useConsole, useList } from "../core/console";
import type { Schemas } from "../core/types";
import { useAddress } from "../core/useAddress";
import { useConsoleText, useValueText } from "../i18n";
import { Action, Commands, Empty, RowAction, Tag, Time } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Filters, FilterSelect } from "../ui/Filters";
import { VirtualTable } from "../ui/VirtualTable";

type Delivery = Schemas["Delivery"];
const STATES = ["pending", "claimed", "sent", "failed", "suppressed", "cancelled"] as const;

/** The deliveries of notifications outside the inbox, with their failures. A failed delivery can be retried. */
export function Deliveries() {
  const text = useConsoleText();
  const valueText = useValueText();
  const { workspace } = useConsole();
  const [search] = useAddress();
  const { workspace_id } = workspace;
  const status = search["status"];
  const path = apiPath("/v1/notifications/deliveries", {}, { workspace_id, status, destination_id: search["destination"], limit: "200" });
  const list = useList<Delivery>(path, { refresh: true });
  const [chosen, setChosen] = useState<Delivery | null>(null);
  const [isOpen, setOpen] = useState(false);
  const retry = (id: string) => apiPath("/v1/notifications/deliveries/{delivery_id}/retry", { delivery_id: id });
  return (
    <>
      <p>{text("deliveries_text")}</p>
      <Filters names={["status", "destination"]}>
        <FilterSelect name="status" label={text("state")} options={STATES} />
      </Filters>
      {chosen && (
        <div className="buttons">
          <Action label={text("retry_delivery")} tone="primary" operation="retry_delivery" scope={{ kind: "workspace", ref: chosen.workspace_id ?? workspace_id }} blocked={chosen.status === "failed" ? null : text("retry_only_failed")} onClick={() => setOpen(true)} />
        </div>
      )}
      <VirtualTable
        label={text("tab_deliveries")}
        list={list}
        keyOf={(one) => one.delivery_id}
        empty={<Empty>{text("deliveries_empty")}</Empty>}
        columns={[
          { name: text("state"), render: (one) => <Tag value={one.status} /> },
          { name: text("channel"), render: (one) => valueText(one.channel) },
          { name: text("recipient"), render: (one) => one.recipient ?? "–" },
          { name: text("event"), render: (one) => one.source_event.kind },
          { name: text("attempts"), render: (one) => one.attempt_count },
          { name: text("error"), render: (one) => `${one.last_error ?? ""} ${one.last_response_status ?? ""}`.trim() || "–" },
          { name: text("sent"), render: (one) => <Time value={one.sent_at ?? one.next_retry_at ?? null} /> },
          { name: text("time"), render: (one) => <Time value={one.created_at} /> },
          {
            name: text("action"),
            render: (one) => one.status === "failed" && <RowAction label={text("choose_short")} name={text("choose_named", { name: `${valueText(one.channel)} ${one.source_event.kind}` })} onClick={() => setChosen(one)} />,
          },
        ]}
      />
      <Commands
        items={[
          { label: text("tab_deliveries"), request: { method: "GET", path }, words: ["notifications", "deliveries", ...(status ? ["--status", status] : [])] },
          ...(chosen ? [{ label: text("retry_delivery"), request: { method: "POST", path: retry(chosen.delivery_id), body: {} } as const, words: ["notifications", "deliveries", "--retry", chosen.delivery_id] }] : []),
        ]}
      />
      {chosen && isOpen && (
        <Dialog title={text("retry_delivery")} confirm={text("retry_delivery")} request={{ method: "POST", path: retry(chosen.delivery_id), body: {} }} onClose={() => setOpen(false)} onDone={() => setChosen(null)}>
          <p>{text("retry_text")}</p>
        </Dialog>
      )}
    </>
  );
}
