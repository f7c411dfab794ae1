// Browser tests of read-only jobs in docs/guide/console.md. Each compares a page with the API, and checks that the
// next weaker role is refused.
import { api, check, equal, script, SERVER, until } from "./harness.mjs";
import { refused } from "./console.mjs";
import { approvedRelease, activeWorkload, releaseInReview, people, PEOPLE, settled, visit, WORKSPACE } from "./console-fixtures.mjs";

const close = (page) => page.context().close();
const needs = (permission) => `You need the permission ${permission}.`;
const UNSEEN = "This does not exist, or you may not see it.";
const read = (path, as = "user:local") => api("GET", path, undefined, { as });
const factOf = (page, name) => page.locator("dl.facts > div", { has: page.getByText(name, { exact: true }) }).locator("dd").first().textContent();
const short = (id) => `${id.slice(0, 8)}…${id.slice(-4)}`;
const runOf = async (message) => (await api("POST", "/v1/workloads/by-slug/console-desk/execute", { environment: "dev", inputs: { message } })).execution_id;

/** Checks that a page refuses a person with this reason. */
async function refusedPage(path, as, reason) {
  const weak = await visit(path, as);
  await weak.getByText(reason, { exact: false }).first().waitFor();
  await close(weak);
}

/** Home shows the failed run and its workload as the API lists them. A person who may not read runs sees the reason. */
export async function console_wrong_read() {
  const id = await activeWorkload("console-jobs");
  await api("PATCH", `/v1/workloads/${id}`, { status: "suspended" }, { as: "user:local" });
  const page = await visit("", PEOPLE.operator);
  const wrong = page.getByRole("list", { name: "Is wrong" });
  await wrong.getByRole("listitem").filter({ hasText: "Suspended workload" }).getByRole("link", { name: "console-jobs" }).waitFor();
  await settled(page);
  const since = new Date(Date.now() - 86_400_000).toISOString();
  const [suspended, failed] = [await read(`/v1/workloads?workspace_id=${WORKSPACE}&status=suspended&limit=20`), await read(`/v1/executions?status=failed&since=${since}&limit=20`)];
  equal(await wrong.getByRole("listitem").filter({ hasText: "Suspended workload" }).count(), suspended.length, "all suspended workloads are listed");
  equal(await wrong.getByRole("listitem").filter({ hasText: "Failed run" }).count(), failed.length, "all failed runs are listed");
  await close(page);
  await api("PATCH", `/v1/workloads/${id}`, { status: "registered" }, { as: "user:local" });
  await refusedPage("", PEOPLE.runner, `Failed runs are not listed here. ${needs("execution.view")}`);
}

/** The releases that served each lane at each time equal those of the API. */
export async function console_tenures_read() {
  const release = await approvedRelease("console-jobs");
  await api("POST", `${release.path}/transition`, { to_state: "active" }, { as: "user:demo-approver" });
  const page = await visit(`/lanes?environment=dev&workload_id=${release.workload}`, PEOPLE.operator);
  const row = page.getByTestId("board console-jobs@dev");
  await row.getByText("What served console-jobs@dev, and when").click();
  const lanes = await read(`/v1/workloads/${release.workload}/lanes?environment=dev`);
  const tenures = lanes.flatMap(({ lane, history }) => history.map((one) => ({ lane, ...one })));
  await until(async () => (await row.locator("details li").count()) === tenures.length, "each tenure has a row");
  equal(await row.locator("details li a").allTextContents(), tenures.map((one) => `Release ${short(one.release_id)}`), "the releases are those of the API");
  equal(await row.locator("details li").evaluateAll((rows) => rows.map((one) => one.querySelector("time").dateTime)), tenures.map((one) => one.from), "the times are those of the API");
  await close(page);
  await refusedPage("/lanes", PEOPLE.runner, needs("release.view"));
}

