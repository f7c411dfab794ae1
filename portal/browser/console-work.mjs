// Browser tests of the console: runs, reviews, use cases, connections, notifications, access, audit, and transfer size.
import { api, check, equal, look, newPage, script, SERVER, until, workload } from "./harness.mjs";
import { act, confirm, refused } from "./console.mjs";
import { activeWorkload, releaseInReview, people, PEOPLE, settled, visit, WORKSPACE } from "./console-fixtures.mjs";

const close = (page) => page.context().close();
const execute = async (slug, message) => {
  const execution = await api("POST", `/v1/workloads/by-slug/${slug}/execute?mode=async`, { environment: "dev", inputs: { message } }, { as: "user:demo-author" });
  return execution.execution_id;
};
const ended = (id) => until(async () => !["queued", "running"].includes((await api("GET", `/v1/executions/${id}`)).status), "the run ends");

/** The address contains the filters, so a colleague sees the same rows. A run is shown as a timeline. */
export async function console_runs() {
  await activeWorkload("console-desk");
  script("console-run", "An answer.");
  const id = await execute("console-desk", "[[console-run]]");
  await ended(id);
  const page = await visit("/runs", PEOPLE.operator);
  await page.getByLabel("Workload").selectOption({ label: "console-desk" });
  await page.getByLabel("State").selectOption("completed");
  await page.getByLabel("Since").fill("24h");
  await page.getByLabel("By", { exact: true }).fill("user:demo-author");
  await until(() => ["workload_id", "status", "since", "submitted_by"].every((name) => new URL(page.url()).searchParams.get(name)), "all filters are in the address");
  await page.getByRole("region", { name: "Runs" }).getByRole("link").first().waitFor();
  await look(page, "console-runs-filtered");
  const second = await visit(page.url().split("/console")[1], PEOPLE.operator);
  await second.getByRole("region", { name: "Runs" }).getByRole("link").first().waitFor();
  equal(await second.getByLabel("By", { exact: true }).inputValue(), "user:demo-author", "the address carries the filter");
  await second.getByText("The same in a shell").click();
  await second.getByText(/--workload console-desk --status completed --by user:demo-author --since 24h/).waitFor();
  await close(second);
  await page.goto(`${SERVER}/console/runs/${id}`);
  await page.getByText("Events: ").waitFor();
  await page.getByText("execution.completed").waitFor();
  await look(page, "console-run");
  await refused(page, "Cancel the run", "The run has ended.");
  await page.getByRole("tab", { name: "Decision" }).click();
  await page.getByText("fine").first().waitFor();
  await look(page, "console-run-decision");
  await page.getByRole("tab", { name: "Lineage" }).click();
  await settled(page);
  await look(page, "console-run-lineage");
  await close(page);
}

/** The evidence graph can be navigated by keyboard and downloaded as a file. */
export async function console_evidence() {
  await activeWorkload("console-desk");
  script("console-evidence", "An answer.");
  const id = await execute("console-desk", "[[console-evidence]]");
  await ended(id);
  const page = await visit(`/runs/${id}?tab=evidence`, PEOPLE.auditor);
  const chosen = page.locator('g[aria-pressed="true"]');
  await chosen.waitFor();
  const first = await chosen.textContent();
  await chosen.focus();
  await page.keyboard.press("ArrowRight");
  await until(async () => (await chosen.textContent()) !== first, "the arrow key moves");
  await look(page, "console-evidence");
  for (const [name, end] of [["Save as SVG", ".svg"], ["Save as PNG", ".png"]]) {
    const download = page.waitForEvent("download");
    await page.getByRole("button", { name }).click();
    check((await download).suggestedFilename().endsWith(end), `${name} gives a file`);
  }
  await close(page);
}

