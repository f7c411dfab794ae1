// Browser tests of jobs in docs/guide/console.md: jobs whose refusal for the next weaker role no other test covers,
// and jobs whose result the test reads by the API.
import { api, check, equal, look, newPage, script, SERVER, until, workload } from "./harness.mjs";
import { act, confirm, refused } from "./console.mjs";
import { approvedRelease, activeWorkload, releaseInReview, people, PEOPLE, settled, visit } from "./console-fixtures.mjs";

const close = (page) => page.context().close();
const needs = (permission) => `You need the permission ${permission}.`;
const DESK = { presentation_mode: "form", input_fields: [{ name: "message", label: "Message", type: "text", required: true }] };
/** A workload whose runs fail, because their answers must cite a document and the workload retrieves none. */
const failing = () => workload("console-uncited", DESK, { rules: [{ id: "all", condition: "always", outcome: "allow_with_obligations", obligations: ["require_citation"], reason_code: "cite" }] });
const runOf = async (slug, message) => {
  const { execution_id: id } = await api("POST", `/v1/workloads/by-slug/${slug}/execute?mode=async`, { environment: "dev", inputs: { message } });
  await until(async () => !["queued", "running"].includes((await api("GET", `/v1/executions/${id}`)).status), "the run ends");
  return id;
};

/** For each weaker role, every action on a release shows the missing permission, regardless of the release's state. */
export async function console_release_refusals() {
  const reviewed = await releaseInReview("console-desk");
  const viewer = await visit(`/releases/${reviewed.id}`, PEOPLE.viewer);
  for (const name of ["Approve", "Ask for changes", "Reject"]) await refused(viewer, name, needs("release.approve"));
  for (const name of ["Return to draft", "Bind a version"]) await refused(viewer, name, needs("release.create"));
  for (const name of ["Mark as approved", "Activate", "Retire"]) await refused(viewer, name, needs("release.transition"));
  await close(viewer);
  const author = await visit(`/releases/${reviewed.id}`, PEOPLE.author);
  for (const name of ["Approve", "Ask for changes", "Reject"]) await refused(author, name, needs("release.approve"));
  await close(author);
  const draft = await releaseInReview("console-desk", { submit: false });
  const approverPage = await visit(`/releases/${draft.id}`, PEOPLE.approver);
  await refused(approverPage, "Submit for review", needs("release.create"));
  await refused(approverPage, "Approve", "Verdicts are possible while the release is in review.");
  equal(await approverPage.getByRole("button", { name: /^Take out/ }).first().getAttribute("aria-disabled"), "true", "a weaker role takes nothing out");
  await close(approverPage);
  equal([(await api("GET", reviewed.path)).state, (await api("GET", draft.path)).state], ["review_ready", "draft"], "nothing changed");
  const ready = await approvedRelease("console-jobs");
  const approver = await visit(`/releases/${ready.id}`, PEOPLE.approver);
  await refused(approver, "Activate", needs("release.transition"));
  await close(approver);
  await api("POST", `${ready.path}/transition`, { to_state: "active" }, { as: "user:demo-approver" });
  const active = await visit(`/releases/${ready.id}`, PEOPLE.author);
  await refused(active, "Roll back", needs("release.rollback"));
  await look(active, "console-refused");
  await close(active);
  equal((await api("GET", ready.path)).state, "active");
}

