// Browser tests of the gallery, and of the presentation modes form and block.
import { check, equal, look, newPage, script, SERVER, until, workload } from "./harness.mjs";

/** Input fields of all types. */
export const FIELDS = [
  { name: "message", label: "Message", type: "text", required: true },
  { name: "amount", label: "Amount", type: "number", min: 1, max: 10 },
  { name: "tone", label: "Tone", type: "select", options: ["kind", "short"], default: "short" },
  { name: "details", label: "Details", type: "textarea", rows: 3 },
  { name: "urgent", label: "Urgent", type: "boolean", default: true },
  { name: "due", label: "Due", type: "date", required: true },
];
let formWorkload;
const createFormWorkload = () => (formWorkload ??= workload("browser-form", { presentation_mode: "form", description: "All kinds of inputs.", input_fields: FIELDS }, { name: "Every field" }));
export const visit = async (page, slug, query = "") => {
  await page.goto(`${SERVER}/workload-runtime/${slug}${query}`);
  await page.getByRole("heading", { level: 1 }).waitFor();
};

export async function gallery() {
  await createFormWorkload();
  const page = await newPage();
  const response = await page.goto(SERVER);
  equal(new URL(page.url()).pathname, "/workload-runtime", "the root leads to the gallery");
  equal(response.headers()["cache-control"], "no-store");
  await page.getByRole("link", { name: "Every field" }).waitFor();
  await page.getByRole("link", { name: "Ticket classifier" }).waitFor();
  await look(page, "gallery");
  await page.getByRole("link", { name: "Every field" }).click();
  await page.getByRole("heading", { level: 1, name: "Every field" }).waitFor();
  await page.context().close();
}

export async function gallery_filters() {
  const page = await newPage();
  await page.goto(`${SERVER}/workload-runtime`);
  await page.getByRole("link", { name: "Every field" }).waitFor();
  await page.getByLabel("Search").fill("ticket");
  await until(async () => (await page.getByRole("listitem").count()) === 1, "the search filters");
  await page.getByLabel("Kind").selectOption("chat");
  await page.getByText("No workload matches the filters.").waitFor();
  await page.getByLabel("Search").fill("");
  await page.getByLabel("Kind").selectOption("");
  await page.getByLabel("Owner").selectOption("team:browser");
  await until(async () => !(await page.getByRole("link", { name: "Ticket classifier" }).isVisible()), "the owner filters");
  await look(page, "gallery-filters");
  await page.context().close();
}

export async function fields() {
  const page = await newPage();
  await visit(page, "browser-form");
  equal(await page.getByLabel("Amount").getAttribute("inputmode"), "decimal");
  const help = await page.getByLabel("Amount").getAttribute("aria-describedby");
  equal(await page.evaluate((id) => document.getElementById(id).textContent, help), "From 1 to 10", "the bounds are said before a mistake");
  equal(await page.getByLabel("Due").getAttribute("type"), "date");
  equal(await page.getByLabel("Details").getAttribute("rows"), "3");
  equal(await page.getByLabel("Message").getAttribute("aria-required"), "true");
  equal(await page.getByLabel("Tone").locator("option").allTextContents(), ["Choose …", "kind", "short"]);
  await look(page, "fields");
  await page.context().close();
}

export async function defaults() {
  script("defaults", "All defaults arrived.");
  const page = await newPage();
  await visit(page, "browser-form");
  equal(await page.getByLabel("Tone").inputValue(), "short");
  check(await page.getByLabel("Urgent").isChecked(), "the default of a toggle");
  await page.getByLabel("Message").fill("[[defaults]]");
  await page.getByLabel("Due").fill("2028-02-29");
  const executeRequest = page.waitForRequest((request) => request.url().endsWith("/execute"));
  await page.getByRole("button", { name: "Run" }).click();
  const body = (await executeRequest).postDataJSON();
  equal(body, { environment: "dev", inputs: { message: "[[defaults]]", tone: "short", urgent: true, due: "2028-02-29" } });
  await page.getByText("All defaults arrived.").waitFor();
  await page.context().close();
}

export async function missing_fields() {
  const page = await newPage();
  await visit(page, "browser-form");
  await page.getByLabel("Amount").fill("11");
  await page.getByRole("button", { name: "Run" }).click();
  const summary = page.getByRole("alert");
  await summary.getByText("Please correct these fields").waitFor();
  equal(await summary.evaluate((element) => element === document.activeElement), true, "the summary has the focus");
  equal(await page.getByLabel("Amount").getAttribute("aria-invalid"), "true");
  equal(await page.locator(".field-message").allTextContents(), ["Enter a value.", "Enter 10 or less.", "Enter a date."].map((text, index) => (index === 2 ? "Enter a value." : text)));
  await look(page, "missing-fields");
  await summary.getByRole("button", { name: "Amount" }).click();
  equal(await page.getByLabel("Amount").evaluate((element) => element === document.activeElement), true, "the summary leads to its field");
  await page.context().close();
}

export async function server_errors() {
  const page = await newPage();
  await visit(page, "browser-form");
  await page.getByLabel("Message").fill("x");
  await page.getByLabel("Due").fill("2026-01-02");
  // The text exceeds the server's limit, which the page itself does not check.
  await page.getByLabel("Details").fill("y".repeat(33_000));
  await page.getByRole("button", { name: "Run" }).click();
  await page.locator("[data-code=validation_error]").waitFor();
  equal(await page.getByLabel("Details").getAttribute("aria-invalid"), "true", "the server's problem is at its field");
  check((await page.locator("[data-code=validation_error]").textContent()).includes("Request number: "), "a refusal has its request number");
  await page.getByLabel("Details").fill("short");
  await page.getByRole("button", { name: "Run", exact: true }).waitFor();
  await look(page, "server-errors");
  await page.context().close();
}

export async function block() {
  script("block", "One short line.");
  await workload("browser-block", { presentation_mode: "block", input_fields: [FIELDS[0]] }, { name: "A block" });
  const page = await newPage();
  await visit(page, "browser-block");
  await page.getByLabel("Message").fill("[[block]]");
  await page.keyboard.press("Enter");
  await page.getByText("One short line.").waitFor();
  check(await page.locator("main .card").isVisible(), "a block is a card");
  await look(page, "block");
  await page.context().close();
}
