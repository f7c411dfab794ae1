// Browser tests of cited documents: their titles and passages, and the view of a reader without
// access to the documents.
import { api, check, equal, look, newPage, script, SERVER, until, workload } from "./harness.mjs";
import { FIELDS, visit } from "./forms.mjs";

const FLOW = `entry_step: find
trigger: { type: api_request, inputs_schema: { message: string } }
steps:
  - id: find
    type: task
    action: retrieve_documents
    inputs: { query: "{{trigger.message}}", knowledge_base: "{{release.knowledge_base}}" }
  - id: ask
    type: llm_call
    inputs: { prompt: "{{release.prompt_template}}", message: "{{trigger.message}}", documents: "{{steps.find.output}}" }
  - id: done
    type: return
    output: "{{steps.ask.output}}"
`;
const DOCUMENTS = [
  { document_id: "hr/leave", title: "Leave & holidays <b>2026</b>", text: "Everybody has thirty days of leave a year." },
  { document_id: "travel", text: "Take the train to the leave office." },
];

/** Creates a workload that answers from documents, and returns its knowledge base. */
async function library(slug, mode, display) {
  const [workspace] = await api("GET", "/v1/workspaces");
  const scope = workspace.workspace_id;
  const asset = await api("POST", "/v1/assets", { slug: `${slug}-base`, asset_kind: "knowledge_base", owner_ref: "team:browser" });
  const content = {
    source_type: "inline",
    chunk_strategy: "sentence",
    retrieval: { strategy: "lexical", top_k: 3 },
    access_contract: {
      contract_id: slug, version: "1", default_decision: "deny", allowed_principals: ["user:local", "user:demo-author"], allowed_groups: [],
      allowed_workspaces: [scope], allowed_access_modes: ["retrieve"], citation_required: false, revoked: false, revoked_at: null,
    },
  };
  const version = await api("POST", `/v1/assets/${asset.asset_id}/versions`, { content });
  await api("POST", `/v1/assets/${asset.asset_id}/documents?workspace_id=${scope}`, { documents: DOCUMENTS });
  const flow = await api("POST", "/v1/flows", { slug: `${slug}-flow`, owner_ref: "team:browser", content_yaml: FLOW, workspace_id: scope });
  await workload(slug, { presentation_mode: mode, output_display: display, input_fields: [FIELDS[0]] }, {
    bindings: [["knowledge_base", version.asset_version_id], ["orchestration_flow", flow.asset_version_id]],
  });
  return { base: asset.asset_id, scope };
}

/** The page shows titles instead of names, passages on request, and no document that the run did not retrieve. */
export async function citations() {
  script("cited", "Thirty days [hr/leave], not sixty [invented].");
  const { base, scope } = await library("browser-cited", "form", "markdown");
  const page = await newPage();
  await visit(page, "browser-cited");
  await page.getByLabel("Message").fill("How much leave? [[cited]]");
  await page.getByRole("button", { name: "Run" }).click();
  const sources = page.getByRole("region", { name: "Sources of this answer" });
  await sources.waitFor();
  equal(await sources.locator("summary").allTextContents(), ["Leave & holidays <b>2026</b> [hr/leave]"], "title and name of the one cited document");
  equal(await sources.locator("b").count(), 0, "a title is text");
  const passage = sources.getByText("Everybody has thirty days of leave a year.");
  check(!(await passage.isVisible()), "a passage is closed at first");
  await sources.locator("summary").press("Enter");
  await passage.waitFor();
  await look(page, "citations");
  // The server evaluates the access contract again each time a result is read.
  await api("POST", `/v1/assets/${base}/access-contract/revoke?workspace_id=${scope}`, { contract_id: "browser-cited", reason: "the handbook is replaced" });
  await page.reload();
  await sources.getByText("Its text is not shown here.").waitFor();
  equal(await sources.locator(".source").allTextContents(), [" [hr/leave] Its text is not shown here."]);
  check(!(await passage.isVisible()), "the passage is withheld");
  await look(page, "citations-withheld");
  await page.context().close();
}

/** Citations in a conversation and with another output display. */
export async function citations_chat() {
  script("cited-chat", "By train [travel], with leave [hr/leave].");
  await library("browser-cited-chat", "chat", "text");
  const page = await newPage();
  await visit(page, "browser-cited-chat");
  await page.getByLabel("Message").fill("Train and leave? [[cited-chat]]");
  await page.keyboard.press("Enter");
  const sources = page.getByRole("region", { name: "Sources of this answer" });
  await until(async () => (await sources.locator("summary").count()) === 2, "both documents");
  const titles = await sources.locator("summary").allTextContents();
  check(titles.some((title) => title.trim() === "[travel]"), `a document without a title has its name: ${titles}`);
  // A failed read of the sources can be repeated.
  await page.route("**/v1/executions/*include=citations*", (route) => route.abort());
  await page.reload();
  await page.getByText("The sources could not be read.").waitFor();
  await look(page, "citations-failed");
  await page.unroute("**/v1/executions/*include=citations*");
  await page.getByRole("button", { name: "Try again" }).click();
  await until(async () => (await sources.locator("summary").count()) === 2, "both documents after a retry");
  equal(new URL(page.url()).origin, SERVER);
  await page.context().close();
}
