import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { apiPath } from "../../api/paths";
import type { Problem } from "../../api/problem";
import { useConsole, useList } from "../core/console";
import { isIncluded } from "../core/merkle";
import type { Schemas } from "../core/types";
import { useAddress } from "../core/useAddress";
import { useConsoleText } from "../i18n";
import { Commands, Empty, Facts, Failed, Id, Loading, RowAction, Section, Time } from "../ui/basics";
import { Filters, FilterSelect, FilterText } from "../ui/Filters";
import { useTitle } from "../ui/useTitle";
import { VirtualTable } from "../ui/VirtualTable";
import { fits } from "./auditFilter";

type Event = Schemas["AuditEvent"];
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const NAMES = ["kind", "actor", "subject", "whole"] as const;
/** The next checkpoint follows a new entry within 5 seconds on a server with normal load. */
const CHECKPOINT_RETRIES = 15;
const CHECKPOINT_RETRY_MS = 1_000;

/** The audit log of all changes. The page can prove that each row is part of the log. */
export function Audit() {
  const text = useConsoleText();
  const { workspace } = useConsole();
  const [search] = useAddress();
  const [chosen, setChosen] = useState<Event | null>(null);
  useTitle(text("nav_audit"));
  // The server filters by a complete identifier. Incomplete identifiers are filtered in the page.
  const subject_id = UUID.test(search["subject"] ?? "") ? search["subject"] : undefined;
  const path = apiPath("/v1/audit/events", {}, { workspace_id: search["whole"] ? undefined : workspace.workspace_id, subject_id, limit: "200" });
  const list = useList<Event>(path, { refresh: true });
  // The other filters apply only to the loaded rows, because the API lacks them. The view tells the reader so.
  const rows = list.rows.filter((event) => fits(event, search));
  const isFiltered = Boolean(search["kind"] || search["actor"] || (search["subject"] && !subject_id));
  const kinds = [...new Set(list.rows.map(({ kind }) => kind))].sort();
  return (
    <>
      <h1>{text("nav_audit")}</h1>
      <Filters names={NAMES}>
        <FilterSelect name="kind" label={text("event")} options={kinds} labelOf={(kind) => kind} />
        <FilterText name="actor" label={text("by")} pattern="[a-z_]+:[a-z0-9._@+\-]*|[a-z0-9._@+\-]+" placeholder="user:ada" />
        <FilterText name="subject" label={text("subject_id")} pattern="[0-9a-f\-]+" />
        <FilterSelect name="whole" label={text("scope")} none={text("scope_workspace", { name: workspace.name })} options={["tenant"]} />
      </Filters>
      <p className="hint">
        <Link to="/access" search={{ tab: "erasures" } as never}>
          {text("erasure_see_also")}
        </Link>
      </p>
      {isFiltered && (
        <p className="hint" data-testid="filtered">
          {text("audit_filtered", { count: rows.length, loaded: list.rows.length })}{" "}
          {list.hasMore && (
            <button type="button" className="plain" onClick={list.more}>
              {text("load_more")}
            </button>
          )}
        </p>
      )}
      {chosen && <Proof event={chosen} onClose={() => setChosen(null)} />}
      <VirtualTable
        label={text("nav_audit")}
        list={isFiltered ? { ...list, rows, total: rows.length } : list}
        keyOf={(event) => event.event_id}
        empty={<Empty>{text(isFiltered || subject_id ? "audit_no_match" : "audit_empty")}</Empty>}
        columns={[
          { name: text("number"), render: (event) => event.index },
          { name: text("time"), render: (event) => <Time value={event.occurred_at} /> },
          { name: text("event"), render: (event) => <code>{event.kind}</code> },
          { name: text("by"), render: (event) => event.actor },
          { name: text("subject"), render: (event) => <Subject subject={event.subject} /> },
          { name: text("request"), render: (event) => <Id id={event.request_id} /> },
          {
            name: text("proof"),
            render: (event) => (
              <RowAction label={text("prove_short")} name={text("prove", { number: event.index })} onClick={() => setChosen(event)} />
            ),
          },
        ]}
      />
      <Commands
        items={[
          { label: text("this_list"), request: { method: "GET", path }, words: ["audit", "list", ...(subject_id ? ["--subject", subject_id] : [])] },
          ...(chosen ? [{ label: text("proof"), request: { method: "GET", path: apiPath("/v1/audit/events/{event_id}/inclusion-proof", { event_id: chosen.event_id }) } as const, words: ["audit", "proof", chosen.event_id] }] : []),
        ]}
      />
    </>
  );
}

function Subject({ subject }: { subject: Schemas["AuditSubject"] }) {
  const label = (
    <>
      {subject.kind} <Id id={subject.id} />
    </>
  );
  if (subject.kind === "release") return <Link to="/releases/$id" params={{ id: subject.id }}>{label}</Link>;
  if (subject.kind === "workload") return <Link to="/workloads/$id" params={{ id: subject.id }}>{label}</Link>;
  if (subject.kind === "execution") return <Link to="/runs/$id" params={{ id: subject.id }}>{label}</Link>;
  return label;
}

/** The inclusion proof of a row, which this page verifies. */
function Proof({ event, onClose }: { event: Event; onClose: () => void }) {
  const text = useConsoleText();
  const { client } = useConsole();
  const proof = useQuery<{ proof: Schemas["InclusionProof"]; holds: boolean }, Problem>({
    queryKey: ["proof", client.cacheKey, event.event_id],
    retry: (count, problem) => problem.code === "not_yet_in_checkpoint" && count < CHECKPOINT_RETRIES,
    retryDelay: CHECKPOINT_RETRY_MS,
    queryFn: async ({ signal }) => {
      const inclusionProof = await client.get<Schemas["InclusionProof"]>(apiPath("/v1/audit/events/{event_id}/inclusion-proof", { event_id: event.event_id }), signal);
      return { proof: inclusionProof, holds: inclusionProof.index === event.index && (await isIncluded(event.leaf_hash, inclusionProof)) };
    },
  });
  return (
    <Section
      title={text("proof_of", { number: event.index })}
      actions={
        <button type="button" className="plain" onClick={onClose}>
          {text("close")}
        </button>
      }
    >
      {proof.error && <Failed problem={proof.error} onRetry={() => void proof.refetch()} />}
      {proof.isPending && <Loading what={text("proof")} />}
      {proof.data && (
        <>
          <p className={`notice ${proof.data.holds ? "notice-good" : "notice-error"}`} role="status" data-testid="proof">
            {text(proof.data.holds ? "proof_holds" : "proof_fails", { size: proof.data.proof.tree_size })}
          </p>
          <Facts
            items={[
              [text("leaf_hash"), <code key="l" className="wrap">{event.leaf_hash}</code>],
              [text("root_hash"), <code key="r" className="wrap">{proof.data.proof.root_hash}</code>],
              [text("steps"), proof.data.proof.proof.length],
            ]}
          />
        </>
      )}
    </Section>
  );
}
