// Test fixture of the browser tests: the browser, a stub of a model provider, an embedding page, and a canary server
// that no page may call.
import { createRequire } from "node:module";
import { createServer } from "node:http";
import { connect, createServer as createTcpServer } from "node:net";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

const required = (name) => {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set; run \`cargo xtask browser\``);
  return value;
};
export const SERVER = required("PORTAL_SERVER");
export const HOST = required("PORTAL_HOST");
const PROVIDER = required("PORTAL_PROVIDER");
const PICTURES = required("PORTAL_PICTURES");
const modules = createRequire(join(required("PORTAL_MODULES"), "x.js"));
const { chromium } = modules("playwright-core");
const AXE = readFileSync(modules.resolve("axe-core/axe.min.js"), "utf8");

/** Scripted answers of the model by the marker in the question: `[[name]]`. */
const answers = new Map();
/** The stub sends the second half of each answer after this promise is resolved. */
let gate = Promise.resolve();
let openGate = () => undefined;
export const script = (name, text) => answers.set(name, text);
/** Delays the second half of all answers until the returned function is called. */
export function holdAnswers() {
  gate = new Promise((resolve) => (openGate = resolve));
  return openGate;
}

/** Ends the delay of answers that an earlier test may have started. */
export function releaseAnswers() {
  openGate();
  gate = Promise.resolve();
}

/** Answers that tests send piece by piece, by the marker in the question. */
const streams = new Map();
/**
 * Creates an answer whose pieces the test sends. `requested` resolves when the stub receives the request, and
 * `disconnected` when the server closes the connection before the end of the answer.
 */
export function streamOf(name) {
  const stream = { requests: 0, write: () => undefined };
  stream.requested = new Promise((resolve) => (stream.markRequested = resolve));
  stream.disconnected = new Promise((resolve) => (stream.markDisconnected = resolve));
  stream.send = (content) => stream.write({ content });
  stream.end = () => stream.write({}, "stop");
  streams.set(name, stream);
  return stream;
}

const listen = (server, address) => new Promise((resolve) => server.listen(new URL(address).port, "127.0.0.1", resolve));
const body = async (request) => {
  let text = "";
  for await (const part of request) text += part;
  return text;
};

/** A stub of a model provider with OpenAI's protocol. It streams the first half of an answer, then waits for `gate`. */
const provider = createServer(async (request, response) => {
  const providerRequest = JSON.parse(await body(request));
  const question = providerRequest.messages.map((message) => message.content).join("\n");
  const marker = question.match(/\[\[([a-z0-9-]+)\]\]/g)?.at(-1)?.slice(2, -2);
  const text = answers.get(marker) ?? `No script for ${marker}.`;
  const currentGate = gate;
  if (!providerRequest.stream) {
    await currentGate;
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ model: "stub", choices: [{ message: { role: "assistant", content: text }, finish_reason: "stop" }], usage: { prompt_tokens: 1, completion_tokens: 1 } }));
    return;
  }
  response.setHeader("content-type", "text/event-stream");
  const send = (delta, finish = null) => response.write(`data: ${JSON.stringify({ model: "stub", choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`);
  const stream = streams.get(marker);
  if (stream) {
    response.flushHeaders();
    stream.requests += 1;
    stream.write = (delta, finish = null) => {
      if (response.destroyed) return;
      send(delta, finish);
      if (finish) response.end("data: [DONE]\n\n");
    };
    response.on("close", () => response.writableEnded || stream.markDisconnected());
    stream.markRequested();
    return;
  }
  const half = Math.ceil(text.length / 2);
  send({ role: "assistant", content: text.slice(0, half) });
  await currentGate;
  send({ content: text.slice(half) });
  send({}, "stop");
  response.end("data: [DONE]\n\n");
});

