// Browser tests of the console: interfaces with their preview, principals, settings, organizations,
// and deliveries of notifications.
import { api, check, equal, look, SERVER, until } from "./harness.mjs";
import { act, confirm, refused } from "./console.mjs";
import { activeWorkload, releaseInReview, people, PEOPLE, settled, visit, WORKSPACE } from "./console-fixtures.mjs";

const close = (page) => page.context().close();
const TENANT = "00000000-0000-7000-8000-000000000001";
const ADMIN = "user:local";

/**
 * An author edits an interface next to a preview, and stores it. The preview shows the fields, sets the theme by
 * CSSOM, and warns of a weak contrast.
 */
export async function console_interface() {
  const id = await activeWorkload("console-face");
  // Resets the interface, because an earlier test run on the same server may have changed it.
  await api("PATCH", `/v1/workloads/${id}`, { interface_config: { presentation_mode: "form", input_fields: [{ name: "message", label: "Message", type: "text", required: true }] } });
  const path = `/workloads/${id}?tab=interface`;
  const weak = await visit(path, PEOPLE.viewer);
  await weak.getByLabel("Accent colour").fill("#ff0000");
  await refused(weak, "Save the interface", "You need the permission workload.edit.");
  await close(weak);
  const page = await visit(path, PEOPLE.author);
  const preview = page.getByTestId("preview");
  await preview.getByLabel("Message").waitFor();
  await refused(page, "Save the interface", "Nothing is changed yet.");
  const styleOf = (name) => preview.evaluate((element, property) => getComputedStyle(element).getPropertyValue(property), name);
  await page.getByLabel("Background colour").fill("#103020");
  await until(async () => (await styleOf("background-color")) === "rgb(16, 48, 32)", "the preview has the background");
  await page.getByLabel("Accent colour").fill("#123524");
  await page.getByTestId("contrast").getByText(/The accent on the background has a contrast of 1\.\d\d; people who see badly need 3/).waitFor();
  await look(page, "console-interface-contrast");
  await page.getByLabel("Accent colour").fill("red; background: url(/x)");
  await page.getByText("This is no value that CSS knows here.").waitFor();
  await page.getByLabel("Accent colour").fill("#f5c76b");
  await page.getByTestId("contrast").getByText("has a contrast of").waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Add a field" }).click();
  const row = page.getByRole("group", { name: /^field_2/ });
  await row.getByLabel("Label").fill("How urgent?");
  await row.getByLabel("Kind").selectOption("select");
  await row.getByLabel("Options").fill("low\nhigh");
  await preview.getByLabel("How urgent?").selectOption("high");
  await preview.getByRole("button", { name: "Run" }).click();
  await preview.getByText("Some fields need your attention").or(preview.getByRole("alert")).first().waitFor();
  await look(page, "console-interface");
  const dialog = await act(page, "Save the interface");
  await confirm(page, dialog, "Save the interface");
  const stored = (await api("GET", `/v1/workloads/${id}`)).interface_config;
  equal([stored.theme, stored.input_fields[1]], [{ accent_color: "#f5c76b", background_color: "#103020" }, { label: "How urgent?", name: "field_2", options: ["low", "high"], type: "select" }]);
  await page.getByLabel("Mode").selectOption("chat");
  await preview.getByRole("button", { name: "Send" }).waitFor();
  // The access mode of a workload requires a separate permission.
  await page.getByLabel("Who may run it").selectOption("public");
  await refused(page, "Save the interface", "You need the permission workload.expose.");
  await close(page);
  const runtime = await visit(path, PEOPLE.operator);
  await runtime.goto(`${SERVER}/workload-runtime/console-face`);
  await runtime.getByLabel("How urgent?").waitFor();
  equal(await runtime.locator(".svc-root").evaluate((element) => getComputedStyle(element).backgroundColor), "rgb(16, 48, 32)", "the runtime page has the theme");
  await close(runtime);
}

/** An administrator creates, changes and deletes the binding of a principal to a lane. An operator may not. */
export async function console_principals() {
  const id = await activeWorkload("console-desk");
  const weak = await visit(`/workloads/${id}?tab=principals`, PEOPLE.operator);
  await refused(weak, "Bind a principal", "You need the permission workspace.manage.");
  await close(weak);
  const page = await visit(`/workloads/${id}?tab=principals`, PEOPLE.admin);
  const principal = `user:guest-${Date.now()}`;
  const list = async () => (await api("GET", `/v1/workloads/${id}/principal-bindings?limit=200`, undefined, { as: ADMIN })).find((one) => one.principal === principal);
  const dialog = await act(page, "Bind a principal");
  await dialog.getByLabel("Person, group or service").fill(principal);
  await dialog.getByLabel("Lane").selectOption("guided");
  await confirm(page, dialog, "Bind a principal");
  equal((await list()).lane, "guided");
  await look(page, "console-principals");
  await page.getByRole("button", { name: `Change ${principal}` }).click();
  await page.getByRole("dialog").getByLabel("Lane").selectOption("standard");
  await confirm(page, page.getByRole("dialog"), "Bind a principal");
  equal((await list()).lane, "standard");
  await page.getByRole("button", { name: `Delete ${principal}` }).click();
  await confirm(page, page.getByRole("dialog"), "Delete");
  equal(await list(), undefined, "the principal is gone");
  await close(page);
}

