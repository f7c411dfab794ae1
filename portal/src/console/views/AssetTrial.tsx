import { useMemo, useState, type ReactNode } from "react";
import { apiPath } from "../../api/paths";
import type { Problem } from "../../api/problem";
import type { Json } from "../../api/types";
import { ProblemNotice } from "../../ui/ProblemNotice";
import { useConsole, useDryRun } from "../core/console";
import { sortedJson } from "../core/diff";
import { findingOfOffset, parsedObject } from "../core/positions";
import { argumentFields, argumentValues, argumentWords, firstInput, type ArgumentField } from "../core/dryRunInputs";
import type { Asset, Schemas } from "../core/types";
import { useConsoleText } from "../i18n";
import { Action, Commands, Facts, Section, Tag } from "../ui/basics";
import { Field } from "../ui/Filters";
import { Table } from "../ui/Table";
import { scopeOf } from "./AssetPage";

interface Props {
  asset: Asset;
  /** The text of the editor. */
  value: string;
  /** The parsed JSON object; null while the text is invalid. */
  content: Record<string, Json> | null;
  /** Shows the messages about the content at their lines. */
  onRefused: (problem: Problem) => void;
}

/** A dry run with the unsaved text of the editor, for prompt templates and policy bundles. */
export function AssetTrial(props: Props) {
  if (props.asset.asset_kind === "prompt_template") return <PromptPreview {...props} />;
  if (props.asset.asset_kind === "policy_bundle") return <PolicyTrial {...props} />;
  return null;
}

/** Requests a dry run, and records the request to which the response applies. */
function useTrial<T>(path: string, body: Record<string, Json>, onRefused: (problem: Problem) => void) {
  const ask = useDryRun<T>();
  const [requestedKey, setRequestedKey] = useState<string | null>(null);
  const key = JSON.stringify(body);
  const request = { method: "POST" as const, path, body };
  const send = () => {
    setRequestedKey(key);
    ask.mutate(request, { onError: onRefused });
  };
  return { request, send, answer: ask.data ?? null, problem: ask.error, isPending: ask.isPending, isStale: requestedKey !== null && requestedKey !== key };
}

/** Shows a response, and a note if it applies to an older text. */
function Answer({ id, isStale, children }: { id: string; isStale: boolean; children: ReactNode }) {
  const text = useConsoleText();
  return (
    <div role="status" data-testid={id}>
      {isStale && <p className="hint">{text("trial_stale")}</p>}
      {children}
    </div>
  );
}

function PromptPreview({ asset, value, content, onRefused }: Props) {
  const text = useConsoleText();
  const { workspace } = useConsole();
  const { asset_id } = asset;
  const [typed, setTyped] = useState<Record<string, string>>({});
  const [further, setFurther] = useState("{}");
  const fields = useMemo(() => argumentFields(content), [content]);
  const extra = parsedObject(further);
  const values = argumentValues(fields, typed, extra ?? {});
  const path = apiPath("/v1/assets/{asset_id}/prompt-preview", { asset_id }, { workspace_id: workspace.workspace_id });
  const trial = useTrial<Schemas["PromptPreview"]>(path, { content: content ?? {}, arguments: values }, onRefused);
  const blocked = content === null ? text("json_object_needed") : extra === null ? text("arguments_object_needed") : trial.isPending ? text("checking_text") : null;
  const { problem } = trial;
  const offset = problem?.detail["offset"];
  // A missing argument is not an error of the text, so its position is shown only here and not in the editor.
  const finding = problem?.code.startsWith("prompt_argument") && typeof offset === "number" && !trial.isStale ? findingOfOffset(value, offset, problem.code, problem.message) : null;
  return (
    <Section title={text("prompt_preview")}>
      <p className="hint">{text("prompt_preview_text")}</p>
      <div className="stack">
        {fields.map((field) => (
          <ArgumentInput key={field.name} field={field} value={typed[field.name] ?? ""} onChange={(one) => setTyped({ ...typed, [field.name]: one })} />
        ))}
        <Field label={text("further_arguments")} hint={text("further_arguments_hint")}>
          {(id) => <textarea id={id} rows={2} spellCheck={false} value={further} onChange={(event) => setFurther(event.target.value)} />}
        </Field>
      </div>
      <div className="buttons">
        <Action label={text("prompt_preview")} operation="preview_prompt" scope={scopeOf(asset)} blocked={blocked} onClick={trial.send} />
      </div>
      {problem && <ProblemNotice problem={problem} />}
      {finding && <p className="hint">{text("argument_place", { line: finding.line, column: finding.column })}</p>}
      <Answer id="rendered" isStale={trial.answer !== null && trial.isStale}>
        {trial.answer && (
          <pre tabIndex={0} aria-label={text("rendered")} className="wrap" dir="auto">
            {trial.answer.text}
          </pre>
        )}
      </Answer>
      <Commands items={[{ label: text("prompt_preview"), request: trial.request, words: ["prompt", "render", "content.json", ...argumentWords(values)] }]} />
    </Section>
  );
}

