// Browser tests of the console: assets and flows, their versions, the editor with the server's messages, documents,
// and the impact of a change.
import { api, check, equal, look, SERVER, until } from "./harness.mjs";
import { act, confirm, refused } from "./console.mjs";
import { activeWorkload, people, PEOPLE, settled, visit, WORKSPACE } from "./console-fixtures.mjs";

const close = (page) => page.context().close();
const assetsOf = (kind) => api("GET", `/v1/assets?workspace_id=${WORKSPACE}&asset_kind=${kind}&limit=200`);
const versionsOf = (id) => api("GET", `/v1/assets/${id}/versions?workspace_id=${WORKSPACE}&limit=200`);

/** Replaces the text of the code editor by keyboard input. */
async function write(page, text) {
  const box = page.getByTestId("editor").getByRole("textbox", { name: "Content" });
  await box.click();
  await page.keyboard.press("Control+a");
  await page.keyboard.press("Backspace");
  await page.keyboard.insertText(text);
}

/** An author finds an asset by kind and creates one. The editor shows the server's errors at line and column. */
export async function console_assets() {
  await activeWorkload("console-desk");
  const weak = await visit("/assets", PEOPLE.viewer);
  await refused(weak, "Create an asset", "You need the permission asset.create.");
  await close(weak);
  // Creates new assets, because the page contains only the visible rows of a list, which starts with the newest.
  const createAsset = (kind) => api("POST", "/v1/assets", { slug: `shelf-${kind.replaceAll("_", "-")}-${Date.now()}`, asset_kind: kind, owner_ref: "team:browser", workspace_id: WORKSPACE });
  const [prompt, policy] = [await createAsset("prompt_template"), await createAsset("policy_bundle")];
  const page = await visit("/assets", PEOPLE.author);
  await page.getByRole("link", { name: policy.slug }).waitFor();
  await page.getByLabel("Kind").selectOption({ label: "Prompt" });
  await until(() => new URL(page.url()).searchParams.get("asset_kind") === "prompt_template", "the filter is in the address");
  await page.getByRole("link", { name: policy.slug }).waitFor({ state: "detached" });
  await page.getByRole("link", { name: prompt.slug }).waitFor();
  await look(page, "console-assets-filtered");
  const slug = `note-${Date.now()}`;
  const dialog = await act(page, "Create an asset");
  await dialog.getByText("A slug has lower-case letters").waitFor();
  await dialog.getByLabel("Slug").fill(slug);
  await dialog.getByRole("button", { name: "Create an asset", exact: true }).click();
  await page.getByRole("heading", { level: 1, name: slug }).waitFor();
  await page.getByTestId("editor").getByRole("textbox").waitFor();
  await write(page, '{\n  "system_prompt": 3,\n  "bogus": true,\n');
  await page.getByTestId("findings").getByText("The content must be a JSON object. (json_syntax)").waitFor();
  await refused(page, "Create a version", "The content must be a JSON object.");
  await write(page, '{\n  "system_prompt": 3,\n  "bogus": true\n}');
  const first = await act(page, "Create a version");
  await first.getByRole("button", { name: "Create a version", exact: true }).click();
  await first.waitFor({ state: "detached" });
  const findings = page.getByTestId("findings");
  await findings.getByText("bogus: unknown field; the fields are").waitFor();
  await findings.getByRole("button", { name: "Line 2, column 20" }).waitFor();
  await refused(page, "Create a version", "Correct the messages first: 2.");
  check((await page.locator(".cm-lint-marker-error").count()) === 2, "the editor marks both lines");
  await look(page, "console-asset-findings");
  await findings.getByRole("button", { name: "Line 3, column 3" }).click();
  await page.keyboard.press("Shift+End");
  await page.keyboard.insertText('"description": "Says hello."');
  await findings.getByText("The text is JSON.").waitFor();
  await write(page, '{\n  "system_prompt": "Say hello.",\n  "description": "Says hello."\n}');
  const second = await act(page, "Create a version");
  await second.getByLabel("Why").fill("The first one.");
  await look(page, "console-new-version");
  await confirm(page, second, "Create a version");
  const { asset_id: id } = (await assetsOf("prompt_template")).find((one) => one.slug === slug);
  const [version] = await versionsOf(id);
  equal([version.content, version.change_note, version.created_by], [{ description: "Says hello.", system_prompt: "Say hello." }, "The first one.", PEOPLE.author]);
  await refused(page, "Create a version", "Nothing is changed yet.");
  await page.getByText("The same in a shell").first().click();
  await page.getByText(/fairway prompt render content\.json/).waitFor();
  await close(page);
  const viewer = await visit(`/assets/${id}?tab=edit`, PEOPLE.viewer);
  await refused(viewer, "Create a version", "You need the permission asset.edit.");
  await close(viewer);
}

