// Browser tests of languages, colour schemes, window sizes, keyboard use, and the transfer size of the first view.
import { check, equal, look, newPage, script, SERVER, until } from "./harness.mjs";
import { visit } from "./forms.mjs";
import { run, simple } from "./runs.mjs";

export async function german() {
  await simple("text");
  const page = await newPage({ locale: "de-DE" });
  await visit(page, "browser-text");
  equal(await page.evaluate(() => document.documentElement.lang), "de");
  await page.getByRole("button", { name: "Ausführen" }).click();
  await page.getByText("(erforderlich)").waitFor();
  await page.getByRole("alert").waitFor();
  await look(page, "german");
  await page.goto(`${SERVER}/workload-runtime?lang=en`);
  await page.getByRole("heading", { name: "Workloads" }).waitFor();
  await page.context().close();
}

export async function dark() {
  await simple("json");
  script("dark", '{"a": "text", "b": 1}');
  const page = await run("browser-json", "dark", { colorScheme: "dark" });
  await page.getByRole("button", { name: /entries: 2/ }).waitFor();
  await look(page, "dark");
  await visit(page, "browser-form");
  await page.getByRole("button", { name: "Run" }).click();
  await look(page, "dark-errors");
  await page.goto(`${SERVER}/workload-runtime`);
  await page.getByRole("link", { name: "Ticket classifier" }).waitFor();
  await look(page, "dark-gallery");
  await page.context().close();
}

/** The computed colours of the page's text and background, and of a button and its text. */
const colorsOf = (page) =>
  page.evaluate(() => {
    const root = getComputedStyle(document.getElementById("root"));
    const button = getComputedStyle(document.querySelector("button[type=submit]:not(.secondary)"));
    return [root.color, root.backgroundColor, button.color, button.backgroundColor];
  });
const LIGHT = ["rgb(26, 29, 33)", "rgb(251, 251, 253)", "rgb(255, 255, 255)", "rgb(26, 86, 176)"];
const DARK = ["rgb(232, 234, 237)", "rgb(20, 23, 28)", "rgb(0, 0, 0)", "rgb(138, 180, 248)"];

/** The page follows a change between light and dark scheme while it is open. */
export async function scheme_change() {
  await simple("text");
  const page = await newPage({ reducedMotion: "reduce" });
  await visit(page, "browser-text");
  await page.getByLabel("Message").fill("kept");
  for (const [colorScheme, colors] of [["light", LIGHT], ["dark", DARK], ["light", LIGHT]]) {
    await page.emulateMedia({ colorScheme });
    await until(async () => JSON.stringify(await colorsOf(page)) === JSON.stringify(colors), `the colours of ${colorScheme}`);
    await look(page, `scheme-${colorScheme}`);
  }
  equal(await page.getByLabel("Message").inputValue(), "kept", "the page was not loaded again");
  // A theme with a background has a fixed scheme, which also determines an accent colour that the theme does not set.
  await simple("text", { slug: "browser-light", config: { theme: { background_color: "#fff8e1" } } });
  await visit(page, "browser-light");
  for (const colorScheme of ["dark", "light"]) {
    await page.emulateMedia({ colorScheme });
    equal(await colorsOf(page), [LIGHT[0], "rgb(255, 248, 225)", LIGHT[2], LIGHT[3]], `a light theme in ${colorScheme}`);
  }
  await look(page, "scheme-themed");
  await page.context().close();
}

export async function narrow() {
  for (const [slug, name] of [["browser-form", "narrow-form"], ["browser-chat", "narrow-chat"], [null, "narrow-gallery"]]) {
    // A width of 320 px equals a width of 1280 px at a zoom of 400 %.
    const page = await newPage({ viewport: { width: 320, height: 256 } });
    await page.goto(`${SERVER}/workload-runtime${slug ? `/${slug}` : ""}`);
    await page.getByRole("heading", { level: 1 }).waitFor();
    await page.waitForLoadState("networkidle");
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    check(overflow <= 0, `${name} scrolls sideways by ${overflow} px`);
    await look(page, name);
    await page.context().close();
  }
  await simple("table");
  script("wide", JSON.stringify([Object.fromEntries(Array.from({ length: 12 }, (_, index) => [`column ${index}`, "value of a cell"]))]));
  const page = await run("browser-table", "wide", { viewport: { width: 320, height: 600 } });
  await page.getByRole("table").waitFor();
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  check(overflow <= 0, `a wide table scrolls the page by ${overflow} px`);
  await look(page, "narrow-table");
  await page.context().close();
}

