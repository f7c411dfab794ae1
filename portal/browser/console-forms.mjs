// Browser tests of the console: contents of assets as forms, erasures of a person's texts, and the command palette.
import { api, check, equal, look, script, SERVER, until } from "./harness.mjs";
import { act, confirm, refused } from "./console.mjs";
import { activeWorkload, people, PEOPLE, settled, visit, WORKSPACE } from "./console-fixtures.mjs";

const close = (page) => page.context().close();
const versionsOf = (id) => api("GET", `/v1/assets/${id}/versions?workspace_id=${WORKSPACE}&limit=200`);
const assetOf = (kind, slug) => api("POST", "/v1/assets", { slug: `${slug}-${Date.now()}`, asset_kind: kind, owner_ref: "team:browser", workspace_id: WORKSPACE });
const codeOf = (page) => page.getByTestId("editor").getByRole("textbox", { name: "Content" });
const view = (page, name) => page.getByRole("group", { name: "View of the content" }).getByRole("button", { name, exact: true });
const focused = (page) => page.evaluate(() => document.activeElement?.id || document.activeElement?.textContent);

async function write(page, text) {
  await codeOf(page).click();
  await page.keyboard.press("Control+a");
  await page.keyboard.press("Backspace");
  await page.keyboard.insertText(text);
}

/**
 * An author fills in the form of a prompt, and corrects the fields with errors of the server. Code
 * and form show one content.
 */
export async function console_form() {
  await people();
  const asset = await assetOf("prompt_template", "form");
  const path = `/assets/${asset.asset_id}?tab=edit`;
  const page = await visit(path, PEOPLE.author);
  await codeOf(page).waitFor();
  await view(page, "Form").click();
  const form = page.locator(".asset-form");
  await form.waitFor();
  equal(new URL(page.url()).searchParams.get("view"), "form", "the view is in the address");
  await form.getByText("Recorded only: the server stores it and does not act on it.").first().waitFor();
  await form.getByLabel("system_prompt").fill("Greet $arg:who.");
  await form.getByRole("button", { name: "Add variables" }).click();
  await form.getByRole("button", { name: "Add to variables" }).click();
  await until(async () => (await focused(page)) === "content.variables.0.name", "the new item has the focus");
  await page.keyboard.type("1who");
  await form.getByRole("group", { name: "variables 1" }).getByLabel("type").selectOption("string");
  const first = await act(page, "Create a version");
  await first.getByRole("button", { name: "Create a version", exact: true }).click();
  await first.waitFor({ state: "detached" });
  const name = form.getByRole("group", { name: "variables 1" }).getByLabel("name");
  await form.locator("[id='content.variables.0.name__error']").getByText("(").waitFor();
  equal(await name.getAttribute("aria-invalid"), "true", "the refused field says so");
  check((await name.getAttribute("aria-describedby")).includes("content.variables.0.name__error"), "the message belongs to the field");
  await page.getByTestId("findings").getByRole("button", { name: "Field variables[0].name" }).click();
  equal(await focused(page), "content.variables.0.name", "a message leads to its field");
  await look(page, "console-form-refused");
  await name.fill("who");
  // Members without a field stay in the content, and the code view shows the edits of the form.
  await view(page, "Code").click();
  await codeOf(page).getByText("Greet $arg:who.").waitFor();
  await write(page, JSON.stringify({ bogus: { kept: [1] }, labels: "none", system_prompt: "Greet $arg:who.", variables: [{ name: "who", type: "string" }] }));
  await view(page, "Form").click();
  await form.getByText("The schema has no field bogus. It stays in the content; edit it in the code.").waitFor();
  equal(await form.getByLabel("labels").inputValue(), '"none"', "a value of another type is JSON");
  await form.getByLabel("labels").fill('{"team": ');
  await refused(page, "Create a version", "A field has text that is not valid JSON yet. Finish it first.");
  equal(await view(page, "Code").getAttribute("aria-disabled"), "true", "an unfinished text is not left behind");
  await form.getByLabel("labels").fill('{"team": "support"}');
  await form.getByLabel("system_prompt").fill("Greet $arg:who kindly.");
  await look(page, "console-form-kept");
  const second = await act(page, "Create a version");
  await second.getByRole("button", { name: "Create a version", exact: true }).click();
  await second.waitFor({ state: "detached" });
  await form.locator("[id='content.bogus__error']").getByText("(unknown_field)").waitFor();
  await view(page, "Code").click();
  check((await codeOf(page).innerText()).replaceAll(/\s/g, "").includes('"bogus":{"kept":[1]}'), "the form kept what it does not show");
  await write(page, '{"system_prompt": "x", "labels": {"__proto__": "y"}}');
  await page.getByText("The form cannot keep a member named __proto__", { exact: false }).waitFor();
  await write(page, "{");
  equal(await view(page, "Form").getAttribute("aria-disabled"), "true", "the form needs an object");
  await write(page, JSON.stringify({ labels: { team: "support" }, system_prompt: "Greet $arg:who kindly.", variables: [{ name: "who", type: "string" }] }));
  await view(page, "Form").click();
  await form.getByRole("button", { name: "Add to labels" }).click();
  await page.keyboard.press("Control+a");
  await page.keyboard.type("site");
  await page.keyboard.press("Tab");
  await form.getByLabel("site", { exact: true }).fill("north");
  await form.getByLabel("output_schema").fill('{"type": "object"}');
  await page.getByLabel("who", { exact: true }).fill("Ada");
  await page.getByRole("button", { name: "Preview", exact: true }).click();
  await page.getByTestId("rendered").getByText("Greet Ada kindly.").waitFor();
  const third = await act(page, "Create a version");
  await confirm(page, third, "Create a version");
  const [version] = await versionsOf(asset.asset_id);
  equal(version.content, { labels: { site: "north", team: "support" }, output_schema: { type: "object" }, system_prompt: "Greet $arg:who kindly.", variables: [{ name: "who", type: "string" }] });
  await form.getByLabel("system_prompt").fill("Other.");
  await page.getByRole("button", { name: "Start over" }).click();
  equal(await form.getByLabel("system_prompt").inputValue(), "Greet $arg:who kindly.", "the form starts over");
  await close(page);
  const weak = await visit(`${path}&view=form`, PEOPLE.viewer);
  await weak.locator(".asset-form").waitFor();
  await refused(weak, "Create a version", "You need the permission asset.edit.");
  await close(weak);
}