/** An operator cancels a hanging run. A viewer sees the missing permission. */
export async function console_cancel() {
  await activeWorkload("console-desk");
  const { holdAnswers } = await import("./harness.mjs");
  script("console-cancel", "Never.");
  const releaseAnswers = holdAnswers();
  const id = await execute("console-desk", "[[console-cancel]]");
  await until(async () => (await api("GET", `/v1/executions/${id}`)).status === "running", "the run starts");
  const weak = await visit(`/runs/${id}`, PEOPLE.viewer);
  await refused(weak, "Cancel the run", "You need the permission execution.kill.");
  await close(weak);
  const page = await visit(`/runs/${id}`, PEOPLE.operator);
  const dialog = await act(page, "Cancel the run");
  await confirm(page, dialog, "Cancel the run");
  releaseAnswers();
  await until(async () => (await api("GET", `/v1/executions/${id}`)).status === "cancelled", "the run is cancelled");
  await close(page);
}

/** A reviewer reads the waiting answers, approves one and rejects one. A viewer may not. */
export async function console_review() {
  const rules = [{ id: "all", condition: "always", outcome: "allow_with_obligations", obligations: ["human_review"], reason_code: "look_first" }];
  await workload("console-review", { presentation_mode: "form", input_fields: [{ name: "message", label: "Message", type: "text", required: true }] }, { rules });
  script("console-review", "Read by a person.");
  const ids = [await execute("console-review", "[[console-review]]"), await execute("console-review", "[[console-review]]")];
  for (const id of ids) await until(async () => (await api("GET", `/v1/executions/${id}`)).status === "awaiting_review", "the run waits");
  const weak = await visit(`/runs/${ids[0]}`, PEOPLE.viewer);
  await refused(weak, "Release the answer", "You need the permission release.approve.");
  await close(weak);
  const submitterPage = await visit(`/runs/${ids[0]}`, "user:demo-author");
  await refused(submitterPage, "Release the answer", "You started this run, so somebody else must review it.");
  await close(submitterPage);
  const page = await visit("/reviews", PEOPLE.approver);
  await page.getByRole("region", { name: "Review queue" }).getByRole("link").first().waitFor();
  await look(page, "console-reviews");
  await page.goto(`${SERVER}/console/runs/${ids[0]}`);
  await page.getByText("Read by a person.").waitFor();
  const dialog = await act(page, "Release the answer");
  await dialog.getByLabel("Comment").fill("It is right.");
  await confirm(page, dialog, "Release the answer");
  equal((await api("GET", `/v1/executions/${ids[0]}`)).status, "completed");
  await page.goto(`${SERVER}/console/runs/${ids[1]}`);
  await page.getByText("Read by a person.").waitFor();
  const reject = await act(page, "Reject the answer");
  await look(page, "console-review");
  await confirm(page, reject, "Reject the answer");
  check(["failed", "denied"].includes((await api("GET", `/v1/executions/${ids[1]}`)).status), "the run is rejected");
  await close(page);
}

/** Home lists waiting tasks, failures and recent changes for the current person. */
export async function console_home() {
  const release = await releaseInReview("console-desk");
  const page = await visit("", PEOPLE.approver);
  const waits = page.getByRole("list", { name: "Waits for you" });
  await waits.getByText("Approve or refuse").first().waitFor();
  await look(page, "console-home");
  check((await waits.getByRole("link", { name: "console-desk@dev" }).count()) > 0, "the release waits");
  await close(page);
  const author = await visit("", PEOPLE.author);
  await author.getByRole("heading", { name: "Changed" }).waitFor();
  await settled(author);
  equal(await author.getByRole("listitem").filter({ hasText: "Approve or refuse" }).count(), 0, "nothing waits for a person who cannot approve");
  await close(author);
  // A change appears without a reload of the page.
  const live = await visit("", PEOPLE.operator);
  const id = await activeWorkload("console-live");
  await api("PATCH", `/v1/workloads/${id}`, { status: "suspended" }, { as: "user:local" });
  await live.getByText("Suspended workload").first().waitFor({ timeout: 40_000 });
  await api("PATCH", `/v1/workloads/${id}`, { status: "registered" }, { as: "user:local" });
  check((await api("GET", release.path)).state === "review_ready", "looking changes nothing");
  await close(live);
}

