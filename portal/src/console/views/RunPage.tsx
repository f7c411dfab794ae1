import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { apiPath } from "../../api/paths";
import type { Json } from "../../api/types";
import { useRead } from "../core/console";
import { sortedJson } from "../core/diff";
import type { Execution, Schemas } from "../core/types";
import { useId } from "../core/useAddress";
import { useConsoleText, useValueText } from "../i18n";
import { Action, Commands, Empty, Facts, Failed, Id, Loading, Section, Tag, Time } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Field, NoteField } from "../ui/Filters";
import { TabBar } from "../ui/TabBar";
import { Table } from "../ui/Table";
import { useTitle } from "../ui/useTitle";
import { EvidencePicture } from "./EvidencePicture";
import { ReviewForm } from "./Reviews";
import { Timeline } from "./Timeline";
import { cost, duration } from "../core/format";

/** The view of a run: its timeline, decision, evidence, tokens and cost. */
export function RunPage() {
  const id = useId();
  const text = useConsoleText();
  const path = apiPath("/v1/executions/{execution_id}", { execution_id: id });
  const read = useRead<Execution>(path, { refresh: true });
  if (read.error && !read.data) {
    return (
      <>
        <h1>{text("run")}</h1>
        <Failed problem={read.error} onRetry={() => void read.refetch()} />
      </>
    );
  }
  if (!read.data) return <Loading what={text("run")} />;
  return <RunView run={read.data.value} />;
}

function RunView({ run }: { run: Execution }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const execution_id = run.execution_id;
  const scope = { kind: "workload", ref: run.workload_id } as const;
  const [open, setOpen] = useState<"cancel" | "settle" | null>(null);
  useTitle(`${text("run")} ${execution_id.slice(0, 8)}`);
  const isActive = ["queued", "running", "awaiting_review"].includes(run.status);
  return (
    <>
      <h1>
        {text("run")} <Id id={execution_id} /> <Tag value={run.status} />
      </h1>
      <Facts
        items={[
          [text("workload"), <Link key="w" to="/workloads/$id" params={{ id: run.workload_id }}>{run.workload_slug ?? run.workload_id}</Link>],
          [text("release"), <Link key="r" to="/releases/$id" params={{ id: run.release_id }}><Id id={run.release_id} /></Link>],
          [text("environment"), `${run.environment}, ${valueText(run.lane)}`],
          [text("by"), run.submitted_by + (run.delegated_by ? ` (${run.delegated_by})` : "")],
          [text("started"), <Time key="s" value={run.started_at} />],
          [text("took"), duration(run.duration_ms)],
          [text("tokens"), `${run.tokens_in ?? "–"} / ${run.tokens_out ?? "–"}`],
          [text("cost"), cost(run.cost_micros)],
          [text("decision"), <code key="d">{run.reason_code}</code>],
          ...(run.error ? ([[text("error"), `${run.error.message} (${run.error.code})`]] as const) : []),
        ]}
      />
      <div className="buttons">
        <Action label={text("cancel_run")} tone="danger" operation="cancel_execution" scope={scope} blocked={isActive ? null : text("run_ended")} onClick={() => setOpen("cancel")} />
        <Action label={text("settle")} operation="settle_execution" scope={scope} blocked={run.status === "unknown" ? null : text("settle_only_unknown")} onClick={() => setOpen("settle")} />
      </div>
      {run.status === "awaiting_review" && <ReviewForm run={run} />}
      <TabBar
        label={text("run")}
        tabs={[
          { value: "timeline", label: text("tab_timeline"), content: () => <Timeline run={run} /> },
          { value: "evidence", label: text("tab_evidence"), content: () => <EvidencePicture execution={execution_id} /> },
          { value: "decision", label: text("decision"), content: () => <DecisionTab execution={execution_id} /> },
          { value: "lineage", label: text("tab_lineage"), content: () => <Lineage execution={execution_id} /> },
          { value: "result", label: text("result"), content: () => <ResultTab run={run} /> },
        ]}
      />
      <Commands
        items={[
          { label: text("run"), request: { method: "GET", path: apiPath("/v1/executions/{execution_id}", { execution_id }) }, words: ["executions", "explain", execution_id] },
          { label: text("tab_evidence"), request: { method: "GET", path: apiPath("/v1/executions/{execution_id}/evidence-graph", { execution_id }, { format: "graph" }) }, words: ["evidence", "graph", execution_id] },
          { label: text("cancel_run"), request: { method: "POST", path: apiPath("/v1/executions/{execution_id}/cancel", { execution_id }), body: {} }, words: ["executions", "cancel", execution_id] },
        ]}
      />
      {open === "cancel" && (
        <Dialog
          title={text("cancel_run")}
          confirm={text("cancel_run")}
          danger
          request={{ method: "POST", path: apiPath("/v1/executions/{execution_id}/cancel", { execution_id }), body: {} }}
          onClose={() => setOpen(null)}
        >
          <p>{text("cancel_run_text")}</p>
        </Dialog>
      )}
      {open === "settle" && <SettleDialog execution={execution_id} onClose={() => setOpen(null)} />}
    </>
  );
}