/** Presses the button of a dry run as soon as the server permits the operation. */
async function press(page, name) {
  const button = page.getByRole("button", { name, exact: true });
  await until(async () => (await button.getAttribute("aria-disabled")) === "false", `${name} is allowed`);
  await button.click();
}

async function storedAsset(kind, name, content) {
  const asset = await api("POST", "/v1/assets", { slug: `${name}-${Date.now()}`, asset_kind: kind, owner_ref: "team:browser", workspace_id: WORKSPACE });
  await api("POST", `/v1/assets/${asset.asset_id}/versions?workspace_id=${WORKSPACE}`, { content });
  return asset;
}

/** An unsaved prompt is rendered with its inclusions. A viewer may do this too, because the server stores nothing. */
export async function console_preview() {
  await people();
  const tone = await storedAsset("prompt_template", "tone", { system_prompt: "Be kind to $arg:who.", variables: [{ name: "who" }] });
  const asset = await storedAsset("prompt_template", "counting", { system_prompt: "Count." });
  const page = await visit(`/assets/${asset.asset_id}?tab=edit`, PEOPLE.author);
  await page.getByTestId("editor").getByRole("textbox").waitFor();
  const text = (slug) => JSON.stringify({ system_prompt: `@asset-ref:${slug} Count to $arg:count, {{friend}}.`, variables: [{ name: "count", type: "number" }] }, null, 2);
  await write(page, text(tone.slug));
  await page.getByLabel("count", { exact: true }).fill("3");
  await page.getByLabel("friend", { exact: true }).fill("Bob");
  await page.getByLabel("Further arguments in JSON").fill('{"who": "Ada"');
  await refused(page, "Preview", "The further arguments must be a JSON object.");
  await page.getByLabel("Further arguments in JSON").fill('{"who": "Ada"}');
  await press(page, "Preview");
  const rendered = page.getByTestId("rendered");
  await rendered.getByText("Be kind to Ada. Count to 3, Bob.").waitFor();
  await look(page, "console-preview");
  await page.getByText("The same in a shell").first().click();
  await page.getByText(/fairway prompt render content\.json --arg who=Ada --arg count:=3 --arg friend=Bob/).waitFor();
  await page.getByText(/prompt-preview\?workspace_id=/).first().waitFor();
  await page.getByLabel("count", { exact: true }).fill("");
  await rendered.getByText("The text or the values have changed since.").waitFor();
  await press(page, "Preview");
  await page.locator("[data-code=prompt_argument_missing]").waitFor();
  await page.getByText(/The text needs it at line 2, column \d+\./).waitFor();
  await write(page, text("gone-with-the-wind"));
  await press(page, "Preview");
  const findings = page.getByTestId("findings");
  await findings.getByText("a referenced asset is unknown (prompt_unknown_asset)").waitFor();
  await findings.getByRole("button", { name: "Line 2, column 21" }).waitFor();
  await refused(page, "Create a version", "Correct the messages first: 1.");
  await look(page, "console-preview-refused");
  equal((await versionsOf(asset.asset_id)).length, 1, "nothing is stored");
  await close(page);
  const viewer = await visit(`/assets/${asset.asset_id}?tab=edit`, PEOPLE.viewer);
  await refused(viewer, "Create a version", "You need the permission asset.edit.");
  await press(viewer, "Preview");
  await viewer.getByTestId("rendered").getByText("Count.").waitFor();
  await close(viewer);
}

