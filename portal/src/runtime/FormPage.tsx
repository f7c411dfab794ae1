import { lazy, Suspense, useCallback, useEffect, useMemo, useState } from "react";
import type { Json } from "../api/types";
import { Form } from "../forms/Form";
import { initialValues, serverMessages, type FormValues } from "../forms/values";
import { useText, type Translate } from "../i18n";
import type { ModeProps } from "./WorkloadPage";
import type { RunState } from "./run";
import { useRun } from "./useRun";

// The module is loaded after the form is shown. The announcement for screen readers below does not depend on it.
const loadRunView = () => import("./RunView");
const RunView = lazy(loadRunView);

/** The form of a workload with its result below. The presentation mode `block` shows both on one compact card. */
export function FormPage({ client, workload, environment, isGuest, channel, host }: ModeProps) {
  const text = useText();
  const fields = useMemo(() => workload.interface_config.input_fields ?? [], [workload]);
  const [values, setValues] = useState<FormValues>(() => initialValues(fields));
  const run = useRun(client, workload.slug, isGuest);
  const [submittedInputs, setSubmittedInputs] = useState<Record<string, Json> | null>(null);
  const { state, start, reset } = run;
  const busy = state.phase === "sending" || state.phase === "running";
  const isBlock = workload.interface_config.presentation_mode === "block";

  const problem = state.phase === "refused" ? state.problem : null;
  const messages = useMemo(() => (problem ? serverMessages(problem.fields, text) : {}), [problem, text]);

  useEffect(() => void loadRunView(), []);

  useEffect(() => {
    if (host === null) return;
    if (host.type === "fairway:reset") {
      reset();
      setValues(initialValues(fields));
    } else if (host.type === "fairway:setInputs") {
      const { inputs } = host;
      setValues((before) => {
        const knownFields = fields.filter((field) => Object.hasOwn(inputs, field.name));
        const next = knownFields.map((field) => {
          const value = inputs[field.name];
          return [field.name, field.type === "boolean" ? value === true : String(value ?? "")] as const;
        });
        return { ...before, ...Object.fromEntries(next) };
      });
    }
  }, [host, fields, reset]);

  useEffect(() => {
    if (state.phase === "ended") {
      channel?.send({ type: "fairway:ended", executionId: state.outcome.executionId, status: state.outcome.status });
    } else if (state.phase === "refused") {
      channel?.send({ type: "fairway:error", code: state.problem.code, requestId: state.problem.requestId });
    }
  }, [state, channel]);

  const submit = useCallback(
    (inputs: Record<string, Json>) => {
      setSubmittedInputs(inputs);
      start({ slug: workload.slug, environment, inputs });
    },
    [start, workload.slug, environment],
  );
  return (
    <div className={isBlock ? "card stack" : "stack"}>
      <Form fields={fields} values={values} onChange={setValues} serverMessages={messages} onSubmit={submit}>
        <div className="actions">
          <button type="submit" disabled={busy} title={busy ? text("running") : undefined}>
            {text(state.phase === "ended" ? "run_again" : "run")}
          </button>
          {(state.phase === "ended" || state.phase === "refused") && (
            <button
              type="button"
              className="secondary"
              onClick={() => {
                reset();
                setValues(initialValues(fields));
              }}
            >
              {text("reset")}
            </button>
          )}
        </div>
      </Form>
      <p role="status" className={busy ? "status" : "visually-hidden"}>
        {announcement(state, text)}
      </p>
      {state.phase !== "idle" && (
        <Suspense fallback={null}>
          <RunView
            state={state}
            client={client}
            display={workload.interface_config.output_display}
            onCancel={run.cancel}
            onRetry={submittedInputs && problem?.isTemporary ? () => submit(submittedInputs) : undefined}
          />
        </Suspense>
      )}
    </div>
  );
}

/** The announcement of a run's state for screen readers. */
function announcement(state: RunState, text: Translate): string {
  switch (state.phase) {
    case "sending":
      return text("sending");
    case "running":
      if (!state.connected) return text("reconnecting");
      return state.started ? text("running") : text("queued");
    case "ended":
      return text("result_ready");
    default:
      return "";
  }
}
