// Browser tests of runs: progress, outputs, lost connections, reviews and evidence.
import { api, check, cutConnections, equal, holdAnswers, PROXY, look, newPage, script, SERVER, until, workload } from "./harness.mjs";
import { visit } from "./forms.mjs";

const MESSAGE = [{ name: "message", label: "Message", type: "text", required: true }];
const workloads = new Map();
/** Creates a workload with a form of one field and this output display. */
export function simple(display, options = {}) {
  const slug = options.slug ?? `browser-${display}`;
  if (!workloads.has(slug)) {
    const config = { presentation_mode: "form", input_fields: MESSAGE, output_display: display, ...options.config };
    workloads.set(slug, workload(slug, config, options));
  }
  return workloads.get(slug);
}

/** Opens a workload and runs it. The marker in the question selects the answer of the model stub. */
export async function run(slug, marker, options = {}) {
  const page = options.page ?? (await newPage(options));
  await visit(page, slug);
  await page.getByLabel("Message").fill(`[[${marker}]]`);
  await page.getByRole("button", { name: "Run" }).click();
  return page;
}

export async function streaming() {
  await simple("text");
  script("stream", "The first half, and the second half.");
  const release = holdAnswers();
  const page = await run("browser-text", "stream");
  await page.getByText("The first half,").waitFor();
  check(!(await page.getByText("second half").isVisible()), "the second half is not there yet");
  await page.getByRole("list", { name: "Steps" }).waitFor();
  equal(await page.getByRole("status").first().textContent(), "Running …");
  await look(page, "streaming");
  release();
  await page.getByText("The first half, and the second half.").waitFor();
  await page.context().close();
}

export async function text_output() {
  await simple("text");
  script("text", "<b>Not bold</b>\n  indented\n".repeat(30));
  const page = await run("browser-text", "text");
  const panel = page.getByRole("region", { name: "Result" });
  await panel.waitFor();
  equal(await panel.locator("b").count(), 0, "text is not markup");
  await until(() => page.evaluate(() => document.activeElement?.tagName === "H2"), "the focus moves to the result");
  await look(page, "text-output");
  await page.context().close();
}

export async function json_output() {
  await simple("json");
  script("json", JSON.stringify({ name: "Ada", list: [1, true, null], deep: { deeper: { deepest: "x" } } }));
  const page = await run("browser-json", "json");
  const toggle = page.getByRole("button", { name: /deeper:/ });
  await toggle.waitFor();
  check(!(await page.getByText('"x"').isVisible()), "deep levels are closed");
  equal(await toggle.getAttribute("aria-expanded"), "false");
  await toggle.press("Enter");
  await page.getByText('"x"').waitFor();
  await look(page, "json-output");
  await page.context().close();
}

export async function markdown_output() {
  await simple("markdown");
  script("markdown", "# Title\n\nA [link](https://example.org/a) and **bold** [leave].\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- [x] done\n");
  const page = await newPage();
  const cited = page.waitForResponse((response) => response.url().endsWith("include=citations"));
  await run("browser-markdown", "markdown", { page });
  await page.getByRole("heading", { level: 3, name: "Title" }).waitFor();
  const link = page.getByRole("link", { name: "link" });
  equal(await link.getAttribute("rel"), "noreferrer noopener nofollow");
  await page.getByText("(example.org)").waitFor();
  // The server lists no citation, because the run did not retrieve the named document.
  equal((await (await cited).json()).citations, []);
  equal(await page.locator(".sources").count(), 0, "a name that was not retrieved is no source");
  await look(page, "markdown-output");
  await page.context().close();
}

export async function table_output() {
  await simple("table");
  script("table", JSON.stringify([{ name: "b", n: 10 }, { name: "=1+1", n: 9, __proto__x: 1 }, { name: "a" }]));
  const page = await run("browser-table", "table");
  const cells = () => page.locator("tbody tr td:nth-child(2)").allTextContents();
  await page.getByRole("table").waitFor();
  equal(await cells(), ["10", "9", ""]);
  await page.getByRole("button", { name: "n", exact: true }).click();
  equal(await cells(), ["9", "10", ""], "sorts numbers");
  equal(await page.getByRole("columnheader").nth(1).getAttribute("aria-sort"), "ascending");
  await look(page, "table-output");
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Download CSV" }).click();
  const stream = await (await download).createReadStream();
  let csv = "";
  for await (const part of stream) csv += part;
  equal(csv, "name,n,__proto__x\r\n'=1+1,9,1\r\nb,10,\r\na,,\r\n", "the file has the shown order and no formulas");
  await page.context().close();
}

