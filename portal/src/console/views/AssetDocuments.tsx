import { useState, type FormEvent } from "react";
import { apiPath } from "../../api/paths";
import { ProblemNotice } from "../../ui/ProblemNotice";
import { randomId, useChange, useConsole, useList } from "../core/console";
import type { Asset, Schemas } from "../core/types";
import { useConsoleText } from "../i18n";
import { Action, Commands, Empty, Id, Section, Time } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Field } from "../ui/Filters";
import { VirtualTable } from "../ui/VirtualTable";
import { scopeOf } from "./AssetPage";

type Document = Schemas["Document"];
const NAME_PATTERN = /^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$/;

/** The documents of a knowledge base, and a search that shows the passages that a run would retrieve. */
export function AssetDocuments({ asset }: { asset: Asset }) {
  const text = useConsoleText();
  const { workspace } = useConsole();
  const workspace_id = workspace.workspace_id;
  const { asset_id, slug } = asset;
  const path = apiPath("/v1/assets/{asset_id}/documents", { asset_id }, { workspace_id, limit: "200" });
  const list = useList<Document>(path, { refresh: true });
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <Search asset={asset} />
      <Section title={text("tab_documents")} actions={<Action label={text("add_document")} operation="add_documents" scope={scopeOf(asset)} onClick={() => setOpen(true)} />}>
        <VirtualTable
          label={text("tab_documents")}
          list={list}
          keyOf={(one) => one.entry_id}
          empty={<Empty>{text("documents_empty")}</Empty>}
          columns={[
            { name: text("name"), render: (one) => <code>{one.document_id}</code> },
            { name: text("title"), render: (one) => <span dir="auto">{one.title ?? "–"}</span> },
            { name: text("current"), render: (one) => text(one.current ? "yes" : "no") },
            { name: text("passages"), render: (one) => one.chunk_count },
            { name: text("bytes"), render: (one) => one.text_bytes },
            { name: text("created_by"), render: (one) => one.created_by },
            { name: text("time"), render: (one) => <Time value={one.created_at} /> },
            { name: text("digest"), render: (one) => <Id id={one.digest} /> },
          ]}
        />
      </Section>
      <Commands items={[{ label: text("tab_documents"), request: { method: "GET", path }, words: ["documents", "list", slug, "--all"] }]} />
      {isOpen && <AddDocument asset={asset} onClose={() => setOpen(false)} />}
    </>
  );
}

interface Found {
  strategy?: string;
  capped?: boolean;
  citation_required?: boolean;
  chunks?: Chunk[];
}
interface Chunk {
  chunk_id?: string;
  document_id?: string;
  title?: string | null;
  text?: string;
  score?: number;
}

/**
 * Searches with the built-in tool. It applies the access contract like a run, and stores only a fact in the audit log.
 */
function Search({ asset }: { asset: Asset }) {
  const text = useConsoleText();
  const { workspace } = useConsole();
  const [query, setQuery] = useState("");
  const [key, setKey] = useState(randomId);
  const [result, setResult] = useState<Found | null>(null);
  const ask = useChange(key);
  const path = apiPath("/v1/runtime/tools/{tool}", { tool: "query_knowledge_base" });
  const body = { arguments: { knowledge_base_slug: asset.slug, query: query.trim(), workspace_id: workspace.workspace_id } };
  const send = (event?: FormEvent) => {
    event?.preventDefault();
    if (!query.trim()) return;
    setResult(null);
    ask.mutate(
      { method: "POST", path, body },
      { onSuccess: (answer) => setResult((answer as Schemas["ToolResult"]).result as Found), onSettled: () => setKey(randomId()) },
    );
  };
  return (
    <Section title={text("search_documents")}>
      <p className="hint">{text("search_text")}</p>
      <form role="search" className="stack" onSubmit={send}>
        <Field label={text("query")}>{(id) => <input id={id} type="search" maxLength={8_000} value={query} onChange={(event) => setQuery(event.target.value)} />}</Field>
        <div className="buttons">
          <Action label={text("search")} operation="call_tool" scope={scopeOf(asset)} blocked={query.trim() ? null : text("query_needed")} onClick={() => send()} />
        </div>
      </form>
      {ask.error && <ProblemNotice problem={ask.error} />}
      <div role="status" data-testid="found">
        {result && (result.chunks?.length ?? 0) === 0 && <Empty>{text("found_nothing")}</Empty>}
        {result && (result.chunks?.length ?? 0) > 0 && (
          <>
            <p className="hint">{text("found_count", { count: result.chunks?.length ?? 0, strategy: result.strategy ?? "–" })}</p>
            <ol className="entries">
              {result.chunks?.map((chunk, index) => (
                <li key={chunk.chunk_id ?? index}>
                  <p>
                    <code>[{chunk.document_id}]</code> <strong dir="auto">{chunk.title ?? ""}</strong> {chunk.score !== undefined && <span className="hint">{text("score", { score: chunk.score.toFixed(3) })}</span>}
                  </p>
                  <p className="prose" dir="auto">
                    {chunk.text}
                  </p>
                </li>
              ))}
            </ol>
          </>
        )}
      </div>
      <Commands items={[{ label: text("search_documents"), request: { method: "POST", path, body } }]} />
    </Section>
  );
}

function AddDocument({ asset, onClose }: { asset: Asset; onClose: () => void }) {
  const text = useConsoleText();
  const { workspace } = useConsole();
  const [name, setName] = useState("");
  const [title, setTitle] = useState("");
  const [body, setBody] = useState("");
  const document = { document_id: name, text: body, ...(title.trim() ? { title: title.trim() } : {}) };
  const blocked = !NAME_PATTERN.test(name) ? text("document_name_invalid") : body.trim() ? null : text("document_text_needed");
  return (
    <Dialog
      title={text("add_document")}
      confirm={text("add_document")}
      request={{ method: "POST", path: apiPath("/v1/assets/{asset_id}/documents", { asset_id: asset.asset_id }, { workspace_id: workspace.workspace_id }), body: { documents: [document] } }}
      blocked={blocked}
      onClose={onClose}
    >
      <p>{text("add_document_text")}</p>
      <Field label={text("name")} hint={text("document_name_hint")}>
        {(id) => <input id={id} value={name} maxLength={128} autoComplete="off" onChange={(event) => setName(event.target.value.trim())} />}
      </Field>
      <Field label={text("title")}>{(id) => <input id={id} value={title} maxLength={300} onChange={(event) => setTitle(event.target.value)} />}</Field>
      <Field label={text("document_text")}>{(id) => <textarea id={id} rows={8} value={body} onChange={(event) => setBody(event.target.value)} />}</Field>
    </Dialog>
  );
}
