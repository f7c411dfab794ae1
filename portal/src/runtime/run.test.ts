import { afterEach, expect, test, vi } from "vitest";
import { Client } from "../api/client";
import { RunFollower, type RunState, type RunTicket } from "./run";

const ID = "0190f000-0000-7000-8000-00000000abcd";
const event = (id: number, kind: string, data: unknown) => `id: ${id}\nevent: ${kind}\ndata: ${JSON.stringify(data)}\n\n`;
const stream = (text: string, headers: Record<string, string> = {}) =>
  new Response(text, {
    headers: { "content-type": "text/event-stream", "content-location": `/v1/executions/${ID}/events`, ...headers },
  });
const json = (body: unknown, status = 200) => Response.json(body, { status });
const result = { execution_id: ID, status: "completed", output: "billing", metadata: {}, started_at: "" };
const request = { slug: "a", environment: "dev", inputs: {} };

afterEach(() => vi.unstubAllGlobals());

/** Follows a run with these responses of the server. A string instead of a response simulates a lost connection. */
async function follow(responses: (Response | string)[], resumed?: RunTicket) {
  const states: RunState[] = [];
  const tickets: RunTicket[] = [];
  const requests: { path: string; init: RequestInit }[] = [];
  vi.stubGlobal("fetch", async (path: string, init: RequestInit) => {
    requests.push({ path, init });
    const response = responses.shift();
    if (!(response instanceof Response)) throw new TypeError("lost");
    return response;
  });
  const client = new Client({ kind: "local", actor: "user:ada" });
  const follower = new RunFollower(client, (state) => states.push(state), (ticket) => tickets.push(ticket), async () => undefined);
  await (resumed ? follower.resume(resumed) : follower.start(request));
  return { states, requests, tickets, last: states.at(-1), header: (index: number, name: string) => new Headers(requests[index]?.init.headers).get(name) };
}

test("shows steps and text, then the result", async () => {
  const text =
    event(1, "execution.started", {}) +
    event(2, "step.started", { step_id: "ask" }) +
    event(3, "output.delta", { delta: "bil" }) +
    event(4, "output.delta", { delta: "ling" }) +
    event(5, "step.completed", { step_id: "ask", error_code: null }) +
    event(6, "execution.completed", result);
  const { states, last, tickets } = await follow([stream(text, { "x-result-token": "fwr_x" })]);
  expect(states).toContainEqual({
    phase: "running", executionId: ID, steps: [{ id: "ask", state: "running" }], text: "billing", started: true, connected: true,
  });
  expect(last).toEqual({ phase: "ended", outcome: { executionId: ID, resultToken: "fwr_x", status: "completed", output: "billing", error: null } });
  expect(tickets).toEqual([{ executionId: ID, resultToken: "fwr_x" }]);
});

test("a restarted step discards its text", async () => {
  const text = event(1, "step.started", { step_id: "a" }) + event(2, "output.delta", { delta: "wrong" }) +
    event(3, "step.started", { step_id: "a" }) + event(4, "output.delta", { delta: "right" }) + event(5, "execution.completed", result);
  const { states } = await follow([stream(text)]);
  const texts = states.map((state) => (state.phase === "running" ? state.text : null));
  expect(texts).toContain("right");
  expect(texts).not.toContain("wrongright");
});

test("reconnects after the last event", async () => {
  const { last, header, requests } = await follow([
    stream(event(1, "execution.started", {}), { "x-result-token": "fwr_x" }),
    "lost",
    stream(event(2, "execution.completed", result)),
  ]);
  expect(last?.phase).toBe("ended");
  expect([header(1, "last-event-id"), header(2, "last-event-id"), header(2, "x-result-token")]).toEqual(["1", "1", "fwr_x"]);
  expect(requests[2]?.path).toBe(`/v1/executions/${ID}/events`);
});

test("stops a run that is not accepted yet as soon as it is", async () => {
  const paths: string[] = [];
  let accept: (response: Response) => void = () => undefined;
  vi.stubGlobal("fetch", (path: string) => {
    paths.push(path);
    return path.endsWith("/execute") ? new Promise<Response>((resolve) => (accept = resolve)) : Promise.resolve(json({}));
  });
  const follower = new RunFollower(new Client({ kind: "local", actor: null }), () => undefined);
  const run = follower.start(request);
  await follower.cancel();
  expect(paths).toHaveLength(1);
  accept(stream(event(1, "execution.completed", { ...result, status: "cancelled" })));
  await run;
  expect(paths[1]).toBe(`/v1/executions/${ID}/cancel`);
});

test("repeats an unanswered request with the same key", async () => {
  const { last, header } = await follow(["lost", stream(event(1, "execution.completed", result))]);
  expect(last?.phase).toBe("ended");
  expect(header(0, "idempotency-key")).toBe(header(1, "idempotency-key"));
});

test("waits for a review, and shows its verdict", async () => {
  const run = { execution_id: ID, status: "awaiting_review", queued_result: null, error: null };
  const { states, last } = await follow([
    stream(event(1, "execution.awaiting_review", {})),
    json(run),
    json({ ...run, status: "completed", queued_result: { result: "fine" } }),
  ]);
  expect(states).toContainEqual({ phase: "review", executionId: ID });
  expect(last).toMatchObject({ phase: "ended", outcome: { output: "fine" } });
});

test("finds a queued run again", async () => {
  const queued = { execution_id: ID, status: "queued", queued_result: null, error: null };
  const { states, last, header } = await follow([json(queued), stream(event(1, "execution.completed", result))], { executionId: ID, resultToken: "fwr_x" });
  expect(states[0]).toMatchObject({ phase: "running", started: false });
  expect(last?.phase).toBe("ended");
  expect(header(0, "x-result-token")).toBe("fwr_x");
});

test("a refusal carries its code, fields and request id", async () => {
  const body = { detail: { error: "validation_error", message: "m", fields: [{ path: "inputs.a", code: "missing", message: "x" }] }, request_id: "r" };
  const { last } = await follow([Response.json(body, { status: 422, headers: { "x-request-id": "r", "retry-after": "7" } })]);
  expect(last).toMatchObject({ phase: "refused", problem: { status: 422, code: "validation_error", requestId: "r", retryAfter: 7, fields: [{ path: "inputs.a" }] } });
});
