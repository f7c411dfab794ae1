import { useState } from "react";
import { apiPath } from "../../api/paths";
import { useConsole, useList, useRead } from "../core/console";
import type { Schemas } from "../core/types";
import { useAddress } from "../core/useAddress";
import { useConsoleText } from "../i18n";
import { Action, Commands, Empty, Facts, Failed, Id, Loading, RowAction, Section, Tag, Time } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Field, Filters, FilterSelect } from "../ui/Filters";
import { VirtualTable } from "../ui/VirtualTable";

type Erasure = Schemas["Erasure"];

const STATES = ["requested", "approved", "refused", "completed"] as const satisfies readonly Erasure["status"][];
/** The example subject in commands and in the empty field. */
const EXAMPLE = "user:eve";
const SUBJECT_PATTERN = /^(user|service|share_link):[a-z0-9][a-z0-9._@+-]{0,126}$/;

/**
 * Erasures of a person's texts. One person requests an erasure, another person decides, and the
 * server erases in batches.
 */
export function Erasures() {
  const text = useConsoleText();
  const { session } = useConsole();
  const [search, change] = useAddress();
  const [isOpen, setOpen] = useState(false);
  const status = STATES.find((one) => one === search["status"]);
  const path = apiPath("/v1/erasures", {}, { status, limit: "200" });
  const list = useList<Erasure>(path, { refresh: true });
  const chosen = search["erasure"] ?? "";
  return (
    <>
      <p>{text("erasures_text")}</p>
      <div className="buttons">
        <Action label={text("request_erasure")} operation="request_erasure" scope={{ kind: "tenant", ref: session.tenant_id }} onClick={() => setOpen(true)} />
      </div>
      <Filters names={["status"]}>
        <FilterSelect name="status" label={text("state")} options={STATES} />
      </Filters>
      <VirtualTable
        label={text("tab_erasures")}
        list={list}
        keyOf={(one) => one.erasure_id}
        empty={<Empty>{text(status ? "erasures_no_match" : "erasures_empty")}</Empty>}
        columns={[
          { name: text("erasure_subject"), render: (one) => one.subject },
          { name: text("state"), render: (one) => <Tag value={one.status} /> },
          { name: text("requested_by"), render: (one) => one.requested_by },
          { name: text("requested_at"), render: (one) => <Time value={one.requested_at} /> },
          { name: text("erasure_progress"), render: (one) => <Counts erasure={one} /> },
          { name: text("action"), render: (one) => <RowAction label={text("show")} name={text("show_named", { name: one.subject })} onClick={() => change({ erasure: one.erasure_id })} /> },
        ]}
      />
      {chosen && <ErasureView key={chosen} id={chosen} />}
      <Commands
        items={[
          { label: text("this_list"), request: { method: "GET", path }, words: ["erasures", "list", ...(status ? ["--status", status] : [])] },
          { label: text("request_erasure"), request: { method: "POST", path: apiPath("/v1/erasures", {}), body: { subject: EXAMPLE } }, words: ["erasures", "request", EXAMPLE] },
        ]}
      />
      {isOpen && <RequestErasure onClose={() => setOpen(false)} onDone={(made) => change({ erasure: made.erasure_id, status: "" })} />}
    </>
  );
}

function Counts({ erasure }: { erasure: Erasure }) {
  const text = useConsoleText();
  if (erasure.status === "requested" || erasure.status === "refused") return <>–</>;
  return <>{text("erasure_counts", { runs: erasure.erased_runs, turns: erasure.erased_turns, documents: erasure.erased_documents })}</>;
}