/** The timeline of a run shows the steps, durations, tokens and events of the API. */
export async function console_timeline_read() {
  await activeWorkload("console-desk");
  script("console-time", "An answer in a few words.");
  const id = await runOf("[[console-time]]");
  const run = await read(`/v1/executions/${id}`);
  const page = await visit(`/runs/${id}`, PEOPLE.operator);
  await page.getByText("execution.completed").waitFor();
  equal(await factOf(page, "Tokens in / out"), `${run.tokens_in ?? "–"} / ${run.tokens_out ?? "–"}`, "the tokens are those of the API");
  const rows = page.getByRole("region", { name: "Steps" }).locator("tbody tr");
  const displayedSteps = await rows.evaluateAll((list) => list.map((row) => [row.cells[0].textContent, row.cells[2].textContent.trim()]));
  equal(displayedSteps, (run.steps ?? []).map((step) => [step.step_id, `${(step.duration_us / 1_000).toFixed(1)} ms`]), "the steps are those of the API");
  check(displayedSteps.length > 0 && run.tokens_in !== null, "the run has steps and tokens");
  await close(page);
  await refusedPage(`/runs/${id}`, PEOPLE.runner, UNSEEN);
}

/** An approver sees the waiting releases and reviews of the API, except their own. */
export async function console_waiting_read() {
  await releaseInReview("console-desk");
  const page = await visit("", PEOPLE.approver);
  const waits = page.getByRole("list", { name: "Waits for you" });
  await waits.getByText("Approve or refuse").first().waitFor();
  await settled(page);
  const releases = await read(`/v1/releases?workspace_id=${WORKSPACE}&state=review_ready&limit=20`, PEOPLE.approver);
  const expectedPaths = releases.filter((one) => one.created_by !== PEOPLE.approver).map((one) => `/console/releases/${one.release_id}`);
  equal(await waits.getByRole("listitem").filter({ hasText: "Approve or refuse" }).getByRole("link").evaluateAll((links) => links.map((one) => new URL(one.href).pathname)), expectedPaths, "the releases are those of the API");
  await close(page);
  await refusedPage("", PEOPLE.author, `Approvals and reviews are not listed here. ${needs("release.approve")}`);
}

/**
 * The changes of a release, by words and side by side, and the validity of its approvals follow from the bytes that
 * the API returns.
 */
export async function console_changes_read() {
  const release = await releaseInReview("console-desk");
  await api("POST", `${release.path}/approvals`, { outcome: "approved", subject_kind: "release", subject_ref: release.id }, { as: "user:demo-approver" });
  const [detail, active] = [await read(release.path), await read(`/v1/workloads/${release.workload}/active-release?environment=dev`)];
  const asset = (await read(`/v1/assets?workspace_id=${WORKSPACE}&asset_kind=prompt_template&limit=200`)).find((one) => one.slug === "console-desk-prompt");
  const versions = await read(`/v1/assets/${asset.asset_id}/versions?workspace_id=${WORKSPACE}&limit=200`);
  const boundVersion = (one) => versions.find(({ asset_version_id: id }) => one.bindings.some((binding) => binding.asset_version_id === id));
  const [newVersion, oldVersion] = [boundVersion(detail), boundVersion(active)];
  const page = await visit(`/releases/${release.id}`, PEOPLE.approver);
  const changedWords = page.getByTestId("words").first();
  await changedWords.locator("ins").first().waitFor();
  const side = (removed) => changedWords.evaluate((element, name) => [...element.children].filter((one) => one.localName !== name).map((one) => one.textContent).join(""), removed);
  equal([await side("ins"), await side("del")], [oldVersion.content.system_prompt, newVersion.content.system_prompt], "the words are those of both versions");
  await page.getByText("Content side by side").first().click();
  const column = (index) => page.locator("table.sides").first().locator("tbody tr").evaluateAll((rows, cellIndex) => rows.map((row) => row.cells[cellIndex].textContent).filter((line) => line !== "").join("\n"), index);
  equal([JSON.parse(await column(0)), JSON.parse(await column(1))], [oldVersion.content, newVersion.content], "both sides are the contents of the API");
  await page.getByText("The exact bytes").first().click();
  const checksums = new Set([newVersion, ...(await Promise.all(detail.bindings.map(({ asset_version_id: id }) => versions.find((one) => one.asset_version_id === id))))].filter(Boolean).map((one) => one.checksum));
  for (const checksum of checksums) await page.getByText(checksum).first().waitFor({ state: "attached" });
  const [approval] = await read(`${release.path}/approvals`);
  equal(await page.getByTestId("digest").textContent(), approval.subject_digest, "the digest is the approved one");
  await page.getByText("to the bindings of now").waitFor();
  await api("POST", `${release.path}/transition`, { to_state: "draft" }, { as: PEOPLE.author });
  await api("DELETE", `${release.path}/bindings/${detail.bindings[0].binding_id}`, undefined, { as: PEOPLE.author });
  await page.getByTestId("stale").waitFor({ timeout: 40_000 });
  await page.getByRole("button", { name: "Show the current state" }).click();
  await page.getByText("no longer: the release was edited afterwards").waitFor();
  check((await page.getByTestId("digest").textContent()) !== (await read(`${release.path}/approvals`))[0].subject_digest, "the approval is one of other bindings");
  await close(page);
  await refusedPage(`/releases/${release.id}`, PEOPLE.runner, needs("release.view"));
}

