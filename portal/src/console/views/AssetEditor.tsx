import type { RJSFSchema } from "@rjsf/utils";
import { lazy, Suspense, useEffect, useMemo, useRef, useState } from "react";
import { apiPath } from "../../api/paths";
import type { Problem } from "../../api/problem";
import type { Json } from "../../api/types";
import { useConsole, useRead } from "../core/console";
import { sortedJson } from "../core/diff";
import { findingOfOffset, findingsOfFields, findingsOfLines, isLostByForm, parsedObject, syntaxFinding, type Finding } from "../core/positions";
import type { Asset, AssetVersion, Schemas } from "../core/types";
import { useAddress } from "../core/useAddress";
import { useConsoleText } from "../i18n";
import { Action, Commands, Failed, Loading } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Field, NoteField } from "../ui/Filters";
import { Table } from "../ui/Table";
import { scopeOf } from "./AssetPage";
import { AssetTrial } from "./AssetTrial";

const CodeEditor = lazy(() => import("../ui/CodeEditor"));
const AssetForm = lazy(() => import("../forms/AssetForm"));

/** The editor of the next version, which starts with the content of the newest version. */
export function AssetEditor({ asset, newest, isPending }: { asset: Asset; newest: AssetVersion | null; isPending: boolean }) {
  const text = useConsoleText();
  const { workspace } = useConsole();
  const { asset_id, asset_kind: kind } = asset;
  const workspace_id = workspace.workspace_id;
  const isFlow = kind === "orchestration_flow";
  // Reads the version of a flow again, because lists omit the YAML text.
  const full = useRead<AssetVersion>(newest && isFlow ? apiPath("/v1/assets/{asset_id}/versions/{asset_version_id}", { asset_id, asset_version_id: newest.asset_version_id }, { workspace_id }) : null);
  const schema = useRead<Schema>(apiPath("/v1/asset-kinds/{kind}/schema", { kind }));
  if (full.error ?? schema.error) return <Failed problem={full.error ?? schema.error} />;
  if (isPending || (newest && isFlow && !full.data) || !schema.data) return <Loading what={text("tab_edit")} />;
  const first = newest ? (full.data?.value.content_yaml ?? sortedJson(newest.content as Json)) : isFlow ? EMPTY_FLOW : sortedJson(skeletonOf(schema.data.value));
  return <Editor key={newest?.asset_version_id ?? "first"} asset={asset} first={first} base={newest?.version_label ?? null} schema={schema.data.value} />;
}

const EMPTY_FLOW = 'entry_step: answer\nsteps:\n  - id: answer\n    type: return\n    output: {}\n';

interface Schema {
  required?: string[];
  properties?: Record<string, { description?: string; type?: string | string[]; default?: Json; enum?: Json[]; "x-enforcement"?: string }>;
}

/** The initial content of a new asset: the required fields of its kind with an empty value of their type. */
export function skeletonOf({ required = [], properties = {} }: Schema): Json {
  const empty: Record<string, Json> = { string: "", object: {}, array: [], boolean: false, number: 0, integer: 0 };
  const valueOf = (name: string): Json => {
    const { default: given, enum: values, type } = properties[name] ?? {};
    return given ?? values?.[0] ?? empty[String(Array.isArray(type) ? type[0] : type)] ?? null;
  };
  return Object.fromEntries(required.map((name) => [name, valueOf(name)]));
}

/** Time without a change of the text after which the server checks it, in milliseconds. */
const REST_MS = 500;