/** The preference matrix stores one choice at a scope, and the explanation shows which scope decides. */
export async function console_preferences() {
  const id = await activeWorkload("console-desk");
  const as = PEOPLE.operator;
  const page = await visit("/notifications?tab=preferences", as);
  const cell = page.getByLabel("Incidents, E-mail");
  await cell.waitFor();
  const choice = (await cell.inputValue()) === "on" ? "off" : "on";
  await cell.selectOption(choice);
  const effective = page.getByTestId("incidents email");
  await until(async () => (await effective.textContent()) === `${choice}, by you, everywhere`, "the explainer follows");
  const stored = await api("GET", "/v1/notifications/preferences", undefined, { as });
  equal(stored.find((one) => one.category === "incidents" && one.channel === "email").enabled, choice === "on");
  await page.getByLabel("Scope").selectOption("workspace");
  const narrow = page.getByLabel("Incidents, E-mail");
  const otherChoice = choice === "on" ? "off" : "on";
  // Waits for the caption, because the matrix of the previous scope stays briefly after the address has changed.
  await page.getByText(/^Choices for: Workspace /).waitFor();
  await narrow.selectOption(otherChoice);
  await until(async () => (await effective.textContent()) === `${otherChoice}, by the workspace`, "the narrower scope decides");
  await look(page, "console-preferences");
  await page.goto(`${SERVER}/console/notifications?tab=preferences&workload=${id}&environment=dev`);
  await page.getByLabel("Incidents, E-mail").or(page.getByRole("alert")).first().waitFor();
  await look(page, "console-preferences-environment");
  await close(page);
}

/** Notifications in the inbox can be marked as read and archived. */
export async function console_inbox() {
  await releaseInReview("console-desk");
  const as = "user:local";
  await until(async () => (await api("GET", "/v1/notifications/inbox?status=unread", undefined, { as })).length > 0, "a notification arrives");
  const page = await visit("/notifications?status=unread", as);
  await page.getByRole("link", { name: /unread: \d+/ }).waitFor();
  const [newest] = await api("GET", "/v1/notifications/inbox?status=unread", undefined, { as });
  await page.getByRole("button", { name: "Mark as read" }).first().click();
  await until(async () => (await api("GET", "/v1/notifications/inbox?status=read&limit=200", undefined, { as })).some((one) => one.notification_id === newest.notification_id), "it is read");
  await look(page, "console-inbox");
  await page.getByRole("button", { name: "Mark all as read" }).click();
  await page.getByText("No notification fits.").waitFor();
  await until(async () => (await page.getByRole("link", { name: /^Notifications/ }).textContent()) === "Notifications", "the badge is gone");
  equal((await api("GET", "/v1/notifications/inbox?status=unread", undefined, { as })).length, 0);
  await close(page);
}

/** A destination is added, turned off and deleted. A viewer sees the missing permission. */
export async function console_destinations() {
  const weak = await visit("/notifications?tab=destinations", PEOPLE.viewer);
  await refused(weak, "Add a destination", "You need the permission notification.destination.manage.");
  await close(weak);
  const page = await visit("/notifications?tab=destinations", PEOPLE.admin);
  const name = `Desk ${Date.now()}`;
  const dialog = await act(page, "Add a destination");
  await dialog.getByLabel("Name").fill(name);
  await dialog.getByLabel("Kind").selectOption("webhook");
  await dialog.getByLabel("URL", { exact: true }).fill(`https://hooks.example.org/${Date.now()}`);
  await confirm(page, dialog, "Add a destination");
  const list = async () => api("GET", `/v1/notifications/workspaces/${WORKSPACE}/destinations?limit=200`, undefined, { as: PEOPLE.admin });
  equal((await list()).find((one) => one.display_name === name).is_enabled, true);
  await page.getByRole("button", { name: `Turn off ${name}` }).click();
  await confirm(page, page.getByRole("dialog"), "Change");
  equal((await list()).find((one) => one.display_name === name).is_enabled, false);
  await look(page, "console-destinations");
  await page.getByRole("button", { name: `Delete ${name}` }).click();
  await confirm(page, page.getByRole("dialog"), "Delete");
  equal((await list()).some((one) => one.display_name === name), false);
  await close(page);
}

