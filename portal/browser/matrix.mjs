// Browser tests of the combinations (cells) of presentation mode, output display and access mode. A normal run tests
// a subset; `PORTAL_LONG=1` tests all.
import { readFileSync } from "node:fs";
import { api, check, equal, holdAnswers, look, newPage, script, SERVER, until, workload } from "./harness.mjs";

const schemas = JSON.parse(readFileSync(new URL("../../docs/openapi.json", import.meta.url), "utf8")).components.schemas;
// The values from the OpenAPI document. A new value makes the run fail, because its cells have no tests.
const [modes, displays, accesses] = ["PresentationMode", "OutputDisplay", "AccessMode"].map((name) => schemas[name].enum);
const MESSAGE = [{ name: "message", label: "Message", type: "text", required: true }];

/**
 * For each presentation mode: how a run is submitted, where streamed text and result appear, and checks for this mode.
 */
const MODES = {
  form: {
    send: (page) => page.getByRole("button", { name: "Run" }).click(),
    streamed: "main > .stack pre.output",
    result: "main > .stack [data-state=completed]",
    async check(page) {
      equal(await page.locator("main .card").count(), 0, "a form is no card");
      await until(() => page.evaluate(() => document.activeElement.tagName === "H2"), "the focus moves to the result");
      equal(await page.getByLabel("Message").inputValue(), page.question, "the form keeps its values");
    },
  },
  chat: {
    send: (page) => page.keyboard.press("Enter"),
    streamed: "article.turn .streamed",
    result: "article.turn[data-state=ended]",
    async check(page, { isGuest }) {
      equal(await page.locator(".bubble").allTextContents(), [page.question], "the question is part of the conversation");
      equal(await page.evaluate(() => document.activeElement.id), "chat-message", "the focus stays in the message");
      equal(await page.getByLabel("Message").inputValue(), "", "the message is empty again");
      equal(await page.getByRole("button", { name: "Erase my conversation" }).count(), isGuest ? 0 : 1, "only people with an identity have a memory to erase");
      await page.getByText("this chat does not remember earlier messages").waitFor();
    },
  },
  block: {
    send: (page) => page.keyboard.press("Enter"),
    streamed: "main > .card pre.output",
    result: "main > .card [data-state=completed]",
    async check(page) {
      equal(await page.locator("main > .card").count(), 1, "a block is one card");
      await until(() => page.evaluate(() => document.activeElement.tagName === "H2"), "the focus moves to the result");
    },
  },
};

const ROWS = [{ name: "beta", count: 10 }, { name: "alpha", count: 9 }];
/** For each output display: an answer of the model, and the check of its rendering. */
const DISPLAYS = {
  text: {
    answer: "<b>As it is</b>\n  and **not** rendered",
    async check(result) {
      equal(await result.locator("pre.output").textContent(), this.answer);
      equal(await result.locator("b, strong").count(), 0, "text is not markup");
      equal(await result.locator("pre.output").evaluate((panel) => getComputedStyle(panel).overflowY), "auto", "a long text scrolls in its panel");
    },
  },
  json: {
    answer: JSON.stringify({ name: "Ada", deep: { deeper: { deepest: "hidden at first" } }, list: [true, null, 1.5] }),
    async check(result) {
      await result.locator(".json").waitFor();
      equal(await result.locator(".json-string").allTextContents(), ['"Ada"'], "strings are highlighted, and deep levels are closed");
      await result.getByRole("button", { name: /deeper:/ }).click();
      await until(async () => (await result.locator(".json-string").count()) === 2, "a level opens");
      equal(await result.locator(".json-number").allTextContents(), ["1.5"]);
    },
  },
  markdown: {
    answer: "## Heading\n\n**bold** [link](https://example.org/x) ![image](https://example.org/y.png) <i>html</i>\n\n- one\n- two",
    async check(result) {
      equal(await result.locator(".markdown strong").textContent(), "bold");
      equal(await result.locator(".markdown h3").textContent(), "Heading", "headings stand below those of the page, and skip no level");
      equal(await result.locator(".markdown li").count(), 2);
      equal(await result.locator(".markdown img, .markdown i").count(), 0, "neither images nor HTML");
      equal(await result.locator(".link-target").textContent(), "(example.org)");
    },
  },
  table: {
    answer: JSON.stringify(ROWS),
    async check(result, page) {
      const first = () => result.locator("tbody tr td:first-child").allTextContents();
      await result.getByRole("table").waitFor();
      equal(await first(), ["beta", "alpha"]);
      await result.getByRole("button", { name: "name" }).click();
      equal(await first(), ["alpha", "beta"], "sorted");
      const download = page.waitForEvent("download");
      await result.getByRole("button", { name: "Download CSV" }).click();
      let csv = "";
      for await (const part of await (await download).createReadStream()) csv += part;
      equal(csv, "name,count\r\nalpha,9\r\nbeta,10\r\n");
    },
  },
};