function Editor({ asset, first, base, schema }: { asset: Asset; first: string; base: string | null; schema: Schema }) {
  const text = useConsoleText();
  const { workspace } = useConsole();
  const { asset_id, slug, asset_kind: kind } = asset;
  const workspace_id = workspace.workspace_id;
  const isFlow = kind === "orchestration_flow";
  const [value, setValue] = useState(first);
  const [label, setLabel] = useState("");
  const [note, setNote] = useState("");
  const [isOpen, setOpen] = useState(false);
  /** The server's findings for a JSON content, and the text to which they apply. */
  const [refused, setRefused] = useState<{ value: string; findings: Finding[] } | null>(null);
  const goTo = useRef<((offset: number) => void) | null>(null);
  const goToField = useRef<((path: string) => void) | null>(null);
  const [search, change] = useAddress();
  const [unfinished, setUnfinished] = useState(0);
  /**
   * Counts the content changes from other sources than the form. Each needs a new form, because a form reads it once.
   */
  const [origin, setOrigin] = useState(0);
  const checked = useFlowCheck(isFlow ? asset_id : null, value);
  const content = useMemo(() => (isFlow ? null : parsedObject(value)), [isFlow, value]);
  const syntaxFindings = useMemo(() => (isFlow || content !== null ? [] : [syntaxFinding(value, text("json_object_needed"))].filter((finding) => finding !== null)), [isFlow, content, value, text]);
  const isFormPossible = useMemo(() => content !== null && !isLostByForm(content), [content]);
  const isForm = !isFlow && search["view"] === "form" && content !== null && isFormPossible;
  const findings = isFlow ? checked.findings : syntaxFindings.length > 0 ? syntaxFindings : refused?.value === value ? refused.findings : NONE;
  const blocked = value === first && base !== null ? text("nothing_changed") : !isFlow && content === null ? text("json_object_needed") : findings.length > 0 ? text("has_findings", { count: findings.length }) : unfinished > 0 ? text("view_unfinished") : isFlow && checked.isPending ? text("checking_text") : null;
  const optional = { ...(label.trim() ? { version_label: label.trim() } : {}), ...(note.trim() ? { change_note: note.trim() } : {}) };
  const request = isFlow
    ? { method: "POST" as const, path: apiPath("/v1/flows/{flow_id}/versions", { flow_id: asset_id }, { workspace_id }), body: { content_yaml: value, ...optional } }
    : { method: "POST" as const, path: apiPath("/v1/assets/{asset_id}/versions", { asset_id }, { workspace_id }), body: { content: content ?? {}, ...optional } };
  /** Shows the messages of a refusal at their lines; returns false if the refusal has no positions. */
  const placeRefusal = (problem: Problem) => {
    const placedFindings = refusalFindings(problem, value, isFlow);
    if (placedFindings.length > 0) setRefused({ value, findings: placedFindings });
    return placedFindings.length > 0;
  };
  const messages = useMemo(() => findings.flatMap(({ code, field }) => (field ? [{ code, ...field }] : [])), [findings]);
  const startOver = () => {
    setValue(first);
    setOrigin(origin + 1);
  };
  const words = isFlow ? ["flows", "add-version", slug, "flow.yaml"] : ["assets", "add-version", slug, "content.json"];
  return (
    <>
      <p className="hint">{base === null ? text("edit_first") : text(isFlow ? "edit_flow_text" : "edit_text", { name: base })} {!isFlow && text("form_intro")}</p>
      {!isFlow && <ViewSwitch isForm={isForm} blocked={content === null ? text("view_needs_json") : !isFormPossible ? text("form_unkept") : isForm && unfinished > 0 ? text("view_unfinished") : null} onChange={(view) => change({ view })} />}
      <Suspense fallback={<Loading what={text("tab_edit")} />}>
        {isForm ? (
          <AssetForm key={origin} schema={schema as RJSFSchema} content={content} onChange={setValue} messages={messages} goTo={goToField} onUnfinished={setUnfinished} />
        ) : (
          <CodeEditor label={text("content")} language={isFlow ? "yaml" : "json"} value={value} onChange={setValue} findings={findings} goTo={goTo} />
        )}
      </Suspense>
      {checked.problem && <Failed problem={checked.problem} />}
      <div role="status" data-testid="findings">
        {findings.length === 0 ? (
          <p className="hint">{isFlow ? text(checked.isPending ? "checking_text" : "flow_valid") : content === null || isForm ? "" : text("json_valid")}</p>
        ) : (
          <ul className="findings">
            {findings.map((one) => (
              <li key={`${one.from} ${one.code} ${one.message}`}>
                {isForm && one.field ? (
                  <button type="button" className="plain" onClick={() => goToField.current?.(one.field?.path ?? "")}>
                    {text("at_field", { name: one.field.path.replace(/^content\.?/, "") || text("form_whole") })}
                  </button>
                ) : (
                  <button type="button" className="plain" onClick={() => goTo.current?.(one.from)}>
                    {text("at_line", { line: one.line, column: one.column })}
                  </button>
                )}{" "}
                {isForm && one.field ? one.field.message : one.message} ({one.code})
              </li>
            ))}
          </ul>
        )}
      </div>
      <div className="buttons">
        <Action label={text("new_version")} tone="primary" operation="create_asset_version" scope={scopeOf(asset)} blocked={blocked} onClick={() => setOpen(true)} />
        {value !== first && (
          <button type="button" className="plain" onClick={() => startOver()}>
            {text("start_over")}
          </button>
        )}
      </div>
      <AssetTrial asset={asset} value={value} content={content} onRefused={placeRefusal} />
      <FieldHelp schema={schema} />
      <Commands items={[{ label: text("new_version"), request, words }, ...withoutServer(asset, text("without_server"))]} />
      {isOpen && (
        <Dialog
          title={text("new_version")}
          confirm={text("new_version")}
          request={request}
          onClose={() => setOpen(false)}
          onRefused={placeRefusal}
        >
          <p>{text("new_version_text", { name: slug })}</p>
          <Field label={text("version")} hint={text("label_hint")}>
            {(id) => <input id={id} value={label} maxLength={64} pattern="[A-Za-z0-9._\-]{1,64}" autoComplete="off" onChange={(event) => setLabel(event.target.value)} />}
          </Field>
          <NoteField label={text("change_note")} value={note} onChange={setNote} />
        </Dialog>
      )}
    </>
  );
}