/** An unsaved policy decides for an input, and the page shows for each rule which conditions held. */
export async function console_policy_trial() {
  await people();
  const rule = (id, condition, outcome) => ({ id, condition, outcome, reason_code: id });
  const tests = [{ name: "small", input: { environment: "dev", inputs: { amount: 7 } }, expect: { outcome: "allow" } }];
  const content = { rules: [rule("small", "inputs.amount < 10", "allow")], tests };
  const asset = await storedAsset("policy_bundle", "amounts", content);
  const page = await visit(`/assets/${asset.asset_id}?tab=edit`, PEOPLE.author);
  await page.getByTestId("editor").getByRole("textbox").waitFor();
  await write(page, JSON.stringify({ rules: [...content.rules, rule("night", 'environment == "dev" && inputs.hour > 22', "deny")] }, null, 2));
  const input = page.getByLabel("Input in JSON");
  check((await input.inputValue()).includes('"amount": 7'), "the first test is the first input");
  await press(page, "Try it");
  const decision = page.getByTestId("decided");
  await decision.locator("dl").getByText("denied").waitFor();
  await decision.getByText("policy_evaluation_error").waitFor();
  await decision.getByText("inputs.hour > 22: cannot be evaluated, the input has no hour").waitFor();
  await look(page, "console-policy-trial");
  await input.fill('{"environment": "dev", "inputs": {"amount": 7, "hour": 9}}');
  await press(page, "Try it");
  await decision.locator("dl").getByText("allowed").waitFor();
  await decision.getByText("inputs.hour > 22: does not hold").waitFor();
  equal(await decision.locator("tbody tr").count(), 2, "each rule has a row");
  await input.fill('{"environment": "dev", "hour": 9}');
  await press(page, "Try it");
  await page.getByText(/\(invalid_policy_input\)/).waitFor();
  await input.fill("[");
  await refused(page, "Try it", "The input must be a JSON object.");
  await page.getByText("The same in a shell").first().click();
  await page.getByText(/fairway policy try content\.json --input input\.json/).waitFor();
  equal((await versionsOf(asset.asset_id)).length, 1, "nothing is stored");
  await close(page);
}

/** The page compares two versions by words and by fields. The address contains both versions. */
export async function console_versions() {
  await activeWorkload("console-desk");
  const prompt = (await assetsOf("prompt_template")).find((one) => one.slug === "console-desk-prompt");
  for (const text of ["Answer every question in one short sentence, please.", "Answer each question in two short sentences, please."]) {
    await api("POST", `/v1/assets/${prompt.asset_id}/versions?workspace_id=${WORKSPACE}`, { content: { system_prompt: `${text} $arg:message`, variables: [{ name: "message" }] } });
  }
  const page = await visit(`/assets/${prompt.asset_id}?tab=diff`, PEOPLE.viewer);
  await page.getByTestId("words").locator("del", { hasText: "one" }).first().waitFor();
  await page.getByTestId("readable").getByText("system_prompt").waitFor();
  await page.getByLabel("Old version").selectOption("v1");
  await until(() => new URL(page.url()).searchParams.get("from") === "v1", "the version is in the address");
  await page.getByTestId("words").locator("ins").first().waitFor();
  await settled(page);
  await look(page, "console-versions-diff");
  await page.getByText("The same in a shell").first().click();
  await page.getByText(/fairway assets diff console-desk-prompt v1 v\d+/).waitFor();
  await page.goto(`${SERVER}/console/assets/${prompt.asset_id}?version=v1`);
  await page.getByRole("heading", { name: "Version v1" }).waitFor();
  await look(page, "console-versions");
  const ruleAsset = await api("POST", "/v1/assets", { slug: `rules-${Date.now()}`, asset_kind: "policy_bundle", owner_ref: "team:browser", workspace_id: WORKSPACE });
  const rule = (id, outcome) => ({ id, condition: "always", outcome, reason_code: "fine" });
  for (const content of [{ rules: [rule("kept", "allow"), rule("night", "deny")] }, { rules: [rule("kept", "allow"), rule("night", "allow"), rule("fresh", "deny")] }]) {
    await api("POST", `/v1/assets/${ruleAsset.asset_id}/versions?workspace_id=${WORKSPACE}`, { content });
  }
  await page.goto(`${SERVER}/console/assets/${ruleAsset.asset_id}?tab=diff`);
  const changed = page.getByRole("region", { name: "Rules that change" }).locator("tbody tr");
  await changed.first().waitFor();
  equal(await changed.locator("td:first-child").allTextContents(), ["night", "fresh"], "only the rules that change are listed");
  await look(page, "console-rules-diff");
  await close(page);
}

