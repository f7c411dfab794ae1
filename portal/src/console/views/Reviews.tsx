import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { apiPath } from "../../api/paths";
import type { Json } from "../../api/types";
import { useConsole, useList, useRead } from "../core/console";
import { sortedJson } from "../core/diff";
import { useWorkloads } from "../core/resources";
import type { Execution, Schemas } from "../core/types";
import { useConsoleText } from "../i18n";
import { Action, Commands, Empty, Failed, Loading, Section, Time } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { NoteField } from "../ui/Filters";
import { useTitle } from "../ui/useTitle";
import { VirtualTable } from "../ui/VirtualTable";

/** The list of runs whose results await a human review. */
export function Reviews() {
  const text = useConsoleText();
  const { session } = useConsole();
  const { slugOf } = useWorkloads();
  useTitle(text("nav_reviews"));
  const path = apiPath("/v1/executions", {}, { review: "pending", limit: "200" });
  const list = useList<Execution>(path, { refresh: true });
  return (
    <>
      <h1>{text("nav_reviews")}</h1>
      <VirtualTable
        label={text("nav_reviews")}
        list={list}
        keyOf={(run) => run.execution_id}
        empty={<Empty>{text("reviews_empty")}</Empty>}
        columns={[
          {
            name: text("run"),
            render: (run) => (
              <Link to="/runs/$id" params={{ id: run.execution_id }}>
                <Time value={run.started_at} />
              </Link>
            ),
          },
          { name: text("workload"), render: (run) => run.workload_slug ?? slugOf(run.workload_id) ?? run.workload_id },
          { name: text("environment"), render: (run) => run.environment },
          { name: text("by"), render: (run) => (run.submitted_by === session.actor ? `${run.submitted_by} ${text("you")}` : run.submitted_by) },
        ]}
      />
      <Commands items={[{ label: text("this_list"), request: { method: "GET", path }, words: ["reviews", "list"] }]} />
    </>
  );
}

/** The answer that awaits a review, and the form for the verdict. */
export function ReviewForm({ run }: { run: Execution }) {
  const text = useConsoleText();
  const { session } = useConsole();
  const execution_id = run.execution_id;
  const scope = { kind: "workload", ref: run.workload_id } as const;
  const isOwn = run.submitted_by === session.actor;
  const read = useRead<Schemas["AwaitingReview"]>(isOwn ? null : apiPath("/v1/executions/{execution_id}/review", { execution_id }));
  const [open, setOpen] = useState<"approved" | "rejected" | null>(null);
  const [note, setNote] = useState("");
  const blocked = isOwn ? text("review_own") : read.data ? null : text("review_unread");
  const output = read.data?.value.output as Json | undefined;
  const request = { method: "POST", path: apiPath("/v1/executions/{execution_id}/review", { execution_id }), body: { outcome: open, ...(note.trim() ? { note: note.trim() } : {}) } } as const;
  return (
    <Section title={text("review_result")}>
      {read.error && <Failed problem={read.error} />}
      {!isOwn && !read.data && !read.error && <Loading what={text("result")} />}
      {read.data && (
        <>
          <p className="hint">
            {text("review_lapses")} <Time value={read.data.value.lapses_at} />
          </p>
          <pre tabIndex={0} aria-label={text("result")} className="wrap">
            {typeof output === "string" ? output : sortedJson(output ?? null)}
          </pre>
        </>
      )}
      <div className="buttons">
        <Action label={text("review_approve")} tone="primary" operation="review_execution" scope={scope} blocked={blocked} onClick={() => setOpen("approved")} />
        <Action label={text("review_reject")} tone="danger" operation="review_execution" scope={scope} blocked={blocked} onClick={() => setOpen("rejected")} />
      </div>
      {open && (
        <Dialog
          title={text(open === "approved" ? "review_approve" : "review_reject")}
          confirm={text(open === "approved" ? "review_approve" : "review_reject")}
          danger={open === "rejected"}
          request={request}
          onClose={() => setOpen(null)}
        >
          <p>{text(open === "approved" ? "review_approve_text" : "review_reject_text")}</p>
          <NoteField value={note} onChange={setNote} />
        </Dialog>
      )}
    </Section>
  );
}
