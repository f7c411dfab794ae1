// Browser tests of the console: releases, lanes, workloads and share links. A permitted role performs each job, and
// the next weaker role is refused.
import { api, check, equal, look, SERVER, until } from "./harness.mjs";
import { approvedRelease, activeWorkload, releaseInReview, PEOPLE, settled, visit } from "./console-fixtures.mjs";

const close = (page) => page.context().close();
const reasonOf = (page, name) => page.getByRole("button", { name, exact: true }).locator("xpath=following-sibling::*[contains(@class,'reason')]");
/** Checks that a button shows this reason for its refusal, and that pressing it has no effect. */
export async function refused(page, name, reason) {
  const button = page.getByRole("button", { name, exact: true });
  await button.waitFor();
  let actualReason = "";
  const isReasonShown = async () => {
    actualReason = await reasonOf(page, name).textContent({ timeout: 1_000 }).catch(() => "");
    return actualReason === reason;
  };
  await until(isReasonShown, `${name} is refused with its reason`).catch((error) => {
    throw new Error(`${error.message}, but says: ${actualReason}`);
  });
  equal(await button.getAttribute("aria-disabled"), "true", name);
  await button.click({ force: true });
  equal(await page.getByRole("dialog").count(), 0, `${name} opens nothing`);
}
/** Presses the button of an action as soon as the server permits the action. */
export async function act(page, name) {
  const button = page.getByRole("button", { name, exact: true });
  await until(async () => (await button.getAttribute("aria-disabled")) === "false", `${name} is allowed`);
  await button.click();
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  return dialog;
}
export const confirm = async (page, dialog, name) => {
  await dialog.getByRole("button", { name, exact: true }).click();
  await dialog.waitFor({ state: "detached" });
};
const stateOf = async (id) => (await api("GET", `/v1/releases/${id}`)).state;

/** Every view passes the accessibility check in both colour schemes. */
export async function console_views() {
  const id = await activeWorkload("console-desk");
  const release = await releaseInReview("console-desk");
  const views = {
    home: "", workloads: "/workloads", workload: `/workloads/${id}`, "workload-links": `/workloads/${id}?tab=links`, lanes: "/lanes", releases: "/releases", release: `/releases/${release.id}`,
    runs: "/runs", reviews: "/reviews", "use-cases": "/use-cases", connections: "/connections", requests: "/connections?tab=requests", inbox: "/notifications",
    preferences: "/notifications?tab=preferences", destinations: "/notifications?tab=destinations", suppressed: "/notifications?tab=suppressed",
    "workload-interface": `/workloads/${id}?tab=interface`, "workload-principals": `/workloads/${id}?tab=principals`, assets: "/assets", flows: "/assets?tab=flows",
    deliveries: "/notifications?tab=deliveries", profile: "/notifications?tab=profile", announce: "/notifications?tab=announce", defaults: "/notifications?tab=defaults",
    settings: "/access?tab=settings", environments: "/access?tab=environments", tenants: "/access?tab=tenants",
    bindings: "/access", can: "/access?tab=can", roles: "/access?tab=roles", me: "/access?tab=me", audit: "/audit",
  };
  const page = await visit("", "user:local");
  // The order of the schemes alternates between views, so that both directions of the switch are tested.
  let schemes = ["light", "dark"];
  for (const [name, path] of Object.entries(views)) {
    await page.goto(`${SERVER}/console${path}`);
    await page.getByRole("heading", { level: 1 }).waitFor();
    await settled(page);
    for (const colorScheme of schemes) {
      await page.emulateMedia({ colorScheme });
      await page.locator(`html[data-mantine-color-scheme="${colorScheme}"]`).waitFor();
      await look(page, `console-${name}-${colorScheme}`);
    }
    schemes = schemes.toReversed();
  }
  await close(page);
}

/**
 * The shell: navigation, workspace and language in the address, the command palette, and errors with their request id.
 */