/** The input field of one argument. */
function ArgumentInput({ field: { name, type }, value, onChange }: { field: ArgumentField; value: string; onChange: (value: string) => void }) {
  const text = useConsoleText();
  if (type === "boolean") {
    return (
      <Field label={name}>
        {(id) => (
          <select id={id} value={value} onChange={(event) => onChange(event.target.value)}>
            <option value="">{text("choose")}</option>
            <option value="true">{text("yes")}</option>
            <option value="false">{text("no")}</option>
          </select>
        )}
      </Field>
    );
  }
  if (type === "number") {
    return <Field label={name}>{(id) => <input id={id} inputMode="decimal" autoComplete="off" value={value} onChange={(event) => onChange(event.target.value)} />}</Field>;
  }
  return (
    <Field label={name} {...(type === "array" ? { hint: text("argument_list_hint") } : {})}>
      {(id) => <textarea id={id} rows={2} value={value} onChange={(event) => onChange(event.target.value)} />}
    </Field>
  );
}

type Rule = Schemas["TrialRule"];

function PolicyTrial({ asset, content, onRefused }: Props) {
  const text = useConsoleText();
  const { workspace } = useConsole();
  const { asset_id } = asset;
  const [typed, setTyped] = useState(() => sortedJson(firstInput(content)));
  const input = parsedObject(typed);
  const path = apiPath("/v1/assets/{asset_id}/policy-trial", { asset_id }, { workspace_id: workspace.workspace_id });
  const trial = useTrial<Schemas["PolicyTrial"]>(path, { content: content ?? {}, input: input ?? {} }, onRefused);
  const blocked = content === null ? text("json_object_needed") : input === null ? text("input_object_needed") : trial.isPending ? text("checking_text") : null;
  const fields = trial.problem?.fields.filter((one) => one.path === "input") ?? [];
  return (
    <Section title={text("try_policy")}>
      <p className="hint">{text("try_policy_text")}</p>
      <div className="stack">
        <Field label={text("policy_input")} hint={text("policy_input_hint")}>
          {(id) => <textarea id={id} rows={8} spellCheck={false} value={typed} onChange={(event) => setTyped(event.target.value)} />}
        </Field>
      </div>
      <div className="buttons">
        <Action label={text("try_policy")} operation="try_policy" scope={scopeOf(asset)} blocked={blocked} onClick={trial.send} />
      </div>
      {trial.problem && <ProblemNotice problem={trial.problem} />}
      {fields.map((one) => (
        <p key={one.code} className="hint">
          {one.message} ({one.code})
        </p>
      ))}
      <Answer id="decided" isStale={trial.answer !== null && trial.isStale}>
        {trial.answer && <Decision trial={trial.answer} />}
      </Answer>
      <Commands items={[{ label: text("try_policy"), request: trial.request, words: ["policy", "try", "content.json", "--input", "input.json"] }]} />
    </Section>
  );
}

function Decision({ trial: { decision, rules } }: { trial: Schemas["PolicyTrial"] }) {
  const text = useConsoleText();
  const { outcome, reason_code: reason, obligations } = decision;
  return (
    <>
      <Facts
        items={[
          [text("decision"), <Tag key="o" value={outcome} />],
          [text("reason"), <code key="r">{reason}</code>],
          [text("obligations"), obligations.length > 0 ? obligations.join(", ") : "–"],
        ]}
      />
      <Table
        label={text("rule_by_rule")}
        rows={rules}
        keyOf={(one) => one.rule}
        columns={[
          { name: text("rule"), render: (one) => <code>{one.rule}</code> },
          { name: text("holds"), render: (one) => text(`holds_${one.holds}`) },
          { name: text("asks_for"), render: (one) => <RuleEffect rule={one} /> },
          { name: text("parts"), render: (one) => <Clauses rule={one} /> },
        ]}
      />
    </>
  );
}

function RuleEffect({ rule }: { rule: Rule }) {
  return (
    <>
      <Tag value={rule.outcome} /> <code>{rule.reason_code}</code>
    </>
  );
}

/** Each clause of a condition, and the reason if it does not hold. */
function Clauses({ rule: { clauses, operator } }: { rule: Rule }) {
  const text = useConsoleText();
  return (
    <ul className="findings">
      {clauses.map(({ source, holds, missing_field: missing }, index) => (
        <li key={index}>
          {index > 0 && operator && <code>{operator} </code>}
          <code>{source}</code>: {text(`holds_${holds}`)}
          {missing && `, ${text("input_lacks", { name: missing })}`}
        </li>
      ))}
    </ul>
  );
}