/**
 * Settings of the organization and of environments, each changed by a permitted role and refused to
 * the next weaker role.
 */
export async function console_settings() {
  await people();
  const weak = await visit("/access?tab=environments&environment=lab", PEOPLE.operator);
  await refused(weak, "Change the environment", "You need the permission workspace.manage.");
  await close(weak);
  const page = await visit("/access?tab=environments&environment=lab", PEOPLE.admin);
  const dialog = await act(page, "Change the environment");
  await dialog.getByLabel("People who must approve a release").fill("11");
  await dialog.getByText("1 to 10 people must approve.").waitFor();
  await dialog.getByLabel("People who must approve a release").fill("2");
  await look(page, "console-environment");
  await confirm(page, dialog, "Change");
  equal((await api("GET", `/v1/workspaces/${WORKSPACE}/environments/lab/settings`, undefined, { as: ADMIN })).min_approvals, 2);
  await page.goto(`${SERVER}/console/access?tab=settings`);
  await page.getByText("You need the permission tenant.manage.", { exact: false }).waitFor();
  await close(page);
  await api("PATCH", `/v1/tenants/${TENANT}/settings`, { advanced_notifications_enabled: false }, { as: ADMIN });
  const administratorPage = await visit("/access?tab=settings", ADMIN);
  const settings = await act(administratorPage, "Change notifications");
  await settings.getByLabel(/^Advanced notifications/).check();
  await confirm(administratorPage, settings, "Change");
  equal((await api("GET", `/v1/tenants/${TENANT}/settings`, undefined, { as: ADMIN })).advanced_notifications_enabled, true);
  await look(administratorPage, "console-settings");
  await close(administratorPage);
}

/** Only platform administrators can list and create organizations. */
export async function console_tenants() {
  await people();
  const weak = await visit("/access?tab=tenants", PEOPLE.admin);
  await refused(weak, "Create an organization", "You need the permission platform.manage.");
  await close(weak);
  const page = await visit("/access?tab=tenants", ADMIN);
  const dialog = await act(page, "Create an organization");
  const slug = `org-${Date.now()}`;
  await dialog.getByLabel("Slug").fill(slug);
  await dialog.getByLabel("Name").fill("Another organization");
  await confirm(page, dialog, "Create an organization");
  equal((await api("GET", "/v1/tenants?limit=200", undefined, { as: ADMIN })).find((one) => one.slug === slug).name, "Another organization");
  await page.getByRole("cell", { name: slug }).waitFor();
  await look(page, "console-tenants");
  await close(page);
}

/** The list of all operations of a person in a workspace, each with the role that permits it. */
export async function console_can_all() {
  await people();
  const page = await visit(`/access?tab=can&actor=${encodeURIComponent(PEOPLE.operator)}`, PEOPLE.admin);
  await page.getByRole("button", { name: `Everything that ${PEOPLE.operator} may do here` }).click();
  await page.getByTestId("can-all").waitFor();
  const row = (operation) => page.getByRole("region", { name: "All operations" }).getByRole("row").filter({ has: page.getByText(operation, { exact: true }) });
  check(/allowed/.test(await row("roll_back_release").textContent()) && /Operator/.test(await row("roll_back_release").textContent()), "an operator rolls back");
  check(/denied/.test(await row("review_release").textContent()), "an operator does not approve");
  const decision = await api("GET", `/v1/session/can?operation=review_release&scope_kind=workspace&scope_ref=${WORKSPACE}&actor=${encodeURIComponent(PEOPLE.operator)}`, undefined, { as: PEOPLE.admin });
  equal(decision.allowed, false);
  await look(page, "console-can-all");
  await close(page);
  const weak = await visit(`/access?tab=can&actor=${encodeURIComponent(PEOPLE.admin)}`, PEOPLE.operator);
  await weak.getByText("You need the permission workspace.manage.", { exact: false }).waitFor();
  await close(weak);
}

/**
 * A destination is tested; a delivery to it fails and is retried. A role that may only read deliveries cannot retry.
 */