const NONE: readonly Finding[] = [];

/** Switches between code and form. A blocked switch stays focusable and shows the reason. */
function ViewSwitch({ isForm, blocked, onChange }: { isForm: boolean; blocked: string | null; onChange: (view: string) => void }) {
  const text = useConsoleText();
  return (
    <div className="buttons" role="group" aria-label={text("editor_view")}>
      {(["code", "form"] as const).map((view) => {
        const isShown = (view === "form") === isForm;
        return (
          <button key={view} type="button" className="plain" aria-pressed={isShown} aria-disabled={!isShown && blocked !== null} aria-describedby={!isShown && blocked !== null ? "view-blocked" : undefined} onClick={() => (isShown || blocked !== null ? undefined : onChange(view === "form" ? "form" : ""))}>
            {text(view === "form" ? "view_form" : "view_code")}
          </button>
        );
      })}
      {blocked !== null && (
        <span id="view-blocked" className="hint reason">
          {blocked}
        </span>
      )}
    </div>
  );
}

/** Fields of a request that are not part of the edited text. */
const OUTSIDE = /^(?:input|arguments|asset_id)\b/;

function refusalFindings(problem: Problem, value: string, isFlow: boolean): Finding[] {
  const errors = problem.detail["errors"];
  if (isFlow) return Array.isArray(errors) ? findingsOfLines(value, errors as Schemas["FlowError"][]) : [];
  const { offset } = problem.detail;
  if (typeof offset === "number" && !problem.code.startsWith("prompt_argument")) return [findingOfOffset(value, offset, problem.code, problem.message)];
  return findingsOfFields(value, problem.fields.filter(({ path }) => !OUTSIDE.test(path)));
}

/** Commands that check the content without a server. */
function withoutServer({ asset_kind: kind }: Asset, label: string) {
  const path = apiPath("/v1/asset-kinds/{kind}/schema", { kind });
  return [{ label, request: { method: "GET", path } as const, words: ["assets", "check", "content.json"] }];
}

/** Checks a flow on the server when its text has not changed for `REST_MS`. */
function useFlowCheck(flow_id: string | null, value: string) {
  const { client, workspace } = useConsole();
  const [state, setState] = useState<{ value: string | null; findings: Finding[]; problem: Problem | null }>({ value: null, findings: [], problem: null });
  const workspace_id = workspace.workspace_id;
  useEffect(() => {
    if (flow_id === null) return;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      const path = apiPath("/v1/flows/{flow_id}/validate", { flow_id }, { workspace_id });
      client
        .send(path, { method: "POST", body: { content_yaml: value }, signal: stop.signal })
        .then(async (response) => {
          const { errors } = (await response.json()) as Schemas["FlowValidation"];
          setState({ value, findings: findingsOfLines(value, errors), problem: null });
        })
        .catch((problem: unknown) => {
          if (!stop.signal.aborted) setState({ value, findings: [], problem: problem as Problem });
        });
    }, REST_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [client, flow_id, value, workspace_id]);
  const isPending = state.value !== value;
  return { isPending, findings: isPending ? (NONE as Finding[]) : state.findings, problem: isPending ? null : state.problem };
}

/** The descriptions of a kind's fields, from its schema. */
function FieldHelp({ schema }: { schema: Schema }) {
  const text = useConsoleText();
  const rows = Object.entries(schema.properties ?? {});
  return (
    <details>
      <summary>{text("field_help")}</summary>
      <Table
        label={text("field_help")}
        rows={rows}
        keyOf={([name]) => name}
        columns={[
          { name: text("field"), render: ([name]) => <code>{name}</code> },
          { name: text("required"), render: ([name]) => text(schema.required?.includes(name) ? "yes" : "no") },
          { name: text("description"), render: ([, field]) => field.description ?? "" },
        ]}
      />
    </details>
  );
}
