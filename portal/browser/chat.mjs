// Browser tests of the chat page.
import { check, equal, holdAnswers, look, newPage, script, until, workload } from "./harness.mjs";
import { FIELDS, visit } from "./forms.mjs";

const chatConfig = (more = {}) => ({ presentation_mode: "chat", output_display: "markdown", input_fields: [FIELDS[0]], ...more });
const ask = async (page, text, label = "Message") => {
  await page.getByLabel(label).fill(text);
  await page.getByLabel(label).press("Enter");
};

/** Waits for an answer in the conversation; ignores the element for screen readers, which has the same text. */
const answered = (page, text) => page.locator("article.turn").getByText(text).waitFor();

export async function conversation() {
  script("hello", "Hello **there**, how can I help?");
  script("stop-me", "This is said half, and this is not.");
  await workload("browser-chat", chatConfig(), { name: "A chat" });
  const page = await newPage();
  await visit(page, "browser-chat");
  await page.getByText("Ask the first question.").waitFor();
  await look(page, "chat-empty");
  const release = holdAnswers();
  await ask(page, "[[hello]]");
  await page.locator(".streamed").getByText("Hello **there**").waitFor();
  await look(page, "chat-streaming");
  release();
  await page.locator("strong", { hasText: "there" }).waitFor();
  await page.getByText("this chat does not remember earlier messages").waitFor();
  equal(await page.getByLabel("Message").evaluate((element) => element === document.activeElement), true, "the focus stays in the message");
  const releaseSecond = holdAnswers();
  await ask(page, "[[stop-me]]");
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByText("The run was stopped.").waitFor();
  releaseSecond();
  await page.getByRole("button", { name: "Try again" }).click();
  await answered(page, "This is said half, and this is not.");
  await look(page, "chat");
  await page.reload();
  await answered(page, "This is said half, and this is not.");
  await page.locator("strong", { hasText: "there" }).waitFor();
  await page.getByRole("button", { name: "Erase my conversation" }).click();
  await page.getByText("Ask the first question.").waitFor();
  check(!(await page.getByText("how can I help").isVisible()), "the conversation is gone");
  await page.context().close();
}

export async function chat_settings() {
  script("set", "Settings arrived.");
  await workload("browser-chat-settings", chatConfig({ input_fields: [FIELDS[2], FIELDS[0]] }), { name: "A chat with settings" });
  const page = await newPage();
  await visit(page, "browser-chat-settings");
  await page.getByText("Settings", { exact: true }).click();
  await page.getByLabel("Tone").selectOption("kind");
  await look(page, "chat-settings");
  const executeRequest = page.waitForRequest((request) => request.url().endsWith("/execute"));
  await ask(page, "[[set]]");
  const body = (await executeRequest).postDataJSON();
  equal(body.inputs, { tone: "kind", message: "[[set]]" });
  check(/^[0-9a-f]{32}$/.test(body.session_id), "a conversation has a session");
  await answered(page, "Settings arrived.");
  await page.context().close();
}

export async function chat_refusal() {
  const rules = [{ id: "none", condition: "always", outcome: "deny", reason_code: "quiet" }];
  await workload("browser-chat-denied", chatConfig(), { name: "A silent chat", rules });
  const page = await newPage();
  await visit(page, "browser-chat-denied");
  await ask(page, "anything");
  await page.getByText("Reason: quiet").waitFor();
  await look(page, "chat-refused");
  await page.context().close();
}

export async function demo_form() {
  const page = await newPage();
  await visit(page, "ticket-classifier");
  await page.getByLabel("Ticket").fill("I was charged twice this month, please send me a refund.");
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByText("category: billing").waitFor();
  await look(page, "demo-form");
  await page.context().close();
}

export async function demo_chat() {
  const page = await newPage();
  await visit(page, "handbook-chat");
  await ask(page, "How many days of leave do I have?", "Question");
  const source = page.locator(".source", { hasText: "[leave]" });
  await source.locator("summary").click();
  await source.getByText("Everybody has thirty days of leave a year.").waitFor();
  equal(await source.locator(".source-title").textContent(), "Leave");
  await page.getByText("Why this answer?").click();
  await page.getByText("passages of handbook").waitFor();
  await look(page, "demo-chat");
  await ask(page, "May I take the train?", "Question");
  await page.locator(".source-title", { hasText: "Travel" }).waitFor();
  check(!(await page.getByText("does not remember").isVisible()), "the demo has a memory");
  await page.context().close();
}

export async function demo_block() {
  const page = await newPage();
  await visit(page, "short-summary");
  await page.getByLabel("Text").fill("Fairway decides before a model is asked. It keeps the evidence. Everything else follows.");
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByRole("region", { name: "Result" }).getByText("Fairway decides before a model is asked.").waitFor();
  await look(page, "demo-block");
  await page.context().close();
}
