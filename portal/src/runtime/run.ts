import { Client, randomId } from "../api/client";
import { readEvents, type StreamEvent } from "../api/events";
import { apiPath } from "../api/paths";
import { Problem } from "../api/problem";
import type { Execution, ExecutionResult, Json, QueuedExecution } from "../api/types";

/** A step of a run according to its events. */
export interface Step {
  id: string;
  state: "running" | "done" | "failed";
}

/** The end of a run for display. */
export interface RunOutcome {
  executionId: string;
  /** The token with which an anonymous visitor reads the run; null for other callers. */
  resultToken: string | null;
  status: string;
  output: Json;
  error: { code: string; message: string } | null;
}

/** The state of a run in the page. */
export type RunState =
  | { phase: "idle" }
  | { phase: "sending" }
  | { phase: "running"; executionId: string; steps: Step[]; text: string; started: boolean; connected: boolean }
  | { phase: "review"; executionId: string }
  | { phase: "ended"; outcome: RunOutcome }
  | { phase: "refused"; problem: Problem };

/** The data with which the page finds an accepted run again. */
export interface RunTicket {
  executionId: string;
  resultToken: string | null;
}

/** A request to run a workload. */
export interface RunRequest {
  slug: string;
  environment: string;
  inputs: Record<string, Json>;
  sessionId?: string;
}

/** Delays between attempts to reconnect, in milliseconds. The last delay repeats. */
const RECONNECT_DELAYS = [500, 1_000, 2_000, 5_000];
/** Delays between reads of a run that awaits review, in milliseconds. The last delay repeats. */
const REVIEW_DELAYS = [1_000, 1_000, 2_000, 5_000];

/** Starts or resumes one run, follows it, and reports each new state. */
export class RunFollower {
  #state: RunState = { phase: "idle" };
  #ticket: RunTicket | null = null;
  #lastEvent = "";
  #isCancelRequested = false;
  readonly #abort = new AbortController();

  constructor(
    private readonly client: Client,
    private readonly onState: (state: RunState) => void,
    private readonly onTicket: (ticket: RunTicket) => void = () => undefined,
    private readonly wait: (milliseconds: number, signal: AbortSignal) => Promise<void> = pause,
  ) {}