const REFERENCE = { slug: "unknown-yet" };
/** Contents by asset kind, which together contain unions, references, maps and choices. */
const CONTENTS = {
  agent: { name: "Desk", instructions: "Help.", model_policy_ref: REFERENCE, tools: [REFERENCE] },
  hook_definition: { event: "pre_tool", handler: { type: "http", ref: "https://hooks.example/a" }, may: ["allow", "deny"] },
  connector_definition: { rate_limit: 5 },
  policy_bundle: { rules: [{ id: "all", condition: "always", outcome: "allow", reason_code: "fine" }] },
  model_policy: { provider_route: { route_id: "stub", provider: "stub", model: "stub", account_slot: "stub" }, temperature: 0.5 },
};
const KINDS = [
  "prompt_template", "knowledge_base", "model_policy", "model_config", "policy_bundle", "tool_definition", "hook_definition", "mcp_server", "skill", "agent", "memory", "evaluation_suite",
  "guardrail_config", "connector_definition", "sovereignty_profile", "workload_profile", "sandbox_profile", "workload_harness",
];

/**
 * Opening a form does not change its content, in light and dark, wide and narrow, and in both languages. The long
 * form of this test opens the forms of all asset kinds.
 */
export async function console_form_kinds() {
  await activeWorkload("console-desk");
  const page = await visit("/assets", PEOPLE.author);
  const kinds = process.env.PORTAL_LONG ? KINDS : KINDS.filter((kind) => CONTENTS[kind]);
  for (const [index, kind] of kinds.entries()) {
    const asset = await assetOf(kind, `kind-${kind.replaceAll("_", "-")}`);
    await page.emulateMedia({ colorScheme: index % 2 === 1 ? "dark" : "light" });
    await page.setViewportSize(index % 3 === 2 ? { width: 320, height: 700 } : { width: 1280, height: 900 });
    await page.goto(`${SERVER}/console/assets/${asset.asset_id}?tab=edit`);
    await codeOf(page).waitFor();
    if (CONTENTS[kind]) await write(page, JSON.stringify(CONTENTS[kind]));
    const before = JSON.parse(await codeOf(page).innerText());
    await view(page, "Form").click();
    await page.locator(".asset-form").waitFor();
    await settled(page);
    if (CONTENTS[kind]) await look(page, `console-form-${kind}`);
    check(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `the form of ${kind} fits the page`);
    await view(page, "Code").click();
    await codeOf(page).waitFor();
    equal(JSON.parse(await codeOf(page).innerText()), before, `opening the form of ${kind} changes nothing`);
  }
  await close(page);
  const agent = await assetOf("agent", "chooser");
  const germanPage = await visit(`/assets/${agent.asset_id}?tab=edit&view=form&lang=de`, PEOPLE.author);
  const form = germanPage.locator(".asset-form");
  await form.getByRole("button", { name: "model_policy_ref hinzufügen" }).click();
  const slug = form.getByRole("group", { name: "model_policy_ref" }).getByLabel("slug");
  const offered = await slug.getAttribute("list");
  await until(async () => (await germanPage.locator(`[id='${offered}'] option[value='console-desk-model']`).count()) === 1, "assets of the kind are offered");
  equal(await germanPage.locator(`[id='${offered}'] option[value='console-desk-prompt']`).count(), 0, "assets of other kinds are not offered");
  await slug.fill("console-desk-model");
  await look(germanPage, "console-form-german");
  await germanPage.goto(`${SERVER}/console/assets/${(await assetOf("connector_definition", "union")).asset_id}?tab=edit&view=form`);
  const limit = germanPage.locator(".asset-form").getByRole("group", { name: "rate_limit" });
  await limit.getByLabel("Kind of value").selectOption("integer");
  await limit.getByLabel("integer").fill("7");
  await view(germanPage, "Code").click();
  equal(JSON.parse(await codeOf(germanPage).innerText()).rate_limit, 7, "an alternative of a union is chosen");
  await close(germanPage);
}