/** An administrator grants and revokes a role, and queries the permissions of a person. */
export async function console_access() {
  await activeWorkload("console-desk");
  const weak = await visit("/access", PEOPLE.operator);
  await refused(weak, "Give a role", "You need the permission workspace.manage.");
  await close(weak);
  const page = await visit("/access", PEOPLE.admin);
  const principal = `user:new-${Date.now()}`;
  const dialog = await act(page, "Give a role");
  await dialog.getByLabel("Person, group or service").fill(principal);
  await dialog.getByLabel("Role").selectOption("approver");
  await dialog.getByText(/release\.approve/).waitFor();
  await look(page, "console-give-role");
  await confirm(page, dialog, "Give a role");
  const list = () => api("GET", `/v1/role-bindings?workspace_id=${WORKSPACE}&limit=200`, undefined, { as: "user:local" });
  equal((await list()).find((one) => one.principal === principal).role, "approver");
  await page.goto(`${SERVER}/console/access?tab=can&actor=${encodeURIComponent(principal)}&operation=review_release`);
  await page.getByTestId("can").getByText(`${principal} may: review_release`).waitFor();
  await page.getByText("by the role Approver", { exact: false }).waitFor();
  await look(page, "console-can");
  await page.getByLabel("Operation").selectOption("create_role_binding");
  await page.getByTestId("can").getByText(`${principal} may not: create_role_binding`).waitFor();
  await page.goto(`${SERVER}/console/access`);
  await page.getByRole("button", { name: `Take back Approver of ${principal}` }).click();
  await confirm(page, page.getByRole("dialog"), "Take back");
  equal((await list()).some((one) => one.principal === principal), false);
  await close(page);
}

/** An auditor finds a change, and the page checks its proof. A viewer may not read the log. */
export async function console_audit() {
  await releaseInReview("console-desk");
  const weak = await visit("/audit", PEOPLE.viewer);
  await weak.getByText("You may not do this. You need the permission audit.view.").waitFor();
  await look(weak, "console-audit-refused");
  await close(weak);
  const page = await visit("/audit", PEOPLE.auditor);
  await page.getByRole("button", { name: /^Prove/ }).first().waitFor();
  await page.getByLabel("Event").selectOption("release.transitioned");
  await page.getByLabel("By", { exact: true }).fill(PEOPLE.author);
  await page.getByTestId("filtered").waitFor();
  await page.getByRole("button", { name: /^Prove/ }).first().click();
  await page.getByTestId("proof").getByText(/This page checked the proof/).waitFor();
  await look(page, "console-audit");
  await close(page);
}

