import { Link, useNavigate } from "@tanstack/react-router";
import { useState, type FormEvent } from "react";
import { apiPath } from "../../api/paths";
import { ProblemNotice } from "../../ui/ProblemNotice";
import { filtersOf } from "../core/address";
import { randomId, useChange, useConsole, useList } from "../core/console";
import type { Schemas } from "../core/types";
import { useAddress } from "../core/useAddress";
import { useConsoleText, useValueText } from "../i18n";
import { Action, Commands, Empty, Section, Tag, Time } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Field, Filters, FilterSelect } from "../ui/Filters";
import { useTitle } from "../ui/useTitle";
import { VirtualTable } from "../ui/VirtualTable";

type Plan = Schemas["GeneratedBundle"];

/** The list of use cases, and the form that describes a new one. */
export function UseCases() {
  const text = useConsoleText();
  const { workspace } = useConsole();
  const [search] = useAddress();
  useTitle(text("nav_use_cases"));
  const path = apiPath("/v1/use-cases", {}, { workspace_id: workspace.workspace_id, ...filtersOf(search, ["status"]), limit: "200" });
  const list = useList<Schemas["UseCase"]>(path, { refresh: true });
  return (
    <>
      <h1>{text("nav_use_cases")}</h1>
      <Describe />
      <Section title={text("nav_use_cases")}>
        <Filters names={["status"]}>
          <FilterSelect name="status" label={text("state")} options={["draft", "pending_access", "active", "archived"]} />
        </Filters>
        <VirtualTable
          label={text("nav_use_cases")}
          list={list}
          keyOf={(one) => one.use_case_id}
          empty={<Empty>{text("use_cases_empty")}</Empty>}
          columns={[
            { name: text("name"), render: (one) => <Link to="/use-cases/$id" params={{ id: one.use_case_id }}>{one.name}</Link> },
            { name: text("state"), render: (one) => <Tag value={one.status} /> },
            { name: text("created_by"), render: (one) => one.created_by },
            { name: text("changed"), render: (one) => <Time value={one.updated_at} /> },
          ]}
        />
      </Section>
      <Commands items={[{ label: text("this_list"), request: { method: "GET", path }, words: ["use-cases", "list"] }]} />
    </>
  );
}

/**
 * The form for a new use case: its description, the generator's question, and the plan before any resource is created.
 */
function Describe() {
  const text = useConsoleText();
  const navigate = useNavigate();
  const { workspace } = useConsole();
  const workspace_id = workspace.workspace_id;
  const scope = { kind: "workspace", ref: workspace_id } as const;
  const [description, setDescription] = useState("");
  const [clarification, setClarification] = useState("");
  const [key, setKey] = useState(randomId);
  const [plan, setPlan] = useState<Plan | null>(null);
  // The description from which the plan was generated. The text of the field may have changed since.
  const [planned, setPlanned] = useState("");
  const [isOpen, setOpen] = useState(false);
  const generate = useChange(key);
  const fullDescription = clarification.trim() ? `${description.trim()}\n${clarification.trim()}` : description.trim();
  const path = apiPath("/v1/use-cases/generate", {}, { workspace_id });
  const ask = (event?: FormEvent) => {
    event?.preventDefault();
    if (!fullDescription) return;
    generate.mutate(
      { method: "POST", path, body: { description: fullDescription } },
      {
        onSuccess: (found) => {
          setPlan(found as Plan);
          setPlanned(fullDescription);
        },
        onSettled: () => setKey(randomId()),
      },
    );
  };
  return (
    <Section title={text("describe")}>
      <form onSubmit={ask} className="stack">
        <Field label={text("description")} hint={text("describe_hint")}>
          {(id) => <textarea id={id} rows={3} maxLength={4_000} value={description} onChange={(event) => setDescription(event.target.value)} />}
        </Field>
        {plan?.question && (
          <div className="notice notice-wait" data-testid="question">
            <p>{plan.question}</p>
            <Field label={text("answer")}>{(id) => <input id={id} value={clarification} placeholder={plan.proposed_answer ?? ""} onChange={(event) => setClarification(event.target.value)} />}</Field>
            {plan.proposed_answer && (
              <button type="button" className="plain" onClick={() => setClarification(plan.proposed_answer ?? "")}>
                {text("take_proposed", { answer: plan.proposed_answer })}
              </button>
            )}
          </div>
        )}
        <div className="buttons">
          <Action label={generate.isPending ? text("generating") : text("generate")} tone="primary" operation="generate_use_case" scope={scope} blocked={fullDescription ? null : text("describe_first")} onClick={() => ask()} />
        </div>
      </form>
      {generate.error && <ProblemNotice problem={generate.error} />}
      {plan?.bundle && !plan.needs_clarification && (
        <>
          <PlanView plan={plan} />
          <div className="buttons">
            <Action label={text("keep_draft")} operation="create_use_case" scope={scope} blocked={plan.gaps?.redacted ? text("plan_redacted") : null} onClick={() => setOpen(true)} />
          </div>
        </>
      )}
      <Commands items={[{ label: text("generate"), request: { method: "POST", path, body: { description: fullDescription } }, words: ["use-cases", "generate", fullDescription || text("description")] }]} />
      {isOpen && plan?.bundle && (
        <Dialog
          title={text("keep_draft")}
          confirm={text("keep_draft")}
          request={{ method: "POST", path: apiPath("/v1/use-cases", {}, { workspace_id }), body: { source_description: planned, bundle: plan.bundle } }}
          onClose={() => setOpen(false)}
          onDone={(made) => void navigate({ to: "/use-cases/$id", params: { id: (made as Schemas["UseCase"]).use_case_id } })}
        >
          <p>{text("keep_draft_text")}</p>
        </Dialog>
      )}
    </Section>
  );
}

/** The plan: existing resources, resources that publication creates, and access that must be granted. */
function PlanView({ plan }: { plan: Plan }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const bundle = (plan.bundle ?? {}) as Record<string, unknown>;
  const gaps = plan.gaps;
  const entry = (name: string, gap: Schemas["Gap"]) => (
    <li key={name + (gap.ref ?? "")}>
      {name}: <Tag value={gap.kind} /> {gap.ref ?? ""}
    </li>
  );
  return (
    <div data-testid="plan">
      <h3>{String(bundle["name"] ?? "")}</h3>
      <p>{String(bundle["summary"] ?? "")}</p>
      {gaps && (
        <ul>
          {entry(valueText("model_policy"), gaps.model_policy)}
          {entry(valueText("policy_bundle"), gaps.policy_bundle)}
          {gaps.connections.map((gap) => entry(text("connection"), gap))}
        </ul>
      )}
      {plan.warnings.length > 0 && (
        <ul>
          {plan.warnings.map((warning) => (
            <li key={warning.code + warning.message}>
              {warning.message} ({warning.code})
            </li>
          ))}
        </ul>
      )}
      <details>
        <summary>{text("exact_plan")}</summary>
        <pre tabIndex={0} aria-label={text("exact_plan")} className="wrap">
          {JSON.stringify(bundle, null, 2)}
        </pre>
      </details>
    </div>
  );
}