export async function console_deliveries() {
  await people();
  const page = await visit("/notifications?tab=destinations", PEOPLE.admin);
  const base = `/v1/notifications/workspaces/${WORKSPACE}`;
  const name = `Nowhere ${Date.now()}`;
  const destination = await api("POST", `${base}/destinations`, { display_name: name, destination_type: "webhook", redacted_metadata: { url: "https://127.0.0.1:9/hook" } }, { as: ADMIN });
  await page.reload();
  await page.getByRole("button", { name: `Test ${name}` }).click();
  await confirm(page, page.getByRole("dialog"), "Test");
  await page.getByTestId("tested").getByText(`${name} did not accept the test message: address_refused`).waitFor();
  await look(page, "console-destination-test");
  await api("PUT", `${base}/preferences`, [{ category: "approvals", channel: "webhook", enabled: true }], { as: ADMIN });
  const path = `/v1/notifications/deliveries?workspace_id=${WORKSPACE}&destination_id=${destination.destination_id}`;
  const list = () => api("GET", path, undefined, { as: ADMIN });
  await releaseInReview("console-desk");
  await until(async () => (await list())[0]?.status === "failed", "a delivery fails", 40_000);
  await api("PUT", `${base}/preferences`, [{ category: "approvals", channel: "webhook", enabled: false }], { as: ADMIN });
  const address = `/notifications?tab=deliveries&destination=${destination.destination_id}&status=failed`;
  const weak = await visit(address, PEOPLE.operator);
  await weak.getByRole("button", { name: /^Choose Webhook/ }).first().click();
  await refused(weak, "Attempt once more", "You need the permission notification.destination.manage.");
  await close(weak);
  await page.goto(`${SERVER}/console${address}`);
  await page.getByText("address_refused").first().waitFor();
  await page.getByRole("button", { name: /^Choose Webhook/ }).first().click();
  const before = (await list())[0].attempt_count;
  const dialog = await act(page, "Attempt once more");
  await look(page, "console-deliveries");
  await confirm(page, dialog, "Attempt once more");
  // The further attempt fails too, because the server still refuses the address.
  await until(async () => {
    const [first] = await list();
    return first.attempt_count !== before || first.status !== "failed";
  }, "the delivery is attempted once more");
  await api("DELETE", `${base}/destinations/${destination.destination_id}`, undefined, { as: ADMIN });
  await close(page);
}

/** An administrator sets the default profile of a role. An administrator of a workspace may not read it. */
export async function console_defaults() {
  await people();
  const weak = await visit("/notifications?tab=defaults", PEOPLE.admin);
  await weak.getByText("You need the permission notification.destination.manage.", { exact: false }).waitFor();
  await close(weak);
  const page = await visit("/notifications?tab=defaults", ADMIN);
  const dialog = await act(page, "Set a default");
  await dialog.getByLabel("Role").selectOption("auditor");
  await dialog.getByLabel("Category").selectOption("reports");
  await dialog.getByLabel("Channel").selectOption("paging");
  await confirm(page, dialog, "Change");
  const stored = await api("GET", "/v1/notifications/default-profiles", undefined, { as: ADMIN });
  check(stored.some((one) => one.profile_ref === "auditor" && one.category === "reports" && one.channel === "paging" && one.enabled), "the default is stored");
  await look(page, "console-defaults");
  await close(page);
}

/**
 * Digests and announcements require advanced notifications. An administrator announces; other roles
 * see why they may not.
 */
export async function console_announce() {
  await people();
  const settings = (advanced_notifications_enabled) => api("PATCH", `/v1/tenants/${TENANT}/settings`, { advanced_notifications_enabled }, { as: ADMIN });
  await settings(false);
  const page = await visit("/notifications?tab=profile", PEOPLE.author);
  await page.getByText("The organization has the advanced notifications turned off.", { exact: false }).waitFor();
  await look(page, "console-profile-off");
  await settings(true);
  await page.reload();
  const dialog = await act(page, "Change digests");
  await dialog.getByLabel("Time zone").fill("Europe/Berlin");
  await dialog.getByLabel("Reports").selectOption("daily");
  await look(page, "console-profile");
  await confirm(page, dialog, "Change");
  const profile = await api("GET", "/v1/notifications/profile", undefined, { as: PEOPLE.author });
  equal([profile.time_zone, profile.digest.reports], ["Europe/Berlin", "daily"]);
  await page.goto(`${SERVER}/console/notifications?tab=announce`);
  await refused(page, "Announce", "You need the permission notification.destination.manage.");
  await close(page);
  const administratorPage = await visit("/notifications?tab=announce", ADMIN);
  await refused(administratorPage, "Announce", "Write a title and a message first.");
  const title = `Maintenance ${Date.now()}`;
  await administratorPage.getByLabel("Title").fill(title);
  await administratorPage.getByLabel("Message").fill("The service stops at noon.");
  await administratorPage.getByLabel("Author", { exact: true }).check();
  const announce = await act(administratorPage, "Announce");
  await announce.getByText("Roles: Author.", { exact: false }).waitFor();
  await look(administratorPage, "console-announce");
  await confirm(administratorPage, announce, "Announce");
  await administratorPage.getByTestId("announced").waitFor();
  await settled(administratorPage);
  const inbox = () => api("GET", "/v1/notifications/inbox?limit=200", undefined, { as: PEOPLE.author });
  await until(async () => (await inbox()).some((one) => one.title === title), "the author is told");
  equal((await api("GET", "/v1/notifications/inbox?limit=200", undefined, { as: PEOPLE.viewer })).some((one) => one.title === title), false, "others are not");
  await close(administratorPage);
}