/** The form can be filled in by keyboard alone. */
export async function console_form_keyboard() {
  await people();
  const asset = await assetOf("policy_bundle", "keys");
  const page = await visit(`/assets/${asset.asset_id}?tab=edit&view=form`, PEOPLE.author);
  const form = page.locator(".asset-form");
  await form.getByRole("button", { name: "Add to rules" }).focus();
  await page.keyboard.press("Enter");
  await until(async () => (await focused(page)) === "content.rules.0.id", "the first field has the focus");
  for (const typed of ["all", "Every request.", "always", "allow", "fine"]) {
    await page.keyboard.type(typed);
    await page.keyboard.press("Tab");
  }
  const dialog = await act(page, "Create a version");
  await confirm(page, dialog, "Create a version");
  const [version] = await versionsOf(asset.asset_id);
  equal(version.content, { rules: [{ condition: "always", description: "Every request.", id: "all", outcome: "allow", reason_code: "fine" }] });
  await close(page);
}

const FIRST = "user:local";
const SECOND = "user:console-second";
const TENANT = "00000000-0000-7000-8000-000000000001";

/** One person requests an erasure, and another person approves or refuses it. A weaker role may do neither. */
export async function console_erasures() {
  await activeWorkload("console-desk");
  const bindings = await api("GET", `/v1/role-bindings?limit=200`, undefined, { as: FIRST });
  if (!bindings.some((one) => one.principal === SECOND)) await api("POST", "/v1/role-bindings", { principal: SECOND, role: "tenant_admin", scope_kind: "tenant", scope_ref: TENANT }, { as: FIRST });
  const name = `user:gone-${Date.now()}`;
  script("console-gone", "Good bye.");
  const run = await api("POST", "/v1/workloads/by-slug/console-desk/execute", { environment: "dev", inputs: { message: "[[console-gone]] secret" } }, { as: name });
  const path = "/access?tab=erasures";
  const weak = await visit(path, PEOPLE.admin);
  await refused(weak, "Request an erasure", "You need the permission tenant.manage.");
  await weak.getByRole("alert").first().waitFor();
  await close(weak);
  const page = await visit("/audit", FIRST);
  await page.getByRole("link", { name: "Requests and approvals of erasures: Access, Erasures." }).click();
  const dialog = await act(page, "Request an erasure");
  await dialog.getByLabel("Whose texts").fill("group:all");
  await dialog.getByRole("button", { name: "Request an erasure", exact: true }).click({ force: true });
  await dialog.getByText("Write user:, service: or share_link:, then a name.").waitFor();
  await dialog.getByLabel("Whose texts").fill(name);
  await look(page, "console-erasure-request");
  await confirm(page, dialog, "Request an erasure");
  await page.getByRole("heading", { name: `Erasure: ${name}` }).waitFor();
  const id = new URL(page.url()).searchParams.get("erasure");
  const read = () => api("GET", `/v1/erasures/${id}`, undefined, { as: FIRST });
  equal([(await read()).status, (await read()).subject, (await read()).requested_by], ["requested", name, FIRST]);
  await refused(page, "Approve the erasure", "You requested it, so another person must approve it.");
  await page.getByText("The same in a shell").first().click();
  await page.getByText(new RegExp(`fairway erasures approve ${id}`)).waitFor();
  await page.getByText(/fairway erasures list --server/).waitFor({ state: "attached" });
  await look(page, "console-erasures");
  const refusedBy = await visit(`${path}&erasure=${id}`, PEOPLE.admin);
  await refusedBy.getByRole("alert").first().waitFor();
  await close(refusedBy);
  const secondPage = await visit(`${path}&erasure=${id}`, SECOND, { colorScheme: "dark" });
  const approve = await act(secondPage, "Approve the erasure");
  await approve.getByText(`All texts of ${name} from before now are deleted and cannot be restored.`, { exact: false }).waitFor();
  await look(secondPage, "console-erasure-approve");
  await confirm(secondPage, approve, "Approve the erasure");
  equal([(await read()).decided_by, (await read()).status !== "requested"], [SECOND, true]);
  await refused(secondPage, "Approve the erasure", "It is decided already.");
  await until(async () => (await read()).erased_runs === 1, "the run is erased");
  await secondPage.reload();
  await secondPage.locator("dd").getByText("runs 1, turns 0, documents 0").waitFor();
  equal((await api("GET", `/v1/executions/${run.execution_id}`, undefined, { as: FIRST })).result ?? null, null, "the result is gone");
  await look(secondPage, "console-erasure-progress");
  // The second erasure is refused, and the third is withdrawn by its requester.
  const requestErasure = async () => (await api("POST", "/v1/erasures", { subject: `user:stays-${Date.now()}` }, { as: FIRST })).erasure_id;
  const [second, third] = [await requestErasure(), await requestErasure()];
  await secondPage.goto(`${SERVER}/console${path}&erasure=${second}`);
  await confirm(secondPage, await act(secondPage, "Refuse the erasure"), "Refuse the erasure");
  await page.goto(`${SERVER}/console${path}&erasure=${third}`);
  await confirm(page, await act(page, "Withdraw the request"), "Withdraw the request");
  const ends = await Promise.all([second, third].map((one) => api("GET", `/v1/erasures/${one}`, undefined, { as: FIRST })));
  equal(ends.map((one) => [one.status, one.decided_by]), [["refused", SECOND], ["refused", FIRST]]);
  await page.getByLabel("State").selectOption("refused");
  await until(() => new URL(page.url()).searchParams.get("status") === "refused", "the filter is in the address");
  await page.goto(`${SERVER}/console${path}&status=completed&lang=de`);
  await page.getByText(/^Keine Löschung/).or(page.getByRole("region", { name: "Löschungen" })).first().waitFor();
  await look(page, "console-erasures-german");
  await close(secondPage);
  await close(page);
}

/** The palette finds an asset by a part of its slug among any number of assets, and opens the asset. */
export async function console_palette() {
  await people();
  const asset = await assetOf("skill", "needle");
  const page = await visit("", PEOPLE.author);
  await page.keyboard.press("Control+k");
  const palette = page.getByRole("combobox", { name: "Command palette" });
  await palette.fill(`${asset.slug.slice(3)}`);
  await page.getByRole("option", { name: `${asset.slug} (Skill)` }).waitFor();
  await look(page, "console-palette-asset");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: asset.slug }).waitFor();
  check(page.url().includes(asset.asset_id), "the palette leads to the asset");
  await close(page);
  const weak = await visit("", PEOPLE.runner);
  await weak.keyboard.press("Control+k");
  await weak.getByRole("combobox", { name: "Command palette" }).fill(asset.slug);
  await weak.getByRole("dialog").getByText("Nothing fits.").waitFor();
  equal(await weak.getByRole("listbox").getByRole("option").allTextContents(), [], "a person who may not view assets is shown none");
  await close(weak);
}