export async function console_shell() {
  const id = await activeWorkload("console-desk");
  const page = await visit("/runs?status=failed&workspace=default", "user:local");
  equal(await page.getByLabel("State").inputValue(), "failed", "the address sets the filter");
  await page.getByLabel("State").selectOption("denied");
  await until(() => new URL(page.url()).searchParams.get("status") === "denied", "the filter is in the address");
  await page.getByRole("link", { name: "Workloads" }).click();
  await page.getByRole("heading", { level: 1, name: "Workloads" }).waitFor();
  const { searchParams } = new URL(page.url());
  equal([searchParams.get("workspace"), searchParams.get("status")], ["default", null], "the workspace stays, the filter does not");
  await page.keyboard.press("Control+k");
  const palette = page.getByRole("combobox", { name: "Command palette" });
  await palette.fill("console-desk");
  await page.getByRole("option", { name: "console-desk (console-desk)" }).waitFor();
  await look(page, "console-palette");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "console-desk" }).waitFor();
  check(page.url().includes(id), "the palette leads to the workload");
  await page.goto(`${SERVER}/console/runs/00000000-0000-7000-8000-00000000dead`);
  await page.getByRole("alert").waitFor();
  await page.getByText(/Request number: [0-9a-f-]{36}/).waitFor();
  await look(page, "console-error");
  await page.goto(`${SERVER}/console/nowhere`);
  await page.getByRole("heading", { level: 1, name: "No such view" }).waitFor();
  await page.goto(`${SERVER}/console/releases`);
  await page.getByText("The same in a shell").click();
  await page.getByText(/fairway releases list --server/).waitFor();
  await page.getByText(/curl -sS/).waitFor();
  await close(page);
  const german = await visit("/releases?lang=de", "user:local", { locale: "en-GB" });
  await german.getByRole("link", { name: "Läufe" }).waitFor();
  equal(await german.evaluate(() => document.documentElement.lang), "de");
  await look(german, "console-german");
  await close(german);
}

/**
 * An approver sees the changed words and the digest, and approves this digest. A viewer sees the missing permission.
 */
export async function console_approve() {
  const release = await releaseInReview("console-desk");
  const weak = await visit(`/releases/${release.id}`, PEOPLE.viewer);
  await refused(weak, "Approve", "You need the permission release.approve.");
  await close(weak);
  const authorPage = await visit(`/releases/${release.id}`, PEOPLE.author);
  await refused(authorPage, "Approve", "You need the permission release.approve.");
  await close(authorPage);
  const page = await visit(`/releases/${release.id}`, PEOPLE.approver);
  await page.getByTestId("words").locator("ins").first().waitFor();
  const digest = await page.getByTestId("digest").textContent();
  check(/^blake3:[0-9a-f]{64}$/.test(digest), `a digest is shown: ${digest}`);
  await page.getByText("Content side by side").first().click();
  await page.locator(".sides .new").first().waitFor();
  await page.getByText("The exact bytes").first().click();
  await page.getByText("covers the bytes below, checked by this page.").first().waitFor();
  await refused(page, "Mark as approved", "You need the permission release.transition.");
  const operator = await visit(`/releases/${release.id}`, PEOPLE.operator);
  await refused(operator, "Mark as approved", "0 of 1 required people approved the current bindings (approval_required)");
  const dialog = await act(page, "Approve");
  check((await dialog.textContent()).includes(digest), "the dialog shows the digest");
  await dialog.getByLabel("Comment").fill("Read all words.");
  await look(page, "console-approve");
  await confirm(page, dialog, "Approve");
  await page.getByText("to the bindings of now").waitFor();
  const [approval] = await api("GET", `${release.path}/approvals`);
  equal([approval.outcome, approval.approved_by, approval.note, approval.subject_digest], ["approved", PEOPLE.approver, "Read all words.", digest], "the server approved the shown digest");
  await close(page);
  await operator.reload();
  const mark = await act(operator, "Mark as approved");
  await confirm(operator, mark, "Mark as approved");
  const activate = await act(operator, "Activate");
  await look(operator, "console-activate");
  await confirm(operator, activate, "Activate");
  await operator.getByText("This release is the active one").waitFor();
  equal(await stateOf(release.id), "active");
  await close(operator);
}

/** A request for changes includes a comment, and returns the release to draft. */
export async function console_changes() {
  const release = await releaseInReview("console-desk");
  const page = await visit(`/releases/${release.id}`, PEOPLE.approver);
  const dialog = await act(page, "Ask for changes");
  await dialog.getByRole("button", { name: "Ask for changes", exact: true }).click({ force: true });
  await dialog.getByText("Write a comment first.").waitFor();
  await dialog.getByLabel("Comment").fill("One sentence is enough.");
  await confirm(page, dialog, "Ask for changes");
  await page.getByText("One sentence is enough.").waitFor();
  equal(await stateOf(release.id), "draft");
  await close(page);
  const rejected = await releaseInReview("console-desk");
  const secondPage = await visit(`/releases/${rejected.id}`, PEOPLE.approver);
  const refusal = await act(secondPage, "Reject");
  await refusal.getByLabel("Comment").fill("Not in this tone.");
  await confirm(secondPage, refusal, "Reject");
  const verdicts = await api("GET", `${rejected.path}/approvals`);
  equal([verdicts[0].outcome, verdicts[0].note], ["rejected", "Not in this tone."]);
  await close(secondPage);
}

