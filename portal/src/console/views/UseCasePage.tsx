import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { apiPath } from "../../api/paths";
import { randomId, useConsole, useList, useRead, type WithEntityTag } from "../core/console";
import type { Schemas } from "../core/types";
import { useId } from "../core/useAddress";
import { useConsoleText, useValueText } from "../i18n";
import { Action, Commands, Empty, Facts, Failed, Id, Loading, Section, Tag, Time } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { NoteField } from "../ui/Filters";
import { Table } from "../ui/Table";
import { useTitle } from "../ui/useTitle";

type UseCase = Schemas["UseCase"];
const MOVES = ["publish", "activate", "reopen", "archive"] as const;
type Move = (typeof MOVES)[number];
/** The states of a use case in which the server accepts each action. */
const FROM: Record<Move | "refine", readonly string[]> = { publish: ["draft"], activate: ["pending_access"], reopen: ["pending_access"], archive: ["draft", "pending_access", "active"], refine: ["draft"] };
const PATHS = {
  publish: "/v1/use-cases/{use_case_id}/publish",
  activate: "/v1/use-cases/{use_case_id}/activate",
  reopen: "/v1/use-cases/{use_case_id}/reopen",
  archive: "/v1/use-cases/{use_case_id}/archive",
} as const;

export function UseCasePage() {
  const id = useId();
  const text = useConsoleText();
  const { workspace } = useConsole();
  const read = useRead<UseCase>(apiPath("/v1/use-cases/{use_case_id}", { use_case_id: id }, { workspace_id: workspace.workspace_id }), { refresh: true });
  if (read.error && !read.data) {
    return (
      <>
        <h1>{text("use_case")}</h1>
        <Failed problem={read.error} onRetry={() => void read.refetch()} />
      </>
    );
  }
  if (!read.data) return <Loading what={text("use_case")} />;
  return <UseCaseView read={read.data} />;
}

function UseCaseView({ read }: { read: WithEntityTag<UseCase> }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const navigate = useNavigate();
  const { workspace } = useConsole();
  const useCase = read.value;
  const use_case_id = useCase.use_case_id;
  const workspace_id = workspace.workspace_id;
  const scope = { kind: "workspace", ref: workspace_id } as const;
  const bundle = useRead<Schemas["PersistedBundle"]>(apiPath("/v1/use-cases/{use_case_id}/bundle", { use_case_id }, { workspace_id }));
  const requests = useList<Schemas["AccessRequest"]>(apiPath("/v1/access-requests", {}, { workspace_id, limit: "200" }), { refresh: true });
  const [open, setOpen] = useState<Move | "refine" | null>(null);
  const [note, setNote] = useState("");
  const [key] = useState(randomId);
  useTitle(useCase.name);
  const blocked = (move: Move | "refine") => (FROM[move].includes(useCase.status) ? null : text("not_in_state", { states: FROM[move].map(valueText).join(", ") }));
  const accessRequests = requests.rows.filter((request) => request.use_case_id === use_case_id);
  return (
    <>
      <h1>
        {useCase.name} <Tag value={useCase.status} />
      </h1>
      <p dir="auto">{useCase.summary}</p>
      <Facts
        items={[
          [text("description"), useCase.source_description],
          [text("created_by"), useCase.created_by],
          [text("changed"), <Time key="t" value={useCase.updated_at} />],
          ...(useCase.workload_id ? ([[text("workload"), <Link key="w" to="/workloads/$id" params={{ id: useCase.workload_id }}><Id id={useCase.workload_id} /></Link>]] as const) : []),
          ...(useCase.release_id ? ([[text("release"), <Link key="r" to="/releases/$id" params={{ id: useCase.release_id }}><Id id={useCase.release_id} /></Link>]] as const) : []),
        ]}
      />
      <div className="buttons">
        {MOVES.map((move) => (
          <Action key={move} label={text(`move_${move}`)} tone={move === "archive" ? "danger" : "plain"} operation={`${move}_use_case`} scope={scope} blocked={blocked(move)} onClick={() => setOpen(move)} />
        ))}
        <Action label={text("move_refine")} operation="refine_use_case" scope={scope} blocked={blocked("refine")} onClick={() => setOpen("refine")} />
      </div>
      <Section title={text("plan")}>
        {bundle.error && <Failed problem={bundle.error} />}
        {bundle.data?.value.redacted && <p>{text("plan_redacted")}</p>}
        <Table
          label={text("plan")}
          rows={bundle.data?.value.pieces ?? []}
          keyOf={(piece) => piece.piece + (piece.ref ?? "") + (piece.id ?? "")}
          empty={<Empty>{text("plan_empty")}</Empty>}
          columns={[
            { name: text("piece"), render: (piece) => valueText(piece.piece) },
            {
              name: text("state"),
              render: (piece) => <Tag value={piece.id ? "reused" : (bundle.data?.value.open_connection_gaps.find((gap) => gap.ref === piece.ref)?.kind ?? "mint_fresh")} />,
            },
            { name: text("reference"), render: (piece) => piece.ref ?? "" },
            { name: text("identifier"), render: (piece) => (piece.id ? <Id id={piece.id} /> : "–") },
          ]}
        />
      </Section>
      <Section title={text("access_requests")}>
        {requests.problem && <Failed problem={requests.problem} />}
        <Table
          label={text("access_requests")}
          rows={accessRequests}
          keyOf={(request) => request.access_request_id}
          empty={<Empty>{text("requests_none")}</Empty>}
          columns={[
            { name: text("connection"), render: (request) => request.connection_name },
            { name: text("state"), render: (request) => <Tag value={request.status} /> },
            { name: text("by"), render: (request) => request.decided_by ?? "–" },
            { name: text("reason"), render: (request) => request.reason ?? "" },
          ]}
        />
      </Section>
      <Commands
        items={[
          { label: text("use_case"), request: { method: "GET", path: apiPath("/v1/use-cases/{use_case_id}", { use_case_id }, { workspace_id }) }, words: ["use-cases", "show", use_case_id] },
          { label: text("move_publish"), request: { method: "POST", path: apiPath(PATHS.publish, { use_case_id }, { workspace_id }), body: {} }, words: ["use-cases", "publish", use_case_id] },
        ]}
      />
      {open && open !== "refine" && (
        <Dialog
          title={text(`move_${open}`)}
          confirm={text(`move_${open}`)}
          danger={open === "archive"}
          request={{ method: "POST", path: apiPath(PATHS[open], { use_case_id }, { workspace_id }), body: {}, ifMatch: read.etag }}
          onClose={() => setOpen(null)}
        >
          <p>{text(`move_${open}_text`)}</p>
        </Dialog>
      )}
      {open === "refine" && (
        <Dialog
          title={text("move_refine")}
          confirm={text("move_refine")}
          request={{ method: "POST", path: apiPath("/v1/use-cases/{use_case_id}/refine", { use_case_id }, { workspace_id }), body: { description: useCase.source_description, idempotency_key: key, refinement_context: [{ note: note.trim() }] } }}
          blocked={note.trim() ? null : text("note_needed")}
          onClose={() => setOpen(null)}
          onDone={(answer) => {
            const successor = (answer as Schemas["Refinement"]).use_case;
            if (successor) void navigate({ to: "/use-cases/$id", params: { id: successor.use_case_id } });
          }}
        >
          <p>{text("move_refine_text")}</p>
          <NoteField value={note} onChange={setNote} required />
        </Dialog>
      )}
    </>
  );
}