const FLOW = (step) => `entry_step: check
steps:
  - id: check
    type: task
    action: evaluate_policy
    inputs: {}
    on_success: ${step}
  - id: ${step}
    type: return
    output:
      answer: "fine"
`;

/** The server checks a flow while it is edited. The changed steps of its next version are shown as a graph. */
export async function console_flow() {
  await people();
  const slug = `flow-${Date.now()}`;
  const flow = await api("POST", "/v1/flows", { slug, owner_ref: "team:browser", content_yaml: FLOW("answer"), workspace_id: WORKSPACE });
  const page = await visit("/assets?tab=flows", PEOPLE.author);
  await page.getByRole("link", { name: slug }).click();
  await page.getByRole("button", { name: /check/ }).waitFor();
  await look(page, "console-flow-version");
  await page.getByRole("tab", { name: "Edit" }).click();
  const findings = page.getByTestId("findings");
  await findings.getByText("The server found nothing wrong.").waitFor();
  await write(page, FLOW("answer").replace("type: return", "kind: return"));
  await findings.getByText("this key is unknown here; the keys are").waitFor();
  await findings.getByRole("button", { name: "Line 9, column 5" }).first().waitFor();
  check((await page.locator(".cm-lint-marker-error").count()) > 0, "the editor marks the line");
  await look(page, "console-flow-findings");
  await write(page, FLOW("reply"));
  await findings.getByText("The server found nothing wrong.").waitFor();
  const dialog = await act(page, "Create a version");
  await dialog.getByLabel("Why").fill("Another name.");
  await confirm(page, dialog, "Create a version");
  const [version] = await versionsOf(flow.asset_id);
  equal([version.version_label, version.content.steps[1].id, version.change_note], ["v2", "reply", "Another name."]);
  await page.getByRole("tab", { name: "Compare" }).click();
  await page.locator(".node-added", { hasText: "reply" }).waitFor();
  await page.locator(".node-removed", { hasText: "answer" }).waitFor();
  await look(page, "console-flow-diff");
  await close(page);
  const weak = await visit(`/assets/${flow.asset_id}?tab=edit`, PEOPLE.viewer);
  await refused(weak, "Create a version", "You need the permission asset.edit.");
  await close(weak);
}

/**
 * Documents are added, and a search shows the passages that a run would retrieve. The access
 * contract refuses other callers.
 */