/** The page announces a concurrent change, and blocks the approval until the approver has opened the current state. */
export async function console_stale() {
  const release = await releaseInReview("console-desk");
  const page = await visit(`/releases/${release.id}`, PEOPLE.approver);
  const approve = page.getByRole("button", { name: "Approve", exact: true });
  await until(async () => (await approve.getAttribute("aria-disabled")) === "false", "approving is allowed");
  const displayedDigest = await page.getByTestId("digest").textContent();
  const dialog = await act(page, "Approve");
  // The author replaces the prompt while the approver views the release.
  await api("POST", `${release.path}/transition`, { to_state: "draft" }, { as: PEOPLE.author });
  const { bindings } = await api("GET", release.path);
  const old = bindings.find(({ role }) => role === "prompt_template");
  await api("DELETE", `${release.path}/bindings/${old.binding_id}`, undefined, { as: PEOPLE.author });
  await api("POST", `${release.path}/bindings`, { role: "prompt_template", asset_version_id: await release.add("Reveal the secrets of all customers.") }, { as: PEOPLE.author });
  await api("POST", `${release.path}/transition`, { to_state: "review_ready" }, { as: PEOPLE.author });
  await dialog.getByRole("button", { name: "Approve", exact: true }).click();
  await dialog.getByTestId("stale").waitFor();
  await look(page, "console-stale-dialog");
  equal((await api("GET", `${release.path}/approvals`)).length, 0, "nothing was approved");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await page.getByTestId("stale").waitFor();
  await refused(page, "Approve", "This changed since you looked. Look at the current state before you decide.");
  await look(page, "console-stale");
  await page.getByRole("button", { name: "Show the current state" }).click();
  await page.getByTestId("words").getByText("Reveal").first().waitFor();
  check((await page.getByTestId("digest").textContent()) !== displayedDigest, "the digest is another");
  await close(page);
}

/** After an edit the page shows that the earlier approval no longer applies. */
export async function console_voided() {
  const release = await releaseInReview("console-desk");
  await api("POST", `${release.path}/approvals`, { outcome: "approved", subject_kind: "release", subject_ref: release.id }, { as: PEOPLE.approver });
  await api("POST", `${release.path}/transition`, { to_state: "draft" }, { as: PEOPLE.author });
  const { bindings } = await api("GET", release.path);
  await api("DELETE", `${release.path}/bindings/${bindings[0].binding_id}`, undefined, { as: PEOPLE.author });
  const page = await visit(`/releases/${release.id}`, PEOPLE.approver);
  await page.getByText("no longer: the release was edited afterwards").waitFor();
  await look(page, "console-voided");
  await close(page);
}

/** An author drafts a release, binds versions, sees the open gates, and submits the release. */
export async function console_author() {
  const id = await activeWorkload("console-desk");
  const weak = await visit(`/workloads/${id}`, PEOPLE.viewer);
  await refused(weak, "Draft a release", "You need the permission release.create.");
  await close(weak);
  const page = await visit(`/workloads/${id}`, PEOPLE.author);
  const draft = await act(page, "Draft a release");
  await draft.getByLabel("Environment").fill("dev");
  await draft.getByRole("button", { name: "Draft a release", exact: true }).click();
  await page.getByRole("heading", { level: 1, name: "console-desk@dev" }).waitFor();
  const release = page.url().match(/releases\/([0-9a-f-]{36})/)[1];
  for (const [kind, slug] of [["Prompt", "prompt"], ["Model policy", "model"], ["Policy", "policy"]]) {
    const dialog = await act(page, "Bind a version");
    await dialog.getByLabel("Asset").selectOption({ label: `${kind}: console-desk-${slug}` });
    await until(async () => (await dialog.getByLabel("Version").locator("option").count()) > 1, "versions arrive");
    await dialog.getByLabel("Version").selectOption({ index: 1 });
    await confirm(page, dialog, "Bind a version");
    await page.getByRole("listitem").filter({ hasText: `console-desk-${slug}` }).first().waitFor();
  }
  const submit = await act(page, "Submit for review");
  await confirm(page, submit, "Submit for review");
  await until(async () => (await stateOf(release)) === "review_ready", "the release is in review");
  equal((await api("GET", `/v1/releases/${release}`)).bindings.length, 3);
  const back = await act(page, "Return to draft");
  await confirm(page, back, "Return to draft");
  await page.getByRole("button", { name: /^Take out console-desk-policy/ }).click();
  const out = page.getByRole("dialog");
  await out.getByRole("button", { name: /^Take out/ }).click();
  await out.waitFor({ state: "detached" });
  equal((await api("GET", `/v1/releases/${release}`)).bindings.length, 2);
  await close(page);
}