/** An inactive release shows the gates and messages of the API, and the note of its reviewer. */
export async function console_gates_read() {
  const release = await releaseInReview("console-desk");
  const note = `Name the customer ${Date.now()}.`;
  const page = await visit(`/releases/${release.id}`, PEOPLE.author);
  const rows = page.getByRole("region", { name: "Gates" }).locator("tbody tr");
  await rows.first().waitFor();
  const gates = await read(`${release.path}/gates`, PEOPLE.author);
  const displayedMessages = await rows.evaluateAll((list) => list.map((row) => row.cells[3].textContent));
  equal(displayedMessages, gates.map((gate) => (gate.verdict === "pass" ? "" : `${gate.message} (${gate.code})`)), "the gates are those of the API");
  check(gates.some((gate) => gate.verdict !== "pass"), "something stands in the way");
  await api("POST", `${release.path}/approvals`, { outcome: "changes_requested", subject_kind: "release", subject_ref: release.id, note }, { as: PEOPLE.approver });
  await page.reload();
  await page.getByRole("region", { name: "Verdicts" }).getByText(note).waitFor();
  const [verdict] = await read(`${release.path}/approvals`, PEOPLE.author);
  equal([verdict.note, verdict.approved_by], [note, PEOPLE.approver], "the comment is that of the API");
  await close(page);
  await refusedPage(`/releases/${release.id}`, PEOPLE.runner, needs("release.view"));
}