export async function console_documents() {
  await people();
  const slug = `pages-${Date.now()}`;
  const base = await api("POST", "/v1/assets", { slug, asset_kind: "knowledge_base", owner_ref: "team:browser", workspace_id: WORKSPACE });
  const contract = {
    contract_id: slug, version: "1", default_decision: "deny", allowed_access_modes: ["retrieve"], allowed_principals: [PEOPLE.author], allowed_groups: [], allowed_workspaces: [WORKSPACE],
    citation_required: true, revoked: false, revoked_at: null,
  };
  const content = { source_type: "inline", chunk_strategy: "sentence", retrieval: { strategy: "lexical", top_k: 3 }, access_contract: contract };
  await api("POST", `/v1/assets/${base.asset_id}/versions?workspace_id=${WORKSPACE}`, { content });
  const path = `/assets/${base.asset_id}?tab=documents`;
  const weak = await visit(path, PEOPLE.viewer);
  await refused(weak, "Add a document", "You need the permission asset.edit.");
  await close(weak);
  const page = await visit(path, PEOPLE.author);
  await page.getByText("There is no document.").waitFor();
  const dialog = await act(page, "Add a document");
  await dialog.getByLabel("Name").fill("lunch");
  await dialog.getByLabel("Title").fill("When we eat");
  await dialog.getByLabel("Text").fill("Lunch is at noon. The kitchen closes at two.");
  await confirm(page, dialog, "Add a document");
  const [document] = await api("GET", `/v1/assets/${base.asset_id}/documents?workspace_id=${WORKSPACE}`);
  equal([document.document_id, document.title, document.created_by], ["lunch", "When we eat", PEOPLE.author]);
  await page.getByRole("cell", { name: "lunch" }).waitFor();
  await page.getByLabel("Query").fill("noon lunch");
  await page.keyboard.press("Enter");
  await page.getByTestId("found").getByText("Lunch is at noon.").waitFor();
  await look(page, "console-documents");
  await close(page);
  const otherPage = await visit(path, "user:local");
  await otherPage.getByLabel("Query").fill("noon lunch");
  await otherPage.keyboard.press("Enter");
  await otherPage.locator("[data-code=contract_refused]").waitFor();
  await look(otherPage, "console-documents-refused");
  await close(otherPage);
}

/**
 * The impact of an asset is a graph and a list. An asset in use cannot be archived, and a retired
 * asset cannot be bound.
 */
export async function console_impact() {
  await activeWorkload("console-desk");
  const policy = (await assetsOf("policy_bundle")).find((one) => one.slug === "console-desk-policy");
  const page = await visit(`/assets/${policy.asset_id}?tab=usage`, PEOPLE.author);
  await page.getByTestId("impact").getByText(/A change reaches: workloads 1, releases [1-9]\d* \(active 1\)/).waitFor();
  await page.getByRole("button", { name: /Workload console-desk/ }).waitFor();
  await look(page, "console-impact");
  const impact = await api("GET", `/v1/assets/${policy.asset_id}/blast-radius?workspace_id=${WORKSPACE}`, undefined, { as: PEOPLE.author });
  equal(await page.getByRole("region", { name: "Releases" }).locator("tbody tr").count(), impact.releases.length, "all releases are listed");
  await page.getByText("The same in a shell").first().click();
  await page.getByText(/fairway assets impact console-desk-policy/).waitFor();
  const spareAsset = await api("POST", "/v1/assets", { slug: `spare-${Date.now()}`, asset_kind: "prompt_template", owner_ref: "team:browser", workspace_id: WORKSPACE });
  const weak = await visit(`/assets/${spareAsset.asset_id}`, PEOPLE.viewer);
  await refused(weak, "Archive", "You need the permission asset.edit.");
  await close(weak);
  await page.goto(`${SERVER}/console/assets/${spareAsset.asset_id}`);
  const dialog = await act(page, "Archive");
  await confirm(page, dialog, "Archive");
  equal((await api("GET", `/v1/assets/${spareAsset.asset_id}?workspace_id=${WORKSPACE}`)).lifecycle_state, "archived");
  await refused(page, "Allow bindings", "The asset is archived.");
  await close(page);
}