/** Opens a page in a browser profile that acts as this actor. */
async function pageOf(actor) {
  const page = await newPage();
  await page.goto(`${SERVER}/workload-runtime`);
  await page.evaluate((name) => localStorage.setItem("fairway.actor", name), actor);
  return page;
}
const address = (slug, query = "") => `${SERVER}/workload-runtime/${slug}${query}`;

/**
 * For each access mode: how a permitted caller opens the page, which callers are refused, and the expected credentials.
 */
const ACCESSES = {
  authenticated: {
    isGuest: false,
    async open(slug) {
      const visitor = await pageOf("anonymous");
      await visitor.goto(address(slug));
      await visitor.locator("[data-code=not_found]").waitFor();
      equal(await visitor.getByLabel("Message").count(), 0, "a visitor without an identity does not see that it exists");
      await visitor.context().close();
      const page = await pageOf("user:demo-author");
      await page.goto(address(slug));
      return page;
    },
    check: (headers) => equal(headers, { actor: "user:demo-author" }, "the actor is named, and nobody else"),
  },
  public: {
    isGuest: true,
    async open(slug) {
      const page = await pageOf("anonymous");
      await page.goto(address(slug));
      return page;
    },
    check: (headers) => equal(headers, { actor: "anonymous" }, "a visitor has no other identity"),
  },
  link_shared: {
    isGuest: true,
    async open(slug, id) {
      const visitor = await pageOf("anonymous");
      await visitor.goto(address(slug));
      await visitor.locator("[data-code=share_token_required]").waitFor();
      equal(await visitor.getByLabel("Message").count(), 0, "without a link there is no form");
      await visitor.context().close();
      const { token } = await api("POST", `/v1/workloads/${id}/share-links`, { max_uses: 2 });
      const page = await newPage();
      await page.goto(address(slug, `?token=${token}`));
      await page.getByLabel("Message").waitFor();
      equal(new URL(page.url()).search, "", "the token is not in the address");
      equal(await page.getByLabel("Act as").count(), 0, "a link acts as nobody else");
      return page;
    },
    check: (headers) => equal(headers, { token: true }, "the token is a header, alone"),
  },
};

const cellName = (mode, display, access) => `${mode}-${display}-${access}`;

/** Tests one cell: opens the page, submits a run, checks the streamed text and the result, and reloads the page. */
async function cell(mode, display, access) {
  const name = cellName(mode, display, access);
  const [presentation, output, caller] = [MODES[mode], DISPLAYS[display], ACCESSES[access]];
  const slug = `matrix-${name.replaceAll("_", "-")}`;
  script(slug, output.answer);
  const id = await workload(slug, { presentation_mode: mode, output_display: display, access_mode: access, input_fields: MESSAGE });
  const page = await caller.open(slug, id);
  const executeRequest = page.waitForRequest((request) => request.url().endsWith("/execute"));
  page.question = `[[${slug}]]`;
  await page.getByLabel("Message").fill(page.question);
  const release = holdAnswers();
  await presentation.send(page);
  const request = await executeRequest;
  const { "x-actor-ref": actor, "x-share-token": token, cookie } = request.headers();
  caller.check({ ...(actor && { actor }), ...(token && { token: true }), ...(cookie && { cookie }) });
  const { inputs, session_id: session } = request.postDataJSON();
  equal(inputs, { message: page.question });
  equal(session !== undefined, mode === "chat" && !caller.isGuest, "only conversations of people with an identity have a session");
  const half = output.answer.slice(0, Math.ceil(output.answer.length / 2));
  await until(async () => (await page.locator(presentation.streamed).textContent().catch(() => "")) === half, `${name}: the first half is shown as text`);
  release();
  const result = page.locator(presentation.result);
  await result.getByText("Why this answer?").waitFor();
  await presentation.check(page, caller);
  await output.check(result, page);
  await look(page, `matrix-${name}`);
  await page.reload();
  await result.getByText("Why this answer?").waitFor();
  check((await result.textContent()).length > 0, `${name}: the result is found again`);
  await page.context().close();
}

/** The names of all cells according to the OpenAPI document, including cells without a test. */
export const ALL_CELLS = modes.flatMap((mode) => displays.flatMap((display) => accesses.map((access) => cellName(mode, display, access))));
/** A subset in which every pair of mode and display, mode and access mode, and display and access mode occurs. */
export const SUBSET = modes.flatMap((mode, row) => displays.map((display, column) => cellName(mode, display, accesses[(row + column) % accesses.length])));
/** The tests of cells by name. */
export const CELLS = Object.fromEntries(
  Object.keys(MODES).flatMap((mode) =>
    Object.keys(DISPLAYS).flatMap((display) => Object.keys(ACCESSES).map((access) => [cellName(mode, display, access), () => cell(mode, display, access)])),
  ),
);