/** An author describes a use case, answers a question and publishes the plan. An operator grants the missing access. */
export async function console_use_case() {
  await activeWorkload("console-desk");
  const weak = await visit("/use-cases", PEOPLE.viewer);
  await refused(weak, "Show the plan", "You need the permission use_case.author.");
  await close(weak);
  const connection = `crm-${Date.now()}`;
  const page = await visit("/use-cases", PEOPLE.author);
  await page.getByLabel("Description").fill("Help people");
  await page.getByRole("button", { name: "Show the plan" }).click();
  await page.getByTestId("question").waitFor();
  await look(page, "console-question");
  await page.getByLabel("Your answer").fill(`It gets a question of an agent, reads the connection \`${connection}\`, and returns one sentence about the customer.`);
  await page.getByRole("button", { name: "Show the plan" }).click();
  await page.getByTestId("plan").getByText(connection).first().waitFor();
  await look(page, "console-plan");
  const dialog = await act(page, "Keep as draft");
  await dialog.getByRole("button", { name: "Keep as draft", exact: true }).click();
  const publish = await act(page, "Publish");
  const id = page.url().match(/use-cases\/([0-9a-f-]{36})/)[1];
  await confirm(page, publish, "Publish");
  const read = () => api("GET", `/v1/use-cases/${id}?workspace_id=${WORKSPACE}`, undefined, { as: "user:local" });
  equal((await read()).status, "pending_access");
  await page.getByRole("region", { name: "Access requests" }).getByText(connection).waitFor();
  await settled(page);
  await look(page, "console-use-case");
  await page.goto(`${SERVER}/console/connections?tab=requests`);
  await page.getByRole("button", { name: `Decide on ${connection}` }).click();
  await refused(page, "Grant", "You need the permission access_request.grant.");
  await close(page);
  const operator = await visit("/connections?tab=requests&status=pending", PEOPLE.operator);
  await operator.getByRole("button", { name: `Decide on ${connection}` }).click();
  const grant = await act(operator, "Grant");
  await grant.getByLabel("Kind").selectOption("http");
  await grant.getByLabel("Endpoint").fill("https://crm.example.org");
  await look(operator, "console-grant");
  await confirm(operator, grant, "Grant");
  const granted = await read();
  equal(granted.status, "active", "the last grant activates the use case");
  await operator.goto(`${SERVER}/console/releases/${granted.release_id}`);
  await operator.getByRole("link", { name: id }).click();
  await operator.waitForURL(`**/console/use-cases/${id}**`);
  await close(operator);
}

/** An administrator adds a connection and checks its endpoint. A viewer may not see connections. */
export async function console_connection() {
  await people();
  const weak = await visit("/connections", PEOPLE.viewer);
  await weak.getByText("You need the permission connection.read.", { exact: false }).first().waitFor();
  await close(weak);
  const page = await visit("/connections", PEOPLE.admin);
  const name = `desk-${Date.now()}`;
  const dialog = await act(page, "Add a connection");
  await dialog.getByLabel("Name").fill(name);
  await dialog.getByLabel("Endpoint").fill("https://crm.example.org");
  await confirm(page, dialog, "Add a connection");
  await page.getByRole("button", { name: `Checks of ${name}` }).click();
  await page.getByText("It was never checked.").waitFor();
  await look(page, "console-connection");
  const list = () => api("GET", `/v1/connections?workspace_id=${WORKSPACE}&limit=200`, undefined, { as: "user:local" });
  equal((await list()).find((one) => one.name === name).connector_kind, "http");
  await page.getByRole("button", { name: `Check ${name}` }).click();
  await confirm(page, page.getByRole("dialog"), "Check");
  await until(async () => (await list()).find((one) => one.name === name).health !== "unchecked", "it is checked");
  await page.getByRole("button", { name: `Delete ${name}` }).click();
  await confirm(page, page.getByRole("dialog"), "Delete");
  equal((await list()).some((one) => one.name === name), false);
  await close(page);
}

/** A person can approve a release with a note by keyboard alone. */
export async function console_keyboard() {
  const release = await releaseInReview("console-desk");
  const page = await visit(`/releases/${release.id}`, PEOPLE.approver);
  const approve = page.getByRole("button", { name: "Approve", exact: true });
  await until(async () => (await approve.getAttribute("aria-disabled")) === "false", "approving is allowed");
  const focused = () => page.evaluate(() => document.activeElement?.textContent ?? "");
  const tabTo = async (label) => {
    for (let count = 0; count < 80; count += 1) {
      await page.keyboard.press("Tab");
      if ((await focused()).trim() === label) return;
    }
    throw new Error(`the Tab key does not reach ${label}`);
  };
  await tabTo("Approve");
  equal(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), "solid", "the focus is visible");
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  // The dialog takes the focus after it appears. Before that, its close button could receive the typed keys.
  await until(() => dialog.evaluate((element) => element.contains(document.activeElement)), "the dialog has the focus");
  const comment = dialog.getByLabel("Comment");
  await comment.focus();
  await page.keyboard.type("By keys.");
  equal(await comment.inputValue(), "By keys.");
  await tabTo("Approve");
  await page.keyboard.press("Enter");
  await page.getByText("to the bindings of now").waitFor();
  equal((await api("GET", `${release.path}/approvals`))[0].note, "By keys.");
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: "Command palette" }).waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await close(page);
}

