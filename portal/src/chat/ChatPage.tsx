import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { randomId } from "../api/client";
import { apiPath } from "../api/paths";
import { Problem } from "../api/problem";
import type { Json } from "../api/types";
import { Field } from "../forms/Field";
import { initialValues, inputsOf, type FormValues } from "../forms/values";
import { useText } from "../i18n";
import { plainText } from "../output/plain";
import { RunFollower, type RunState, type RunTicket } from "../runtime/run";
import { OutcomeView, Why } from "../runtime/RunView";
import type { ModeProps } from "../runtime/WorkloadPage";
import { ProblemNotice } from "../ui/ProblemNotice";
import { SpokenStream } from "../ui/SpokenStream";

interface Turn {
  id: string;
  question: string;
  inputs: Record<string, Json>;
  state: RunState;
  /** The accepted run; null before the server has answered. */
  ticket: RunTicket | null;
}

/** Maximum number of turns that a tab restores after a reload. */
const MAX_STORED_TURNS = 50;

/** The page of a conversation. The tab stores the session id, and the server stores the memory of the conversation. */
export default function ChatPage({ client, workload, environment, isGuest, channel, host }: ModeProps) {
  const text = useText();
  const { slug, workload_id: workloadId, interface_config: config } = workload;
  // The storage key of this caller's conversations with this workload in the tab.
  const storageKey = `${client.cacheKey} ${slug}`;
  const fields = useMemo(() => config.input_fields ?? [], [config]);
  const messageField = useMemo(
    () =>
      fields.find((field) => field.name === "message") ??
      fields.find((field) => field.required && (field.type === "text" || field.type === "textarea")),
    [fields],
  );
  const settings = fields.filter((field) => field !== messageField);
  const [values, setValues] = useState<FormValues>(() => initialValues(settings));
  const [messages, setMessages] = useState<Record<string, string>>({});
  const [session, setSession] = useState(() => sessionOf(storageKey));
  const [turns, setTurns] = useState<Turn[]>([]);
  const [draft, setDraft] = useState("");
  const [erased, setErased] = useState<Problem | "done" | null>(null);
  const follower = useRef<RunFollower | null>(null);
  const input = useRef<HTMLTextAreaElement>(null);
  const lastTurn = turns.at(-1);
  const list = useRef<HTMLElement>(null);
  const busy = lastTurn?.state.phase === "sending" || lastTurn?.state.phase === "running";
  const hasAnswer = turns.some((turn) => turn.state.phase === "ended");

  const memory = useQuery({
    queryKey: ["memory", client.cacheKey, workloadId, session, turns.length],
    enabled: !isGuest && hasAnswer && !busy,
    retry: false,
    queryFn: ({ signal }) => client.get<{ turns: unknown[] }>(memoryPath(workloadId, session), signal),
  });
  const hasNoMemory = isGuest || (memory.data !== undefined && memory.data.turns.length === 0);

  const update = useCallback((id: string, change: Partial<Turn>) => {
    setTurns((before) => before.map((turn) => (turn.id === id ? { ...turn, ...change } : turn)));
  }, []);

  useEffect(() => {
    const stored = storedTurns(storageKey).map((turn): Turn => ({ ...turn, state: { phase: "sending" } }));
    setTurns(stored);
    const followers = stored.map(({ id, ticket }) => {
      const turnFollower = new RunFollower(client, (state) => update(id, { state }));
      if (ticket) void turnFollower.resume(ticket);
      return turnFollower;
    });
    follower.current = followers.at(-1) ?? null;
    return () => {
      followers.forEach((turnFollower) => turnFollower.leave());
      follower.current?.leave();
    };
  }, [client, storageKey, update]);

  // Scrolls to the newest turn, so that it is visible above the composer.
  useEffect(() => {
    // `void`, because some browsers return a promise, which React would use as the effect's cleanup function.
    void list.current?.lastElementChild?.scrollIntoView({ block: "nearest" });
  }, [turns.length, lastTurn?.state.phase]);

  useEffect(() => storeTurns(storageKey, turns), [storageKey, turns]);

  const ask = useCallback(
    (question: string, inputs: Record<string, Json>) => {
      const id = randomId();
      setErased(null);
      setTurns((before) => [...before, { id, question, inputs, state: { phase: "sending" }, ticket: null }]);
      const onState = (state: RunState) => {
        update(id, { state });
        if (state.phase === "ended") {
          channel?.send({ type: "fairway:ended", executionId: state.outcome.executionId, status: state.outcome.status });
        } else if (state.phase === "refused") {
          channel?.send({ type: "fairway:error", code: state.problem.code, requestId: state.problem.requestId });
        }
      };
      const next = new RunFollower(client, onState, (ticket) => update(id, { ticket }));
      follower.current = next;
      void next.start({ slug, environment, inputs, ...(isGuest ? {} : { sessionId: session }) });
    },
    [client, channel, slug, environment, session, isGuest, update],
  );

  const send = () => {
    const question = draft.trim();
    if (question === "" || busy) return;
    const checked = inputsOf(settings, values, text);
    setMessages(checked.messages);
    if (Object.keys(checked.messages).length > 0) return;
    setDraft("");
    ask(question, { ...checked.inputs, [messageField?.name ?? "message"]: question });
    input.current?.focus();
  };

  const renew = useCallback(() => {
    follower.current?.leave();
    setTurns([]);
    setSession(newSession(storageKey));
  }, [storageKey]);

  const erase = async () => {
    try {
      if (!isGuest) await client.send(memoryPath(workloadId, session), { method: "DELETE" });
      renew();
      setErased("done");
    } catch (problem) {
      if (problem instanceof Problem) setErased(problem);
    }
  };

  useEffect(() => {
    if (host?.type === "fairway:reset") renew();
    if (host?.type === "fairway:setInputs" && messageField) {
      const value = host.inputs[messageField.name];
      if (typeof value === "string") setDraft(value);
    }
  }, [host, messageField, renew]);

  return (
    <div className="chat">
      {hasNoMemory && <p className="hint">{text("chat_no_memory")}</p>}
      {settings.length > 0 && (
        <details className="card" open={settings.some((field) => field.required && field.default === undefined)}>
          <summary>{text("chat_settings")}</summary>
          {settings.map((field) => (
            <Field
              key={field.name}
              field={field}
              id={`setting-${field.name}`}
              value={values[field.name] ?? ""}
              message={messages[field.name]}
              onChange={(value) => setValues({ ...values, [field.name]: value })}
            />
          ))}
        </details>
      )}
      <section aria-label={text("chat_title")} className="turns" ref={list}>
        {turns.length === 0 && <p className="hint">{text("chat_empty")}</p>}
        {turns.map((turn) => (
          <TurnView
            key={turn.id}
            turn={turn}
            client={client}
            display={config.output_display}
            onRetry={busy ? undefined : () => ask(turn.question, turn.inputs)}
          />
        ))}
      </section>
      {lastTurn && <Spoken key={lastTurn.id} state={lastTurn.state} />}
      <p role="status" className="visually-hidden">
        {busy ? text(lastTurn.state.phase === "running" && !lastTurn.state.connected ? "reconnecting" : "running") : hasAnswer ? text("result_ready") : ""}
        {erased === "done" ? text("chat_erased") : ""}
      </p>
      {erased instanceof Problem && <ProblemNotice problem={erased} />}
      <form
        className="composer"
        onSubmit={(event) => {
          event.preventDefault();
          send();
        }}
      >
        <label htmlFor="chat-message" dir="auto">
          {messageField?.label ?? text("chat_message")}
        </label>
        <textarea
          id="chat-message"
          ref={input}
          rows={2}
          dir="auto"
          value={draft}
          onChange={(event) => setDraft(event.target.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
              event.preventDefault();
              send();
            }
          }}
        />
        <div className="actions">
          {busy ? (
            <button type="button" onClick={() => void follower.current?.cancel()}>
              {text("stop")}
            </button>
          ) : (
            <button type="submit">{text("chat_send")}</button>
          )}
          {turns.length > 0 && !busy && (
            <button type="button" className="secondary" onClick={renew}>
              {text("chat_new")}
            </button>
          )}
          {turns.length > 0 && !busy && !isGuest && (
            <button type="button" className="secondary" onClick={() => void erase()}>
              {text("chat_erase")}
            </button>
          )}
        </div>
      </form>
    </div>
  );
}