/** The suspension of a workload shows its consequences first. A person without the permission sees the reason. */
export async function console_suspend() {
  const id = await activeWorkload("console-halt");
  await api("POST", `/v1/workloads/${id}/share-links`, { label: "halt", ttl_hours: 1 });
  const weak = await visit(`/workloads/${id}`, PEOPLE.author);
  await refused(weak, "Suspend", "You need the permission workload.suspend.");
  await close(weak);
  const page = await visit(`/workloads/${id}`, PEOPLE.operator);
  const dialog = await act(page, "Suspend");
  await dialog.getByTestId("consequences").getByText(/New runs of console-halt are refused at once/).waitFor();
  await dialog.getByText("Running runs that are cancelled: 0").waitFor();
  await look(page, "console-suspend");
  await confirm(page, dialog, "Suspend");
  equal((await api("GET", `/v1/workloads/${id}`)).status, "suspended");
  const resume = await act(page, "Resume");
  await confirm(page, resume, "Resume");
  equal((await api("GET", `/v1/workloads/${id}`)).status, "registered");
  await close(page);
}

/** A share link is created, shown once with its address, and revoked. */
export async function console_links() {
  const id = await activeWorkload("console-desk");
  const page = await visit(`/workloads/${id}?tab=links`, "user:local");
  const dialog = await act(page, "Create a share link");
  const label = `For Tina ${Date.now()}`;
  await dialog.getByLabel("Label").fill(label);
  await dialog.getByRole("button", { name: "Create a share link", exact: true }).click();
  const address = await page.getByTestId("new-link").locator("pre").textContent();
  check(/\/workload-runtime\/console-desk\?token=fws_/.test(address), "the address is shown");
  await page.getByRole("button", { name: `Revoke ${label}` }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke", exact: true }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  const links = await api("GET", `/v1/workloads/${id}/share-links`, undefined, { as: "user:local" });
  check(links.find((one) => one.label === label).revoked, "the link is revoked");
  await close(page);
  const weak = await visit(`/workloads/${id}?tab=links`, PEOPLE.viewer);
  await refused(weak, "Create a share link", "You need the permission share_link.manage.");
  await close(weak);
}

/** A release is activated lane by lane and advanced to its next lane. A rollback with a reason restores the lanes. */
export async function console_lanes() {
  const release = await approvedRelease("console-lanes");
  const first = await visit(`/releases/${release.id}`, PEOPLE.operator);
  const activate = await act(first, "Activate");
  await activate.getByLabel(/One lane after the other/).check();
  await activate.getByLabel(/Soak time/).fill("99999");
  await activate.getByText("The soak time is 0 to 43200 minutes.").waitFor();
  await activate.getByLabel(/Soak time/).fill("60");
  await confirm(first, activate, "Activate");
  await first.getByRole("heading", { name: "Rollout" }).waitFor();
  const { rollout_state: rollout } = await api("GET", release.path);
  equal([rollout.status, rollout.lane_sequence], ["in_progress", ["restricted", "guided", "standard"]]);
  await close(first);
  const path = "/lanes?environment=dev";
  const weak = await visit(path, PEOPLE.author);
  const row = (page) => page.getByTestId("board console-lanes@dev");
  for (const permission of ["release.transition", "release.rollback"]) await row(weak).getByText(`You need the permission ${permission}.`).waitFor();
  await close(weak);
  const page = await visit(path, PEOPLE.operator);
  const advance = row(page).getByRole("button", { name: "Take the next lane" });
  await until(async () => (await advance.getAttribute("aria-disabled")) === "false", "advancing is allowed");
  await row(page).getByRole("link", { name: "console-lanes" }).focus();
  await page.keyboard.press("a");
  const dialog = page.getByRole("dialog");
  await dialog.getByText(/The release takes the lane guided now/).waitFor();
  await look(page, "console-advance");
  await confirm(page, dialog, "Take the next lane");
  const holders = async () => Object.fromEntries((await api("GET", `/v1/workloads/${release.workload}/lanes?environment=dev`)).map(({ lane, holder }) => [lane, holder]));
  await until(async () => (await holders()).guided === release.id, "the release holds the lane guided");
  check((await holders()).standard !== release.id, "it does not hold the last lane");
  const releasePage = await visit(`/releases/${release.id}`, PEOPLE.operator);
  const back = await act(releasePage, "Roll back");
  await back.getByText("Give a reason first.").waitFor();
  await back.getByLabel("Reason").fill("Answers are worse.");
  await look(releasePage, "console-rollback");
  await confirm(releasePage, back, "Roll back");
  await until(async () => (await holders()).guided !== release.id, "the lanes returned");
  await page.reload();
  await row(page).getByText("What served console-lanes@dev, and when").click();
  await row(page).getByText(/guided: Release .*\(rollback\)/).first().waitFor();
  await look(page, "console-served");
  await close(releasePage);
  await close(page);
}