export async function reconnect() {
  await simple("text");
  script("reconnect", "It went on without this page.");
  const release = holdAnswers();
  const page = await newPage();
  await page.goto(`${PROXY}/workload-runtime/browser-text`);
  await page.getByLabel("Message").fill("[[reconnect]]");
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByText("It went on").waitFor();
  // The page is offline for new requests, and the open stream ends as if a proxy had closed it.
  await page.context().setOffline(true);
  cutConnections();
  await page.getByText("The connection was lost.").waitFor();
  await look(page, "reconnecting", { axe: false });
  release();
  await page.context().setOffline(false);
  await page.getByRole("heading", { name: "Result" }).waitFor();
  equal(await page.locator("main pre.output").textContent(), "It went on without this page.");
  await page.context().close();
}

export async function left_and_found() {
  await simple("text");
  script("left", "Found again.");
  const release = holdAnswers();
  const page = await run("browser-text", "left");
  await page.getByRole("button", { name: "Stop" }).waitFor();
  await page.goto(`${SERVER}/workload-runtime`);
  await visit(page, "browser-text");
  await page.getByRole("button", { name: "Stop" }).waitFor();
  await look(page, "found-again");
  release();
  await page.getByText("Found again.").waitFor();
  await page.reload();
  await page.getByText("Found again.").waitFor();
  await page.context().close();
}

export async function stopped() {
  await simple("text");
  script("stopped", "Never shown.");
  const release = holdAnswers();
  const page = await run("browser-text", "stopped");
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByText("The run was stopped.").waitFor();
  release();
  await look(page, "stopped");
  await page.context().close();
}

export async function review() {
  const rules = [{ id: "all", condition: "always", outcome: "allow_with_obligations", obligations: ["human_review"], reason_code: "look_first" }];
  await simple("text", { slug: "browser-review", rules });
  script("review", "Read by a person.");
  const page = await run("browser-review", "review");
  await page.getByRole("heading", { name: "A person reviews this answer" }).waitFor();
  check(!(await page.getByText("Read by a person.").isVisible()), "the answer is hidden before the verdict");
  await look(page, "review");
  const id = (await page.locator("[data-state=review]").textContent()).match(/[0-9a-f-]{36}/)[0];
  await page.reload();
  await page.getByRole("heading", { name: "A person reviews this answer" }).waitFor();
  await api("POST", `/v1/executions/${id}/review`, { outcome: "approved" }, { as: "user:demo-approver" });
  await page.getByText("Read by a person.").waitFor();
  const second = await run("browser-review", "review", { page: await newPage() });
  await second.getByRole("heading", { name: "A person reviews this answer" }).waitFor();
  const secondId = (await second.locator("[data-state=review]").textContent()).match(/[0-9a-f-]{36}/)[0];
  await api("POST", `/v1/executions/${secondId}/review`, { outcome: "rejected" }, { as: "user:demo-approver" });
  await second.getByText("A reviewer rejected this answer").or(second.getByText("do not allow")).waitFor();
  await look(second, "review-rejected");
  await page.context().close();
  await second.context().close();
}

export async function failed() {
  const slug = "browser-failed";
  const rules = [{ id: "all", condition: "always", outcome: "allow_with_obligations", obligations: ["require_citation"], reason_code: "cite" }];
  await simple("text", { slug, rules });
  script("failed", "Nothing is cited here.");
  const page = await run(slug, "failed");
  await page.getByText("The run failed:").waitFor();
  await page.getByText("Run number: ").waitFor();
  await look(page, "failed");
  await page.context().close();
}

export async function why() {
  await simple("text");
  script("why", "Because.");
  const page = await newPage();
  const reads = [];
  page.on("request", (request) => request.url().includes("/evidence-graph") && reads.push(request.url()));
  await run("browser-text", "why", { page });
  await page.getByText("Because.").waitFor();
  await page.waitForLoadState("networkidle");
  equal(reads, [], "the evidence is read when someone asks");
  await page.getByText("Why this answer?").click();
  await page.getByText("user:demo-approver").waitFor();
  await page.getByText("allow, because of rule fine").waitFor();
  await page.getByText("browser-text-prompt").waitFor();
  await look(page, "why");
  await page.context().close();
}

export async function why_hidden() {
  await simple("text");
  const [workspace] = await api("GET", "/v1/workspaces");
  await api("POST", "/v1/role-bindings", { principal: "user:clerk", role: "runtime_user", scope_kind: "workspace", scope_ref: workspace.workspace_id }, { as: "user:local" });
  const page = await newPage();
  await page.goto(`${SERVER}/workload-runtime`);
  await page.getByLabel("Act as").fill("user:clerk");
  await page.getByRole("button", { name: "Switch" }).click();
  await page.getByRole("link", { name: "browser-text" }).click();
  await page.getByLabel("Message").fill("[[why]]");
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByText("Because.").waitFor();
  await page.getByText("Why this answer?").click();
  await page.getByTestId("why-hidden").waitFor();
  await look(page, "why-hidden");
  await page.context().close();
}