/** One erasure with its progress, and the decision by another person than its requester. */
function ErasureView({ id }: { id: string }) {
  const text = useConsoleText();
  const { session } = useConsole();
  const path = apiPath("/v1/erasures/{erasure_id}", { erasure_id: id });
  const read = useRead<Erasure>(path, { refresh: true });
  const [open, setOpen] = useState<"approve" | "refuse" | null>(null);
  if (read.error && !read.data) return <Failed problem={read.error} onRetry={() => void read.refetch()} />;
  if (!read.data) return <Loading what={text("erasure")} />;
  const { value: erasure, etag } = read.data;
  const { subject, status } = erasure;
  const isOwn = erasure.requested_by === session.actor;
  const scope = { kind: "tenant", ref: session.tenant_id } as const;
  const decided = status === "requested" ? null : text("erasure_decided");
  const refuse = text(isOwn ? "withdraw_erasure" : "refuse_erasure");
  const requestOf = (decision: "approve" | "refuse") => ({ method: "POST" as const, path: apiPath(`/v1/erasures/{erasure_id}/${decision}`, { erasure_id: id }), body: {}, ifMatch: etag });
  return (
    <Section title={`${text("erasure")}: ${subject}`}>
      <Facts
        items={[
          [text("state"), <Tag key="s" value={status} />],
          [text("requested_by"), erasure.requested_by],
          [text("requested_at"), <Time key="t" value={erasure.requested_at} />],
          [text("decided_by"), erasure.decided_by ?? "–"],
          [text("decided_at"), <Time key="d" value={erasure.decided_at} />],
          [text("completed_at"), <Time key="c" value={erasure.completed_at} />],
          [text("erasure_progress"), <Counts key="e" erasure={erasure} />],
          [text("identifier"), <Id key="i" id={id} />],
        ]}
      />
      {status === "approved" && (
        <p role="status" className="hint">
          {text("erasure_waits")}
        </p>
      )}
      <div className="buttons">
        <Action label={text("approve_erasure")} tone="danger" operation="approve_erasure" scope={scope} blocked={decided ?? (isOwn ? text("erasure_own") : null)} onClick={() => setOpen("approve")} />
        <Action label={refuse} operation="refuse_erasure" scope={scope} blocked={decided} onClick={() => setOpen("refuse")} />
      </div>
      <Commands
        items={[
          { label: text("erasure"), request: { method: "GET", path }, words: ["erasures", "show", id] },
          { label: text("approve_erasure"), request: requestOf("approve"), words: ["erasures", "approve", id] },
          { label: refuse, request: requestOf("refuse"), words: ["erasures", "refuse", id] },
        ]}
      />
      {open === "approve" && (
        <Dialog title={text("approve_named", { name: subject })} confirm={text("approve_erasure")} danger request={requestOf("approve")} onClose={() => setOpen(null)}>
          <p>{text("approve_erasure_text", { name: subject })}</p>
          <p className="hint">{text("erasure_covers")}</p>
        </Dialog>
      )}
      {open === "refuse" && (
        <Dialog title={text(isOwn ? "withdraw_named" : "refuse_named", { name: subject })} confirm={refuse} request={requestOf("refuse")} onClose={() => setOpen(null)}>
          <p>{text("refuse_erasure_text", { name: subject })}</p>
        </Dialog>
      )}
    </Section>
  );
}

function RequestErasure({ onClose, onDone }: { onClose: () => void; onDone: (made: Erasure) => void }) {
  const text = useConsoleText();
  const [subject, setSubject] = useState("");
  return (
    <Dialog
      title={text("request_erasure")}
      confirm={text("request_erasure")}
      request={{ method: "POST", path: apiPath("/v1/erasures", {}), body: { subject } }}
      blocked={SUBJECT_PATTERN.test(subject) ? null : text("erasure_subject_invalid")}
      onClose={onClose}
      onDone={(made) => onDone(made as Erasure)}
    >
      <p>{text("request_erasure_text")}</p>
      <Field label={text("erasure_subject")} hint={text("erasure_subject_hint")}>
        {(id) => <input id={id} value={subject} placeholder={EXAMPLE} autoComplete="off" spellCheck={false} onChange={(event) => setSubject(event.target.value.trim())} />}
      </Field>
      <p className="hint">{text("erasure_covers")}</p>
    </Dialog>
  );
}