function SettleDialog({ execution, onClose }: { execution: string; onClose: () => void }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const [outcome, setOutcome] = useState<"success" | "failure">("failure");
  const [note, setNote] = useState("");
  const body: Schemas["SettleRequest"] = { outcome, ...(note.trim() ? { note: note.trim() } : {}) };
  return (
    <Dialog title={text("settle")} confirm={text("settle")} request={{ method: "POST", path: apiPath("/v1/executions/{execution_id}/settle", { execution_id: execution }), body }} onClose={onClose}>
      <p>{text("settle_text")}</p>
      <Field label={text("outcome")}>
        {(id) => (
          <select id={id} value={outcome} onChange={(event) => setOutcome(event.target.value as typeof outcome)}>
            <option value="failure">{valueText("failure")}</option>
            <option value="success">{valueText("success")}</option>
          </select>
        )}
      </Field>
      <NoteField value={note} onChange={setNote} />
    </Dialog>
  );
}

/** The deciding rule, the approvals of the release, and the retrieved documents. */
function DecisionTab({ execution }: { execution: string }) {
  const text = useConsoleText();
  const read = useRead<Schemas["FlatEvidenceView"]>(apiPath("/v1/executions/{execution_id}/evidence-graph", { execution_id: execution }));
  if (read.error) return <Failed problem={read.error} />;
  if (!read.data) return <Loading what={text("decision")} />;
  const { policy_decision: decision, approvals, retrieval_events: retrievals, obligations } = read.data.value;
  return (
    <>
      <Facts
        items={[
          [text("outcome"), <Tag key="o" value={decision.outcome} />],
          [text("reason"), <code key="r">{decision.reason_code}</code>],
          [text("rules"), decision.rules.join(", ") || "–"],
          [text("rules_failed"), (decision.failed_rules ?? []).map((rule) => `${rule.rule}${rule.missing_field ? ` (${rule.missing_field})` : ""}`).join(", ") || "–"],
          [text("obligations"), obligations.map((one) => one.obligation_name).join(", ") || "–"],
          [text("time"), <Time key="t" value={decision.evaluated_at} />],
        ]}
      />
      <Section title={text("approvals")}>
        <Table
          label={text("approvals")}
          rows={approvals}
          keyOf={(approval) => approval.approval_id}
          empty={<Empty>{text("approvals_empty")}</Empty>}
          columns={[
            { name: text("by"), render: (approval) => approval.approved_by },
            { name: text("time"), render: (approval) => <Time value={approval.approved_at} /> },
            { name: text("note"), render: (approval) => (approval.note_withheld ? text("withheld") : (approval.note ?? "")) },
          ]}
        />
      </Section>
      <Section title={text("retrievals")}>
        <Table
          label={text("retrievals")}
          rows={retrievals}
          keyOf={(event) => event.retrieval_event_id}
          empty={<Empty>{text("retrievals_empty")}</Empty>}
          columns={[
            { name: text("time"), render: (event) => <Time value={event.retrieved_at} /> },
            { name: text("query"), render: (event) => (event.query_text_withheld ? text("withheld") : (event.query_text ?? "")) },
            { name: text("passages"), render: (event) => event.retrieved_chunk_count },
          ]}
        />
      </Section>
    </>
  );
}

function Lineage({ execution }: { execution: string }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const read = useRead<Schemas["ContextLineage"]>(apiPath("/v1/executions/{execution_id}/context-lineage", { execution_id: execution }, { limit: "200" }));
  if (read.error) return <Failed problem={read.error} />;
  if (!read.data) return <Loading what={text("tab_lineage")} />;
  return (
    <Table
      label={text("tab_lineage")}
      rows={read.data.value.items}
      keyOf={(item) => item.lineage_id}
      empty={<Empty>{text("lineage_empty")}</Empty>}
      columns={[
        { name: text("origin"), render: (item) => valueText(item.origin) },
        { name: text("trust"), render: (item) => valueText(item.trust) },
        { name: text("role"), render: (item) => valueText(item.influence_role) },
        { name: text("reference"), render: (item) => (item.redacted ? text("withheld") : item.ref) },
        { name: text("bytes"), render: (item) => item.size_bytes },
        { name: text("digest"), render: (item) => <Id id={item.digest} /> },
      ]}
    />
  );
}

function ResultTab({ run }: { run: Execution }) {
  const text = useConsoleText();
  const result = run.queued_result?.result as Json | undefined;
  if (result === undefined || result === null) return <Empty>{text("result_empty")}</Empty>;
  return (
    <pre tabIndex={0} aria-label={text("result")} className="wrap">
      {typeof result === "string" ? result : sortedJson(result)}
    </pre>
  );
}