/** Pages of another origin. Every request to another path of this origin (the canary) is recorded as a failure. */
export const canary = [];
const pages = new Map();
export const hostPage = (path, html) => pages.set(path, html);
const host = createServer((request, response) => {
  const path = new URL(request.url, HOST).pathname;
  const html = pages.get(path);
  if (html) {
    response.setHeader("content-type", "text/html; charset=utf-8");
    response.end(html);
    return;
  }
  if (path !== "/favicon.ico") canary.push(request.url);
  response.statusCode = 404;
  response.end();
});
/** A third origin, which is not permitted to frame pages of Fairway. */
const thirdOriginServer = createServer((request, response) => {
  response.setHeader("content-type", "text/html; charset=utf-8");
  response.end(pages.get(new URL(request.url, HOST).pathname) ?? "");
});

/** A TCP proxy with a second address of the server, whose connections the tests can cut. */
const sockets = new Set();
const proxy = createTcpServer((client) => {
  const upstream = connect(new URL(SERVER).port, "127.0.0.1");
  for (const socket of [client, upstream]) {
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => {
      sockets.delete(socket);
      client.destroy();
      upstream.destroy();
    });
  }
  client.pipe(upstream).pipe(client);
});
export const cutConnections = () => sockets.forEach((socket) => socket.destroy());
export let PROXY;

let browser;
export let THIRD_ORIGIN;

export async function open() {
  mkdirSync(PICTURES, { recursive: true });
  await listen(provider, PROVIDER);
  await listen(host, HOST);
  await new Promise((resolve) => thirdOriginServer.listen(0, "127.0.0.1", resolve));
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  PROXY = `http://127.0.0.1:${proxy.address().port}`;
  THIRD_ORIGIN = `http://127.0.0.1:${thirdOriginServer.address().port}`;
  // Playwright starts Chromium with a new, empty profile.
  browser = await chromium.launch({
    executablePath: required("PORTAL_CHROMIUM"),
    headless: true,
    args: [
      "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync", "--force-color-profile=srgb",
    ],
  });
}

export async function close() {
  await browser?.close();
  for (const server of [provider, host, thirdOriginServer]) {
    server.closeAllConnections();
    server.close();
  }
  cutConnections();
  proxy.close();
}

/**
 * Defects that pages reported: console messages about errors or policy violations, script errors, requests to unknown
 * origins, and share tokens in `Referer`.
 */
export const violations = [];

/** Opens a page in a separate browser profile. */
export async function newPage(options = {}) {
  const { expectsViolations = false, ...contextOptions } = options;
  const context = await browser.newContext({ locale: "en-GB", viewport: { width: 1000, height: 800 }, acceptDownloads: true, ...contextOptions });
  const page = await context.newPage();
  page.on("console", (message) => {
    if (/Content Security Policy|Trusted|Uncaught|Warning:/.test(message.text()) && !expectsViolations) {
      violations.push(`${page.url()}: ${message.text()}`);
    }
  });
  page.on("pageerror", (error) => violations.push(`${page.url()}: ${error}`));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (![SERVER, HOST, THIRD_ORIGIN, PROXY].includes(url.origin) && !["data:", "blob:"].includes(url.protocol)) violations.push(`request to ${url}`);
    if (request.headers()["referer"]?.includes("token=")) violations.push(`token in Referer to ${url}`);
  });
  page.setDefaultTimeout(20_000);
  return page;
}

let asserted = 0;
/** The number of assertions so far, because a test without an assertion fails. */
export const assertionCount = () => asserted;
/** Asserts that a condition holds. */
export function check(condition, message) {
  asserted += 1;
  if (!condition) throw new Error(message);
}
export function equal(actual, expected, message = "") {
  asserted += 1;
  const [actualText, expectedText] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (actualText !== expectedText) throw new Error(`${message}: ${actualText} instead of ${expectedText}`);
}

/** Waits until a condition holds; fails after the timeout. */
export async function until(condition, message, timeout = 20_000) {
  asserted += 1;
  const end = Date.now() + timeout;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`timed out: ${message}`);
    await pause(50);
  }
}

