// Tests docs/verify.html in Chromium as a local file without a network: verdicts, hostile texts, accessibility and
// narrow windows.
//
// Environment: the variables of `compare_verifiers.mjs`, VERIFY_CHROMIUM (the browser) and VERIFY_PICTURES (a
// folder for screenshots).
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { loadLibrary } from "./library.mjs";
import { Log } from "./test_log.mjs";

const { VERIFY_MODULES, VERIFY_CHROMIUM, VERIFY_PICTURES, VERIFY_BUNDLES, VERIFY_KEY } = process.env;
const modules = createRequire(join(VERIFY_MODULES, "x.js"));
const AXE = readFileSync(modules.resolve("axe-core/axe.min.js"), "utf8");
const PAGE = new URL("../../../docs/verify.html", import.meta.url).href;
const HOSTILE = "<img src=https://attacker.invalid/ onerror=alert(1)>\u202e\u0007";

const lib = await loadLibrary(VERIFY_MODULES);
const folder = mkdtempSync(join(tmpdir(), "verify-browser-"));
mkdirSync(VERIFY_PICTURES, { recursive: true });
const file = readFileSync(join(VERIFY_BUNDLES, "execution.json"), "utf8").trimEnd();
const statement = JSON.parse(Buffer.from(JSON.parse(file).payload, "base64"));
const { checkpoint } = statement.predicate;
const log = new Log(lib, Buffer.from(VERIFY_KEY, "base64"), checkpoint.split("\n")[0]);
const write = (name, bytes) => {
  writeFileSync(join(folder, name), bytes);
  return join(folder, name);
};
const unchanged = write("whole.json", file);
const edited = write("edited.json", file.replace(/"payload":"(.{400})(.)/, (_, start, digit) => `"payload":"${start}${digit === "A" ? "B" : "A"}`));
statement.predicate.evidence.approvals[0].approved_by = HOSTILE;
const hostile = write("hostile.json", log.seal(statement));

const { chromium } = modules("playwright-core");
const browser = await chromium.launch({ executablePath: VERIFY_CHROMIUM, headless: true, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"] });

/**
 * Opens the local page in an offline browser context. Network requests and console messages are recorded as failures.
 */
async function openPage(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1000, height: 800 }, ...options });
  await context.setOffline(true);
  const page = await context.newPage();
  const complaints = [];
  page.on("request", (request) => request.url() !== PAGE && complaints.push(`request of ${request.url()}`));
  page.on("console", (message) => complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("dialog", (dialog) => complaints.push(`dialog ${dialog.message()}`));
  await page.goto(PAGE);
  return { page, complaints, close: () => context.close() };
}

async function verify(page, path, { keys = log.key, other = "", proof = "" } = {}) {
  if (path) await page.setInputFiles("#file", path);
  await page.fill("#keys", keys);
  if (other) {
    await page.locator("details").evaluate((details) => details.setAttribute("open", ""));
    await page.fill("#checkpoint", other);
    await page.fill("#consistency", proof);
  }
  await page.getByRole("button", { name: "Verify" }).click();
  await page.locator("#result").waitFor();
  await page.waitForFunction(() => document.activeElement.id === "verdict");
  return { verdict: await page.textContent("#verdict"), summary: await page.textContent("#summary"), failed: await page.locator("#checks .failed .name").allTextContents() };
}

/** Runs the accessibility checker axe with the content security policy disabled, because the policy blocks axe. */
async function checkAccessibility(options, prepare) {
  const context = await browser.newContext({ bypassCSP: true, ...options });
  const page = await context.newPage();
  await page.goto(PAGE);
  await prepare(page);
  const unguarded = await page.evaluate(`${AXE}; axe.run()`);
  assert.deepEqual(unguarded.violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`), []);
  await context.close();
}

try {
  const { page, complaints, close } = await openPage();
  assert.match((await verify(page, null)).summary, /Choose the file/);
  assert.equal((await verify(page, unchanged)).verdict, "Verified");
  assert.ok((await page.locator("#proven li").count()) >= 5 && (await page.locator("#not-proven li").count()) >= 4);
  assert.match(await page.textContent("#not-proven"), /evaluates no policy/);
  await page.screenshot({ path: join(VERIFY_PICTURES, "verify-passed.png") });
  const changed = await verify(page, edited);
  assert.equal(changed.verdict, "Not verified");
  assert.ok(changed.failed.some((name) => name.startsWith("signature of the envelope")), changed.summary);
  assert.equal(await page.locator("#shown").isVisible(), false);
  await page.getByLabel("Only checks that failed").check();
  assert.equal(await page.locator("#checks li:visible").count(), changed.failed.length);
  await page.screenshot({ path: join(VERIFY_PICTURES, "verify-failed.png"), fullPage: true });
  const unkeyed = await verify(page, unchanged, { keys: "" });
  assert.ok(unkeyed.verdict === "Not verified" && /Give a public key/.test(unkeyed.summary), unkeyed.summary);
  assert.match((await verify(page, unchanged, { keys: "x" })).summary, /A key cannot be read/);
  assert.match((await verify(page, unchanged, { keys: log.key.replace(/.$/, "t") })).summary, /key id|public key/);
  const attacked = await verify(page, hostile);
  assert.ok(attacked.failed.some((name) => name.startsWith("approval in the log")), attacked.summary);
  assert.equal(await page.locator("img").count(), 0);
  assert.match(await page.textContent("#checks"), /<img src=https:.*\\u\{202e\}\\u\{7\}/);
  const equalCheckpoint = await verify(page, unchanged, { other: checkpoint });
  assert.equal(equalCheckpoint.verdict, "Verified");
  assert.match(await page.textContent("#proven"), /one history/);
  const forged = await verify(page, unchanged, { other: checkpoint.replace(/\n\d+\n/, "\n1\n") });
  assert.ok(forged.failed.some((name) => name.startsWith("signature of the second checkpoint")), forged.summary);
  assert.deepEqual(complaints, []);
  // The content security policy must block markup, code and requests even if a defect of the script permits them.
  const blocked = await page.evaluate(async () => {
    const refused = (attempt) => { try { attempt(); return false; } catch { return true; } };
    const fetched = await fetch("https://attacker.invalid/").then(() => false, () => true);
    const script = document.createElement("script");
    refused(() => script.append(document.createTextNode("window.hasRun = true")));
    document.body.append(script);
    return [refused(() => { document.body.innerHTML = "<b>x</b>"; }), window.hasRun === undefined, fetched];
  });
  assert.deepEqual(blocked, [true, true, true]);
  await close();
  const narrow = { viewport: { width: 320, height: 640 }, colorScheme: "dark" };
  const small = await openPage(narrow);
  await verify(small.page, edited);
  assert.ok(await small.page.evaluate(() => document.documentElement.scrollWidth <= 320), "the page scrolls sideways");
  await small.page.screenshot({ path: join(VERIFY_PICTURES, "verify-narrow.png"), fullPage: true });
  assert.deepEqual(small.complaints, []);
  await small.close();
  for (const options of [{}, narrow]) {
    await checkAccessibility(options, async () => undefined);
    for (const path of [unchanged, edited]) await checkAccessibility(options, (page) => verify(page, path, { other: checkpoint }));
  }
  console.log(`docs/verify.html passes in Chromium; pictures in ${VERIFY_PICTURES}`);
} finally {
  await browser.close();
  rmSync(folder, { recursive: true });
}