/**
 * The document contains few rows of a list of 20,000 rows (100,000 in the long form) and of a run with 20,000 events.
 * Durations are only printed.
 */
export async function console_long_lists() {
  const PAGES = process.env.PORTAL_LONG ? 500 : 100;
  const id = (number) => `00000000-0000-7000-8000-${number.toString(16).padStart(12, "0")}`;
  const rowOf = (number) => ({
    execution_id: id(number), workload_id: id(1), workload_slug: "long", release_id: id(2), environment: "dev", lane: "standard", submitted_by: `user:n${number}`, status: "completed",
    reason_code: "fine", started_at: "2026-01-01T00:00:00Z", duration_ms: number, error: null, tokens_in: 1, tokens_out: 1, cost_micros: null, steps: [],
  });
  const page = await visit("", "user:local");
  await page.addInitScript(() => {
    globalThis.longest = 0;
    new PerformanceObserver((list) => list.getEntries().forEach((entry) => (globalThis.longest = Math.max(globalThis.longest, entry.duration)))).observe({ entryTypes: ["longtask"] });
  });
  await page.route("**/v1/executions?**", (route) => {
    const pageIndex = Number(new URL(route.request().url()).searchParams.get("cursor") ?? "0");
    const headers = { "x-total-count": String(PAGES * 200), ...(pageIndex + 1 < PAGES ? { link: `</v1/executions?limit=200&cursor=${pageIndex + 1}>; rel="next"` } : {}) };
    return route.fulfill({ headers, json: Array.from({ length: 200 }, (_, index) => rowOf(pageIndex * 200 + index)) });
  });
  await page.goto(`${SERVER}/console/runs`);
  const frame = page.getByRole("region", { name: "Runs" });
  await frame.waitFor();
  await page.evaluate(() => (globalThis.longest = 0));
  let maxRows = 0;
  await until(
    async () => {
      await frame.evaluate((element) => element.scrollTo(0, element.scrollHeight));
      maxRows = Math.max(maxRows, await frame.locator("tbody tr").count());
      return (await page.getByText(`Rows loaded: ${PAGES * 200} of ${PAGES * 200}`).count()) > 0;
    },
    "all rows are loaded",
    300_000,
  );
  await frame.evaluate((element) => element.scrollTo(0, element.scrollHeight));
  await frame.getByText(`user:n${PAGES * 200 - 1}`).waitFor();
  check(maxRows <= 200, `${maxRows} rows are in the page`);
  console.log(`        ${PAGES * 200} rows: at most ${maxRows} in the page; longest task ${Math.round(await page.evaluate(() => globalThis.longest))} ms`);
  const events = Array.from({ length: 20_000 }, (_, index) => `id: ${index + 1}\nevent: ${index === 19_999 ? "execution.completed" : "step.started"}\ndata: {"step_id":"s${index}"}\n\n`).join("");
  await page.route(`**/v1/executions/${id(7)}`, (route) => route.fulfill({ json: rowOf(7) }));
  await page.route(`**/v1/executions/${id(7)}/events`, (route) => route.fulfill({ contentType: "text/event-stream", body: events }));
  const start = Date.now();
  await page.goto(`${SERVER}/console/runs/${id(7)}`);
  await page.getByText("Events: 20000").waitFor();
  console.log(`        20,000 events shown after ${Date.now() - start} ms; longest task ${Math.round(await page.evaluate(() => globalThis.longest))} ms`);
  const list = page.getByRole("region", { name: "Events" });
  check((await list.getByRole("listitem").count()) <= 200, "few events are in the page");
  await list.evaluate((element) => element.scrollTo(0, element.scrollHeight));
  await list.getByText("step_id: s19999").waitFor();
  await close(page);
}