/** Takes a screenshot, and checks that axe-core finds no accessibility violations. */
export async function look(page, name, { axe = true, frame = page } = {}) {
  await page.screenshot({ path: join(PICTURES, `${name}.png`), fullPage: true });
  if (!axe) return;
  // Playwright evaluates code without a script element, so the content security policy can stay in force.
  await frame.evaluate(AXE);
  const { violations: found } = await frame.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const text = found.map((rule) => `${rule.id}: ${rule.help}\n  ${rule.nodes.map((node) => `${node.target} ${node.failureSummary}`).join("\n  ")}`);
  check(found.length === 0, `axe-core in ${name}:\n${text.join("\n")}`);
}

/** Sends a request to the API as an actor. */
export async function api(method, path, requestBody, { as = "user:demo-author", status, headers = {} } = {}) {
  const response = await fetch(SERVER + path, {
    method,
    headers: { "X-Actor-Ref": as, ...(requestBody === undefined ? {} : { "Content-Type": "application/json" }), ...headers },
    ...(requestBody === undefined ? {} : { body: JSON.stringify(requestBody) }),
  });
  const text = await response.text();
  const result = text ? JSON.parse(text) : null;
  const isExpectedStatus = status === undefined ? response.ok : response.status === status;
  if (!isExpectedStatus) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return result;
}

const RULES = [{ id: "all", condition: "always", outcome: "allow", reason_code: "fine" }];

/**
 * Creates a workload with an active release and the model stub, unless an earlier test run on this server created it.
 */
export async function workload(slug, config, { rules = RULES, name = slug, environment = "dev", bindings = [] } = {}) {
  const existing = await fetch(`${SERVER}/v1/workloads/by-slug/${slug}`);
  if (existing.ok) return (await existing.json()).workload_id;
  // Status 401 means that the workload exists and requires a share link.
  if (existing.status === 401) return (await api("GET", "/v1/workloads?limit=200")).find((one) => one.slug === slug).workload_id;
  const version = async (suffix, kind, content) => {
    const asset = await api("POST", "/v1/assets", { slug: `${slug}-${suffix}`, asset_kind: kind, owner_ref: "team:browser" });
    return [kind, (await api("POST", `/v1/assets/${asset.asset_id}/versions`, { content })).asset_version_id];
  };
  const fields = config.input_fields ?? [];
  const first = fields.find((field) => field.name === "message") ?? fields[0];
  const versions = [
    await version("prompt", "prompt_template", {
      system_prompt: first ? `Answer: $arg:${first.name}` : "Answer.",
      ...(first ? { variables: [{ name: first.name }] } : {}),
    }),
    await version("model", "model_policy", {
      provider_route: { route_id: "stub", provider: "stub", model: "stub", account_slot: "stub", state: "approved" },
      supports_streaming: true,
    }),
    await version("policy", "policy_bundle", { rules }),
    ...bindings,
  ];
  const created = await api("POST", "/v1/workloads", { slug, owner_ref: "team:browser", invocation_mode: "form", name, description: `About ${slug}.` });
  const id = created.workload_id;
  await api("PATCH", `/v1/workloads/${id}`, { interface_config: config });
  const release = await api("POST", "/v1/releases", { workload_id: id, environment, target_lane: "all" });
  const path = `/v1/releases/${release.release_id}`;
  for (const [role, asset_version_id] of versions) await api("POST", `${path}/bindings`, { role, asset_version_id });
  await api("POST", `${path}/transition`, { to_state: "review_ready" });
  await api("POST", `${path}/approvals`, { outcome: "approved", subject_kind: "release", subject_ref: release.release_id }, { as: "user:demo-approver" });
  for (const to_state of ["approved", "active"]) await api("POST", `${path}/transition`, { to_state }, { as: "user:demo-approver" });
  return id;
}

export { pause };