/** Announces the newest answer to screen readers while it streams, and its end. A restored answer is not announced. */
function Spoken({ state }: { state: RunState }) {
  const [streams, setStreams] = useState(false);
  useEffect(() => setStreams((before) => before || state.phase === "running"), [state.phase]);
  const value = state.phase === "running" ? state.text : state.phase === "ended" ? plainText(answerOf(state.outcome).output) : "";
  return <SpokenStream value={streams ? value : ""} isComplete={state.phase === "ended"} />;
}

interface TurnProps {
  turn: Turn;
  client: ModeProps["client"];
  display: ModeProps["workload"]["interface_config"]["output_display"];
  onRetry: (() => void) | undefined;
}

function TurnView({ turn, client, display, onRetry }: TurnProps) {
  const text = useText();
  const { state } = turn;
  return (
    <article className="turn" data-state={state.phase}>
      <h2 className="visually-hidden">{text("chat_you")}</h2>
      <p className="bubble" dir="auto">
        {turn.question}
      </p>
      <h2 className="visually-hidden">{text("chat_answer")}</h2>
      {state.phase === "sending" && <p className="hint">{text("sending")}</p>}
      {state.phase === "running" && (
        <>
          <p className="streamed" dir="auto">
            {state.text}
          </p>
          {state.text === "" && <p className="hint">{text(state.started ? "running" : "queued")}</p>}
          {!state.connected && <p className="hint">{text("reconnecting")}</p>}
        </>
      )}
      {state.phase === "review" && <p className="notice">{text("review_text")}</p>}
      {state.phase === "refused" && <ProblemNotice problem={state.problem} onRetry={state.problem.isTemporary ? onRetry : undefined} />}
      {state.phase === "ended" && (
        <>
          <OutcomeView client={client} outcome={answerOf(state.outcome)} display={display} />
          {state.outcome.status !== "completed" && onRetry && (
            <div className="actions">
              <button type="button" className="secondary" onClick={onRetry}>
                {text("chat_retry")}
              </button>
            </div>
          )}
          <Why client={client} executionId={state.outcome.executionId} />
        </>
      )}
    </article>
  );
}