/** A plan shows the pieces and gaps of the API, and creates no resources before its publication. */
export async function console_plan_read() {
  await activeWorkload("console-desk");
  const list = () => read(`/v1/use-cases?workspace_id=${WORKSPACE}&limit=200`);
  const connection = `books-${Date.now()}`;
  const before = await list();
  const page = await visit("/use-cases", PEOPLE.author);
  const planResponse = page.waitForResponse((response) => response.url().includes("/v1/use-cases/generate") && response.ok());
  await page.getByLabel("Description").fill(`It gets a question of an agent, reads the connection \`${connection}\`, and returns one sentence about the customer.`);
  await page.getByRole("button", { name: "Show the plan" }).click();
  const plan = await (await planResponse).json();
  const planElement = page.getByTestId("plan");
  await planElement.getByText(connection).first().waitFor();
  const text = await planElement.textContent();
  for (const gap of plan.open_connection_gaps ?? []) check(text.includes(gap.ref ?? gap.name), `the gap ${JSON.stringify(gap)} is shown`);
  equal((await list()).length, before.length, "nothing is kept yet");
  equal((await read(`/v1/connections?workspace_id=${WORKSPACE}&limit=200`)).some((one) => one.name === connection), false, "no connection is made");
  await page.getByRole("button", { name: "Keep as draft", exact: true }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Keep as draft", exact: true }).click();
  await page.waitForURL(/use-cases\/[0-9a-f-]{36}/);
  const id = page.url().match(/use-cases\/([0-9a-f-]{36})/)[1];
  equal((await read(`/v1/use-cases/${id}?workspace_id=${WORKSPACE}`)).status, "draft");
  await close(page);
  const weak = await visit(`/use-cases/${id}`, PEOPLE.viewer);
  await refused(weak, "Publish", needs("use_case.publish"));
  await refused(weak, "Refine", needs("use_case.author"));
  await close(weak);
  await refusedPage("/use-cases", PEOPLE.viewer, needs("use_case.author"));
}

/**
 * Access decisions show the decision, the permission and the roles of the API. Only administrators
 * may query other people.
 */
export async function console_can_read() {
  await people();
  const query = (operation) => `/v1/session/can?operation=${operation}&scope_kind=workspace&scope_ref=${WORKSPACE}&actor=${encodeURIComponent(PEOPLE.operator)}`;
  const page = await visit(`/access?tab=can&actor=${encodeURIComponent(PEOPLE.operator)}`, PEOPLE.admin);
  for (const operation of ["roll_back_release", "review_release"]) {
    await page.getByLabel("Operation").selectOption(operation);
    const decision = await read(query(operation), PEOPLE.admin);
    const decisionElement = page.getByTestId("can");
    await decisionElement.getByText(`${PEOPLE.operator} ${decision.allowed ? "may" : "may not"}: ${operation}`).waitFor();
    await decisionElement.getByText(decision.permission).waitFor();
    equal(await decisionElement.locator("li").count(), decision.by.length, "the roles are those of the API");
  }
  await close(page);
  await refusedPage(`/access?tab=can&actor=${encodeURIComponent(PEOPLE.admin)}`, PEOPLE.operator, needs("workspace.manage"));
}

/**
 * The audit view of a resource shows the rows of the API, and the inclusion proof of a row with the root of the log.
 */
export async function console_audit_read() {
  const release = await releaseInReview("console-desk");
  const list = () => read(`/v1/audit/events?workspace_id=${WORKSPACE}&subject_id=${release.id}&limit=200`, PEOPLE.auditor);
  // Waits, because the sequencer assigns events their index after the change is committed.
  await until(async () => (await list()).some((one) => one.kind === "release.transitioned"), "the log has the submission");
  const page = await visit(`/audit?subject=${release.id}`, PEOPLE.auditor);
  await page.getByRole("button", { name: /^Prove/ }).first().waitFor();
  const events = await list();
  equal(await page.getByTestId("filtered").count(), 0, "the whole log is searched");
  const rows = page.getByRole("region", { name: "Audit log" }).locator("tbody tr");
  const displayedRows = await rows.evaluateAll((list) => list.map((row) => [row.cells[0].textContent, row.cells[2].textContent, row.cells[3].textContent]));
  equal(displayedRows, events.map((one) => [String(one.index), one.kind, one.actor]), "the rows are those of the API");
  check(events.some((one) => one.actor === PEOPLE.author), "the log names the author");
  await page.getByRole("button", { name: `Prove entry ${events[0].index}` }).or(page.getByRole("button", { name: /^Prove/ })).first().click();
  await page.getByTestId("proof").getByText(/This page checked the proof/).waitFor();
  equal(await factOf(page, "Hash of the entry"), events[0].leaf_hash, "the entry is that of the API");
  await close(page);
  await refusedPage("/audit", PEOPLE.viewer, needs("audit.view"));
}

/** The evidence of a run shows the nodes, the deciding rule and the outcome of the API. */
export async function console_why_read() {
  await activeWorkload("console-desk");
  script("console-why", "An answer.");
  const id = await runOf("[[console-why]]");
  const path = `/v1/executions/${id}/evidence-graph`;
  const [flat, graph] = [await read(path, PEOPLE.auditor), await read(`${path}?format=graph`, PEOPLE.auditor)];
  const page = await visit(`/runs/${id}?tab=evidence`, PEOPLE.auditor);
  await page.locator("g.node").first().waitFor();
  equal(await page.locator("g.node").count(), graph.nodes.length, "each node of the API is drawn");
  await page.goto(`${SERVER}/console/runs/${id}?tab=decision`);
  const decision = flat.policy_decision;
  await page.getByRole("region", { name: "Verdicts" }).waitFor();
  equal([await factOf(page, "Reason"), await factOf(page, "Rules that applied")], [decision.reason_code, decision.rules.join(", ")], "the decision is that of the API");
  equal(await page.getByRole("region", { name: "Verdicts" }).locator("tbody tr").count(), flat.approvals.length, "the approvals are those of the API");
  await close(page);
  await refusedPage(`/runs/${id}?tab=decision`, PEOPLE.runner, UNSEEN);
}