  /**
   * Starts a run. A request without a response is repeated once with the same idempotency key, so only one run starts.
   */
  async start(request: RunRequest): Promise<void> {
    this.#set({ phase: "sending" });
    const body = {
      environment: request.environment,
      inputs: request.inputs,
      ...(request.sessionId === undefined ? {} : { session_id: request.sessionId }),
    };
    const options = {
      method: "POST" as const,
      body,
      accept: "text/event-stream, application/json;q=0.9",
      headers: { "Idempotency-Key": randomId() },
      signal: this.#abort.signal,
    };
    const path = apiPath("/v1/workloads/by-slug/{slug}/execute", { slug: request.slug });
    await this.#guard(async () => {
      let response: Response;
      try {
        response = await this.client.send(path, options);
      } catch (problem) {
        if (!(problem instanceof Problem) || problem.status !== 0) throw problem;
        await this.wait(RECONNECT_DELAYS[0] ?? 0, this.#abort.signal);
        response = await this.client.send(path, options);
      }
      await this.#accepted(response);
    });
  }

  /** Follows a run that was accepted earlier. */
  async resume(ticket: RunTicket): Promise<void> {
    this.#ticket = ticket;
    await this.#guard(() => this.#readExecution());
  }

  /** Requests the cancellation of the run. If the server has not accepted the run yet, sends the request afterwards. */
  async cancel(): Promise<void> {
    const ticket = this.#ticket;
    this.#isCancelRequested = true;
    if (!ticket) return;
    try {
      const path = apiPath("/v1/executions/{execution_id}/cancel", { execution_id: ticket.executionId });
      await this.client.send(path, { method: "POST", body: {}, headers: this.#tokenHeader() });
    } catch (problem) {
      // The refusal `execution_not_cancellable` is ignored: the run has ended meanwhile, and its events report the end.
      if (problem instanceof Problem && problem.code !== "execution_not_cancellable") {
        this.#set({ phase: "refused", problem });
      }
    }
  }

  /** Stops following the run, which continues on the server. */
  leave(): void {
    this.#abort.abort();
  }

  #set(state: RunState): void {
    this.#state = state;
    if (!this.#abort.signal.aborted) this.onState(state);
  }

  async #guard(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (cause) {
      if (this.#abort.signal.aborted) return;
      this.#set({ phase: "refused", problem: cause instanceof Problem ? cause : new Problem(0, "unreadable", "") });
    }
  }

  #tokenHeader(): Record<string, string | undefined> {
    return { "X-Result-Token": this.#ticket?.resultToken ?? undefined };
  }

  #accept(executionId: string, resultToken: string | null): void {
    this.#ticket = { executionId, resultToken };
    this.onTicket(this.#ticket);
    if (this.#isCancelRequested) void this.cancel();
  }

  async #accepted(response: Response): Promise<void> {
    if (response.headers.get("content-type")?.startsWith("text/event-stream")) {
      const id = response.headers.get("content-location")?.match(/executions\/([0-9a-f-]+)\//)?.[1];
      if (!id) throw new Problem(response.status, "unreadable", "", response.headers.get("x-request-id"));
      this.#accept(id, response.headers.get("x-result-token"));
      this.#set({ phase: "running", executionId: id, steps: [], text: "", started: false, connected: true });
      await this.#follow(response);
      return;
    }
    const result = (await response.json()) as ExecutionResult | QueuedExecution;
    this.#accept(result.execution_id, result.result_token ?? null);
    if ("status" in result) this.#end(result);
    else await this.#readExecution();
  }

  /** Reads the stream until the run has ended. Resumes a lost stream after the last received event. */
  async #follow(first: Response): Promise<void> {
    let response: Response | null = first;
    let attempt = 0;
    while (this.#state.phase === "running") {
      if (response) {
        try {
          await readEvents(response, (event) => {
            attempt = 0;
            this.#apply(event);
          });
        } catch {
          // Ignores the error of a lost connection, because the loop reconnects.
        }
      }
      if (this.#state.phase !== "running" || this.#abort.signal.aborted) break;
      this.#set({ ...this.#state, connected: false });
      const delay = RECONNECT_DELAYS[Math.min(attempt, RECONNECT_DELAYS.length - 1)] ?? 0;
      attempt += 1;
      await this.wait(delay, this.#abort.signal);
      response = await this.#reconnect();
    }
    if (this.#state.phase === "review") await this.#awaitReview();
  }

  /** Opens the stream after the last received event; null if the server cannot be reached now. */
  async #reconnect(): Promise<Response | null> {
    if (this.#state.phase !== "running") return null;
    const path = apiPath("/v1/executions/{execution_id}/events", { execution_id: this.#state.executionId });
    const headers = { ...this.#tokenHeader(), "Last-Event-ID": this.#lastEvent || undefined };
    try {
      const response = await this.client.send(path, { accept: "text/event-stream", headers, signal: this.#abort.signal });
      if (response.status === 204) {
        await this.#readExecution();
        return null;
      }
      if (this.#state.phase === "running") this.#set({ ...this.#state, connected: true });
      return response;
    } catch (problem) {
      if (problem instanceof Problem && (problem.status === 0 || problem.status === 429 || problem.status >= 500)) return null;
      throw problem;
    }
  }

  #apply(event: StreamEvent): void {
    if (this.#state.phase !== "running") return;
    this.#lastEvent = event.id;
    const data = JSON.parse(event.data) as Record<string, Json>;
    const state = this.#state;
    switch (event.event) {
      case "execution.started":
        this.#set({ ...state, started: true, connected: true });
        break;
      case "step.started": {
        // Discards the step's earlier text, because a fallback to another route restarts the step.
        const id = String(data["step_id"]);
        const steps = [...state.steps.filter((step) => step.id !== id), { id, state: "running" as const }];
        this.#set({ ...state, started: true, connected: true, steps, text: "" });
        break;
      }
      case "step.completed": {
        const done = data["error_code"] === null ? ("done" as const) : ("failed" as const);
        const steps = state.steps.map((step) => (step.id === data["step_id"] ? { ...step, state: done } : step));
        this.#set({ ...state, steps });
        break;
      }
      case "output.delta":
        this.#set({ ...state, connected: true, text: state.text + String(data["delta"] ?? "") });
        break;
      case "execution.awaiting_review":
        this.#set({ phase: "review", executionId: state.executionId });
        break;
      case "execution.completed":
      case "execution.failed":
        this.#end(data as unknown as ExecutionResult);
        break;
    }
  }

  async #awaitReview(): Promise<void> {
    for (let attempt = 0; this.#state.phase === "review" && !this.#abort.signal.aborted; attempt += 1) {
      await this.wait(REVIEW_DELAYS[Math.min(attempt, REVIEW_DELAYS.length - 1)] ?? 0, this.#abort.signal);
      try {
        await this.#readOnce();
      } catch (problem) {
        if (!(problem instanceof Problem) || (problem.status > 0 && problem.status < 500 && problem.status !== 429)) throw problem;
      }
    }
  }

  /** Reads the stored run, and continues according to its status. */
  async #readExecution(): Promise<void> {
    await this.#readOnce();
    if (this.#state.phase === "running") await this.#follow(await this.#reconnectOrEmpty());
    else if (this.#state.phase === "review") await this.#awaitReview();
  }

  async #reconnectOrEmpty(): Promise<Response> {
    return (await this.#reconnect()) ?? new Response();
  }

  async #readOnce(): Promise<void> {
    const ticket = this.#ticket;
    if (!ticket) return;
    const path = apiPath("/v1/executions/{execution_id}", { execution_id: ticket.executionId });
    const response = await this.client.send(path, { headers: this.#tokenHeader(), signal: this.#abort.signal });
    const run = (await response.json()) as Execution;
    if (run.status === "queued" || run.status === "running") {
      if (this.#state.phase !== "running") {
        const started = run.status === "running";
        this.#set({ phase: "running", executionId: run.execution_id, steps: [], text: "", started, connected: true });
      }
    } else if (run.status === "awaiting_review") {
      if (this.#state.phase !== "review") this.#set({ phase: "review", executionId: run.execution_id });
    } else {
      this.#end({ ...run, output: run.queued_result?.result });
    }
  }

  #end(result: Pick<ExecutionResult, "execution_id" | "output" | "error"> & { status: string }): void {
    const output = (result.output ?? null) as Json;
    const { execution_id: executionId, status, error = null } = result;
    this.#set({ phase: "ended", outcome: { executionId, resultToken: this.#ticket?.resultToken ?? null, status, output, error } });
  }
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