/** No view scrolls horizontally at a width of 320 px. */
export async function console_narrow() {
  const id = await activeWorkload("console-desk");
  for (const path of ["", "/lanes", "/runs", "/assets", `/workloads/${id}`, `/workloads/${id}?tab=interface`, "/notifications?tab=preferences", "/audit", "/access?tab=erasures"]) {
    const page = await visit(path, "user:local", { viewport: { width: 320, height: 600 } });
    await settled(page);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    check(overflow <= 0, `${path} scrolls sideways by ${overflow} px`);
    if (path === "/lanes") await look(page, "console-narrow");
    await close(page);
  }
}

/** With an identity provider the console redirects once to the sign-in with its address. After that it shows a link. */
export async function console_sign_in() {
  const page = await newPage();
  await page.route("**/console/**", async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, body: (await response.text()).replace('data-auth="local"', 'data-auth="oidc"') });
  });
  await page.route("**/v1/session", (route) => route.fulfill({ status: 401, json: { detail: { error: "unauthenticated", message: "no identity" }, request_id: "x" } }));
  await page.route("**/sign-in?**", (route) => route.fulfill({ contentType: "text/html", body: "<title>provider</title><h1>Provider</h1>" }));
  await page.goto(`${SERVER}/console/runs?status=failed`);
  await page.getByRole("heading", { name: "Provider" }).waitFor();
  equal(new URL(page.url()).searchParams.get("return_to"), "/console/runs?status=failed", "the sign-in returns to the same view");
  await page.goto(`${SERVER}/console/runs?status=failed`);
  const link = page.getByRole("link", { name: "Sign in" });
  await link.waitFor();
  equal(await link.getAttribute("href"), "/sign-in?return_to=%2Fconsole%2Fruns%3Fstatus%3Dfailed");
  await look(page, "console-sign-in");
  await close(page);
}

/** Auditors see a list of the notifications that settings of recipients have suppressed. */
export async function console_suppressed() {
  await people();
  const as = PEOPLE.approver;
  await api("PUT", "/v1/notifications/preferences", [{ category: "approvals", channel: "portal", enabled: false }], { as });
  await releaseInReview("console-desk");
  const list = () => api("GET", `/v1/notifications/suppressed-decisions?workspace_id=${WORKSPACE}&limit=200`, undefined, { as: "user:local" });
  await until(async () => (await list()).some((one) => one.recipient === as), "a decision is recorded", 30_000);
  const page = await visit("/notifications?tab=suppressed", PEOPLE.auditor);
  await page.getByRole("cell", { name: as }).first().waitFor();
  await page.getByText("a preference is off").first().waitFor();
  await look(page, "console-suppressed");
  await close(page);
  await api("PUT", "/v1/notifications/preferences", [{ category: "approvals", channel: "portal", enabled: true }], { as });
  const weak = await visit("/notifications?tab=suppressed", PEOPLE.viewer);
  await weak.getByText("You need the permission notification.audit.view.", { exact: false }).waitFor();
  await close(weak);
}

/** Limits the bytes that the first view of the console transfers. */
export async function console_first_view() {
  const page = await newPage();
  const session = await page.context().newCDPSession(page);
  await session.send("Network.enable");
  const kinds = new Map();
  const bytes = { js: 0, css: 0 };
  session.on("Network.responseReceived", ({ requestId, response }) => kinds.set(requestId, response.url));
  session.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => {
    const kind = kinds.get(requestId)?.match(/\.(js|css)$/)?.[1];
    if (kind) bytes[kind] += encodedDataLength;
  });
  await page.goto(`${SERVER}/console`);
  await page.getByRole("heading", { level: 1, name: "Home" }).waitFor();
  await page.waitForLoadState("networkidle");
  console.log(`        first view of the console: ${bytes.js} bytes of JavaScript and ${bytes.css} of CSS transferred`);
  check(bytes.js < 250_000, `the first view transfers ${JSON.stringify(bytes)}`);
  await page.context().close();
}