/** Unwraps an answer that is an object with a single string: the result is the string. */
function answerOf<T extends { output: Json }>(outcome: T): T {
  const { output } = outcome;
  if (output === null || typeof output !== "object" || Array.isArray(output)) return outcome;
  const members = Object.values(output);
  const [only] = members;
  return members.length === 1 && typeof only === "string" ? { ...outcome, output: plainText(only) } : outcome;
}

const memoryPath = (workload: string, session: string) =>
  apiPath("/v1/workloads/{workload_id}/sessions/{session_id}/memory", { workload_id: workload, session_id: session });

/** The accepted turns that this tab has stored. */
function storedTurns(storageKey: string): Omit<Turn, "state">[] {
  try {
    const stored = JSON.parse(sessionStorage.getItem(`fairway.turns ${storageKey}`) ?? "[]") as unknown;
    return Array.isArray(stored) ? (stored as Omit<Turn, "state">[]).filter((turn) => turn.ticket) : [];
  } catch {
    return [];
  }
}

function storeTurns(storageKey: string, turns: readonly Turn[]): void {
  const accepted = turns.filter((turn) => turn.ticket).slice(-MAX_STORED_TURNS);
  try {
    sessionStorage.setItem(`fairway.turns ${storageKey}`, JSON.stringify(accepted.map(({ state: _, ...turn }) => turn)));
  } catch {
    // Without storage the conversation ends with the page.
  }
}

function sessionOf(storageKey: string): string {
  try {
    return sessionStorage.getItem(`fairway.chat ${storageKey}`) ?? newSession(storageKey);
  } catch {
    return randomId();
  }
}

function newSession(storageKey: string): string {
  const session = randomId();
  try {
    sessionStorage.setItem(`fairway.chat ${storageKey}`, session);
  } catch {
    // Without storage the conversation ends with the page.
  }
  return session;
}