export async function right_to_left() {
  await simple("text");
  script("rtl", "مرحبا بالعالم [leave]");
  const page = await run("browser-text", "rtl");
  await page.getByRole("heading", { name: "Result" }).waitFor();
  equal(await page.locator("pre.output").evaluate((element) => getComputedStyle(element).direction), "rtl", "an output has its own direction");
  await page.evaluate(() => (document.documentElement.dir = "rtl"));
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  check(overflow <= 0, "a mirrored page does not scroll sideways");
  await look(page, "right-to-left");
  await page.context().close();
}

export async function reduced_motion() {
  const page = await newPage({ reducedMotion: "reduce" });
  await visit(page, "browser-form");
  const moving = await page.evaluate(() => [...document.querySelectorAll("*")].filter((element) => parseFloat(getComputedStyle(element).transitionDuration) > 0 || getComputedStyle(element).animationName !== "none").length);
  equal(moving, 0, "moving elements");
  await page.context().close();
}

export async function keyboard_only() {
  script("keys", "Reached by keys.");
  await simple("text");
  const page = await newPage();
  await page.goto(`${SERVER}/workload-runtime`);
  await page.getByRole("link", { name: "browser-text", exact: true }).waitFor();
  const focused = () => page.evaluate(() => document.activeElement?.textContent || document.activeElement?.id || "");
  const tabTo = async (text) => {
    for (let count = 0; count < 200; count += 1) {
      await page.keyboard.press("Tab");
      if ((await focused()).trim() === text) return;
    }
    throw new Error(`the Tab key does not reach ${text}`);
  };
  await tabTo("browser-text");
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  equal(outline, "solid", "the focus is visible");
  await page.keyboard.press("Enter");
  await page.getByLabel("Message").waitFor();
  await page.getByLabel("Message").focus();
  await page.keyboard.type("[[keys]]");
  await tabTo("Run");
  await page.keyboard.press("Enter");
  await page.getByText("Reached by keys.").waitFor();
  await tabTo("Why this answer?");
  await page.keyboard.press("Enter");
  await page.getByText("Approved by").waitFor();
  await look(page, "keyboard");
  await page.context().close();
}

export async function no_script() {
  const page = await newPage({ javaScriptEnabled: false });
  await page.goto(`${SERVER}/workload-runtime/browser-text`);
  // Reads the element directly, because Playwright's text selectors ignore `noscript`.
  const message = await page.evaluate(() => document.querySelector("noscript")?.innerText ?? "");
  check(message.includes("This page needs JavaScript.") && message.includes("benötigt JavaScript"), `no message: ${message}`);
  await look(page, "no-script", { axe: false });
  await page.context().close();
}

/** Limits the transferred bytes of the first view. Its load times on a slow machine are only printed. */
export async function first_view() {
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
  await session.send("Emulation.setCPUThrottlingRate", { rate: 4 });
  await session.send("Network.emulateNetworkConditions", { offline: false, latency: 40, downloadThroughput: 1_250_000, uploadThroughput: 1_250_000 });
  await page.goto(`${SERVER}/workload-runtime/ticket-classifier`);
  await page.getByRole("button", { name: "Run" }).waitFor();
  const ready = await page.evaluate(() => performance.now());
  const painted = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
  await page.waitForLoadState("networkidle");
  console.log(`        first view: ${bytes.js} bytes of JavaScript and ${bytes.css} of CSS transferred; throttled: painted after ${Math.round(painted)} ms, ready after ${Math.round(ready)} ms`);
  check(bytes.js < 90_000 && bytes.css < 15_000, `the first view transfers ${JSON.stringify(bytes)}`);
  await page.context().close();
}
