// Browser tests of streamed answers: visible text, text for screen readers, cancellation and lost connections.
import { check, cutConnections, equal, PROXY, look, newPage, SERVER, streamOf, until, workload } from "./harness.mjs";
import { FIELDS } from "./forms.mjs";

const PIECES = ["The first sentence. ", "The second ", "sentence. The end"];
/** For each presentation mode: where streamed text and result appear, and how a run is submitted. */
const MODES = {
  form: { streamed: "main pre.output", result: "main [data-state=completed] pre.output", send: (page) => page.getByRole("button", { name: "Run" }).click() },
  chat: { streamed: "article.turn .streamed", result: "article.turn pre.output", send: (page) => page.keyboard.press("Enter") },
  block: { streamed: "main .card pre.output", result: "main .card [data-state=completed] pre.output", send: (page) => page.keyboard.press("Enter") },
};

/** Opens a page in a presentation mode, and submits a run whose answer the test sends. */
async function submitRun(mode, name, origin = SERVER) {
  const stream = streamOf(`${name}-${mode}`);
  await workload(`stream-${mode}`, { presentation_mode: mode, input_fields: [FIELDS[0]] }, { name: `A ${mode} that streams` });
  const page = await newPage();
  await page.goto(`${origin}/workload-runtime/stream-${mode}`);
  await page.getByLabel("Message").fill(`[[${name}-${mode}]]`);
  await MODES[mode].send(page);
  await stream.requested;
  return { page, stream };
}

const spoken = (page) => page.getByTestId("spoken").locator("p").allTextContents();
const waitForText = async (page, selector, text, message) => {
  await until(async () => (await page.locator(selector).textContent().catch(() => null)) === text, message);
};

/** Text appears as the model sends it, and is announced to screen readers in whole sentences. */
async function streams(mode) {
  const { page, stream } = await submitRun(mode, "pieces");
  const { streamed, result } = MODES[mode];
  await page.getByRole("status").getByText("Running …").first().waitFor({ state: "attached" });
  stream.send(PIECES[0]);
  await waitForText(page, streamed, PIECES[0], "the first piece is shown before the second is sent");
  await until(async () => (await spoken(page)).length === 1, "the first sentence is read aloud");
  equal(await page.getByTestId("spoken").getAttribute("aria-live"), "polite");
  stream.send(PIECES[1]);
  await waitForText(page, streamed, PIECES[0] + PIECES[1], "the second piece follows the first");
  equal(await spoken(page), [PIECES[0]], "half a sentence is not read");
  await look(page, `stream-${mode}`);
  stream.send(PIECES[2]);
  await waitForText(page, streamed, PIECES.join(""), "the third piece");
  await until(async () => (await spoken(page)).length === 2, "the second sentence is read aloud");
  equal(await spoken(page), [PIECES[0], "The second sentence. "], "each sentence once");
  stream.end();
  await waitForText(page, result, PIECES.join(""), "the result is the streamed text");
  const focused = await page.evaluate(() => document.activeElement.tagName);
  if (mode === "chat") {
    equal(focused, "TEXTAREA", "the focus stays in the message");
    equal(await spoken(page), [PIECES[0], "The second sentence. ", "The end"], "the rest is read at the end");
    await until(async () => (await spoken(page)).length === 0, "the page has the answer once");
  } else {
    await until(() => page.evaluate(() => document.activeElement.tagName === "H2"), "the focus moves to the result");
    equal(await page.getByTestId("spoken").count(), 0, "the result is read from its heading");
  }
  await page.context().close();
}
export const stream_form = () => streams("form");
export const stream_chat = () => streams("chat");
export const stream_block = () => streams("block");

export async function stream_stopped() {
  for (const mode of Object.keys(MODES)) {
    const { page, stream } = await submitRun(mode, "stop");
    stream.send(PIECES[0]);
    await waitForText(page, MODES[mode].streamed, PIECES[0], `${mode}: the first piece`);
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByText("The run was stopped.").waitFor();
    // The server must close the connection to the model, because further tokens would cost money.
    await stream.disconnected;
    equal(await page.locator(MODES[mode].result).count(), 0, `${mode}: a stopped run has no result`);
    check(await page.getByRole("button", { name: mode === "chat" ? "Send" : "Run" }).isEnabled(), `${mode}: the next run can start`);
    await look(page, `stream-stopped-${mode}`);
    await page.context().close();
  }
}

/** A run can be cancelled before the server has accepted it. */
export async function stream_stopped_early() {
  const stream = streamOf("early-chat");
  await workload("stream-chat", { presentation_mode: "chat", input_fields: [FIELDS[0]] }, { name: "A chat that streams" });
  const page = await newPage();
  let continueRequest;
  const isStopped = new Promise((resolve) => (continueRequest = resolve));
  await page.route("**/execute", async (route) => {
    await isStopped;
    await route.continue();
  });
  await page.goto(`${SERVER}/workload-runtime/stream-chat`);
  await page.getByLabel("Message").fill("[[early-chat]]");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Stop" }).click();
  continueRequest();
  await page.getByText("The run was stopped.").waitFor();
  check(stream.requests <= 1, "the run is not started again");
  await page.context().close();
}

export async function stream_reconnected() {
  for (const mode of Object.keys(MODES)) {
    const { page, stream } = await submitRun(mode, "lost", PROXY);
    const { streamed, result } = MODES[mode];
    stream.send(PIECES[0]);
    await waitForText(page, streamed, PIECES[0], `${mode}: the first piece`);
    // The page is offline for new requests, and the open stream ends as if a proxy had closed it.
    await page.context().setOffline(true);
    cutConnections();
    await page.getByText("The connection was lost.").first().waitFor();
    await look(page, `stream-lost-${mode}`, { axe: false });
    stream.send(PIECES[1]);
    await page.context().setOffline(false);
    await waitForText(page, streamed, PIECES[0] + PIECES[1], `${mode}: what was sent meanwhile, and nothing twice`);
    await until(async () => !(await page.getByText("The connection was lost.").first().isVisible()), `${mode}: connected again`);
    stream.send(PIECES[2]);
    stream.end();
    await waitForText(page, result, PIECES.join(""), `${mode}: the result`);
    equal(stream.requests, 1, `${mode}: the model is asked once`);
    await page.context().close();
  }
}
