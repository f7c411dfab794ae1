import { lazy, Suspense, useEffect, useRef, useState } from "react";
import type { Client } from "../api/client";
import { Problem } from "../api/problem";
import type { OutputDisplay } from "../api/types";
import { useText, type Translate } from "../i18n";
import { Output, PlainOutput } from "../output/Output";
import { plainText } from "../output/plain";
import { Sources } from "../output/Sources";
import { SpokenStream } from "../ui/SpokenStream";
import { CopyButton } from "../ui/CopyButton";
import { ProblemNotice } from "../ui/ProblemNotice";
import type { RunOutcome, RunState } from "./run";

const WhyPanel = lazy(() => import("../evidence/WhyPanel"));

interface Props {
  state: RunState;
  client: Client;
  display: OutputDisplay | undefined;
  onCancel: () => void;
  onRetry?: (() => void) | undefined;
}

/** Shows a run: its progress, then its result or its refusal. */
export default function RunView({ state, client, display, onCancel, onRetry }: Props) {
  const text = useText();
  const result = useRef<HTMLHeadingElement>(null);
  const ended = state.phase === "ended" ? state.outcome.executionId : null;
  useEffect(() => {
    if (ended) result.current?.focus({ preventScroll: false });
  }, [ended]);
  return (
    <div className="stack">
      {(state.phase === "running" || state.phase === "sending") && <Progress state={state} onCancel={onCancel} />}
      {state.phase === "review" && (
        <section className="notice" data-state="review">
          <h2>{text("review_title")}</h2>
          <p>{text("review_text")}</p>
          <p className="hint">{text("run_id", { id: state.executionId })}</p>
        </section>
      )}
      {state.phase === "refused" && <ProblemNotice problem={state.problem} onRetry={onRetry} />}
      {state.phase === "ended" && (
        <section className="stack" data-state={state.outcome.status}>
          <h2 tabIndex={-1} ref={result}>
            {text("result")}
          </h2>
          <OutcomeView client={client} outcome={state.outcome} display={display} />
          <Why client={client} executionId={state.outcome.executionId} />
        </section>
      )}
    </div>
  );
}

function Progress({ state, onCancel }: { state: RunState; onCancel: () => void }) {
  const text = useText();
  if (state.phase !== "running") return null;
  return (
    <section className="stack" data-state={state.started ? "running" : "queued"}>
      {state.steps.length > 0 && (
        <ol className="steps" aria-label={text("steps")}>
          {state.steps.map((step) => (
            <li key={step.id} className={`step step-${step.state}`}>
              <bdi>{step.id}</bdi> <span className="hint">({text(`step_${step.state}`)})</span>
            </li>
          ))}
        </ol>
      )}
      {state.text !== "" && <PlainOutput value={state.text} />}
      <SpokenStream value={state.text} />
      <div className="actions">
        <button type="button" className="secondary" onClick={onCancel}>
          {text("stop")}
        </button>
      </div>
    </section>
  );
}

/** Shows the result of an ended run, or the reason why it has none. */
export function OutcomeView({ client, outcome, display }: { client: Client; outcome: RunOutcome; display: OutputDisplay | undefined }) {
  const text = useText();
  const problem = problemOfOutcome(outcome, text);
  if (problem) return <ProblemNotice problem={problem} />;
  return (
    <>
      <Output value={outcome.output} display={display} />
      <Sources client={client} outcome={outcome} />
      <div className="actions">
        <CopyButton value={plainText(outcome.output)} />
      </div>
    </>
  );
}

/** Converts an outcome without a result to a problem; null for an outcome with a result. */
function problemOfOutcome(outcome: RunOutcome, text: Translate): Problem | null {
  const detail = { execution_id: outcome.executionId };
  const make = (code: string, message = "") => new Problem(200, code, message, null, [], null, detail);
  if (outcome.status === "completed") return null;
  if (outcome.status === "cancelled") return make("cancelled");
  if (outcome.status === "denied") {
    return outcome.error?.code === "review_rejected"
      ? make("review_rejected")
      : new Problem(200, "policy_denied", "", null, [], null, { ...detail, reason_code: outcome.error?.code });
  }
  const { code = "failed", message = "" } = outcome.error ?? {};
  return ["contract_refused", "guardrail_blocked", "timeout"].includes(code)
    ? make(code)
    : make("failed", message || code || text("p_internal"));
}

/** The evidence of an answer, which is loaded when the reader opens it. */
export function Why({ client, executionId }: { client: Client; executionId: string }) {
  const text = useText();
  const [isOpen, setIsOpen] = useState(false);
  return (
    <details className="why" onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>{text("why")}</summary>
      {isOpen && (
        <Suspense fallback={<p>{text("loading")}</p>}>
          <WhyPanel client={client} executionId={executionId} />
        </Suspense>
      )}
    </details>
  );
}