/** A page without read permission shows the missing permission, or that the resource does not exist. */
export async function console_reading_refusals() {
  const release = await releaseInReview("console-desk");
  script("console-other", "An answer.");
  const run = await runOf("console-desk", "[[console-other]]");
  const refusals = {
    "/runs": needs("execution.view"), "/reviews": needs("execution.view"), "/releases": needs("release.view"), "/assets": needs("asset.view"), "/assets?tab=flows": needs("asset.view"),
    "/connections": needs("connection.read"), "/notifications?tab=deliveries": needs("notification.delivery.view"), "/notifications?tab=suppressed": needs("notification.audit.view"),
    "/audit": needs("audit.view"), "/access": needs("workspace.manage"), [`/runs/${run}`]: "This does not exist, or you may not see it.", [`/releases/${release.id}`]: "",
  };
  const page = await visit("", PEOPLE.runner);
  for (const [path, reason] of Object.entries(refusals)) {
    await page.goto(`${SERVER}/console${path}`);
    await page.getByRole("alert").filter({ hasText: reason }).first().waitFor();
    await page.getByText(/Request number: [0-9a-f-]{36}/).first().waitFor();
    check(!(await page.content()).includes("customers about their invoices"), `${path} shows nothing of the release`);
  }
  await close(page);
}

/** Failures, and failures of one kind: the page shows the rows of the API, at an address that a colleague can open. */
export async function console_failures() {
  await failing();
  script("console-uncited", "Nothing is cited here.");
  const run = await runOf("console-uncited", "[[console-uncited]]");
  const { status, error } = await api("GET", `/v1/executions/${run}`);
  equal(status, "failed");
  const homePage = await visit("", PEOPLE.operator);
  await homePage.getByRole("listitem").filter({ hasText: "Failed run" }).getByRole("link", { name: "console-uncited@dev" }).first().waitFor();
  await close(homePage);
  const page = await visit(`/runs?status=failed&since=24h&error_code=${error.code}`, PEOPLE.operator);
  await settled(page);
  const since = new Date(Date.now() - 86_400_000).toISOString();
  const expectedRuns = await api("GET", `/v1/executions?status=failed&error_code=${error.code}&since=${since}&limit=200`, undefined, { as: PEOPLE.operator });
  await page.getByText(`Rows loaded: ${expectedRuns.length} of ${expectedRuns.length}`).waitFor();
  await page.locator(`a[href$="/runs/${run}"]`).click();
  await page.getByRole("heading", { level: 1 }).waitFor();
  check(page.url().includes(run), "the row leads to the run");
  await page.getByText(error.code).first().waitFor();
  await close(page);
}

/** The page of a release shows the author the note of the reviewer. */
export async function console_verdict_read() {
  const release = await releaseInReview("console-desk");
  await api("POST", `${release.path}/approvals`, { outcome: "changes_requested", subject_kind: "release", subject_ref: release.id, note: "Shorter, please." }, { as: PEOPLE.approver });
  const page = await visit(`/releases/${release.id}`, PEOPLE.author);
  await page.getByText("Shorter, please.").waitFor();
  const submit = await act(page, "Submit for review");
  await confirm(page, submit, "Submit for review");
  equal((await api("GET", release.path)).state, "review_ready");
  await close(page);
}

/** An operator can resume a suspended workload, and an author cannot. */
export async function console_resume() {
  const id = await activeWorkload("console-jobs");
  await api("PATCH", `/v1/workloads/${id}`, { status: "suspended" }, { as: "user:local" });
  const weak = await visit(`/workloads/${id}`, PEOPLE.author);
  await refused(weak, "Resume", needs("workload.suspend"));
  await close(weak);
  const homePage = await visit("", PEOPLE.operator);
  await homePage.getByRole("listitem").filter({ hasText: "Suspended workload" }).getByRole("link", { name: "console-jobs" }).click();
  const dialog = await act(homePage, "Resume");
  await confirm(homePage, dialog, "Resume");
  equal((await api("GET", `/v1/workloads/${id}`)).status, "registered");
  await close(homePage);
}

/** The console tells an anonymous visitor that it requires an identity. */
export async function console_anonymous() {
  await people();
  const page = await newPage();
  await page.addInitScript(() => localStorage.setItem("fairway.actor", "anonymous"));
  await page.goto(`${SERVER}/console/releases`);
  await page.getByText("The console needs an identity.", { exact: false }).or(page.getByRole("alert")).first().waitFor();
  equal(await page.getByRole("table").count(), 0, "nothing is listed");
  await look(page, "console-anonymous");
  await close(page);
}
