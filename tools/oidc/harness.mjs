// The stage of the sign-in tests: a browser, the command line, and requests without either.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { FAIRWAY, ISSUER, required, SERVER, WORKSPACE } from "./settings.mjs";

const { chromium } = createRequire(join(required("PORTAL_MODULES"), "x.js"))("playwright-core");
const PICTURES = required("OIDC_PICTURES");
export const COOKIE = "__Host-fairway-session";
/** Each wait ends at its event; this is only the bound of a run that hangs. */
const PATIENCE = 60_000;

export function check(condition, message) {
  if (!condition) throw new Error(message);
}
export function equal(actual, expected, message = "") {
  const [left, right] = [JSON.stringify(actual), JSON.stringify(expected)];
  check(left === right, `${message}: ${left} instead of ${right}`);
}
export async function until(condition, message) {
  const end = Date.now() + PATIENCE;
  while (!(await condition())) {
    check(Date.now() < end, `timed out: ${message}`);
    await pause(50);
  }
}

let browser;
const homes = [];
/** Messages of the console that mean a defect, and requests to strangers. */
export const violations = [];

export async function open() {
  mkdirSync(PICTURES, { recursive: true });
  browser = await chromium.launch({
    executablePath: required("OIDC_CHROMIUM"),
    headless: true,
    args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
}

export async function close() {
  await browser?.close();
  for (const home of homes) rmSync(home, { recursive: true, force: true });
}

/** A page in a profile of its own. */
export async function newPage() {
  const context = await browser.newContext({ locale: "en-GB" });
  const page = await context.newPage();
  const isOurs = () => page.url().startsWith(SERVER);
  page.on("console", (message) => {
    if (isOurs() && /Content Security Policy|Trusted|Uncaught/.test(message.text())) violations.push(`${page.url()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => isOurs() && violations.push(`${page.url()}: ${error}`));
  // The provider's own pages load a font from elsewhere; ours load nothing.
  const isElsewhere = (url) => ![SERVER, ISSUER].includes(url.origin) && !["data:", "blob:"].includes(url.protocol);
  await context.route(isElsewhere, (route) => {
    if (isOurs()) violations.push(`request to ${route.request().url()}`);
    return route.abort();
  });
  page.setDefaultTimeout(PATIENCE);
  return page;
}

export const look = (page, name) => page.screenshot({ path: join(PICTURES, `sign-in-${name}.png`), fullPage: true });

/** Enters a name at the provider, and allows the client what it asks for, unless the name's session has allowed it. */
export async function confirmAtProvider(page, name, { hasConsented = false } = {}) {
  await page.getByPlaceholder("Enter any login").fill(name);
  await page.getByPlaceholder("and password").fill("not checked");
  await page.getByRole("button", { name: "Sign-in" }).click();
  if (!hasConsented) await page.getByRole("button", { name: "Continue" }).click();
}

/** Opens a page of Fairway, and signs in as a person; ends on the page. */
export async function signIn(name, path = "/workload-runtime") {
  const page = await newPage();
  await page.goto(SERVER + path);
  await page.getByRole("link", { name: "Sign in" }).click();
  await confirmAtProvider(page, name);
  await page.waitForURL(SERVER + path);
  return page;
}

/** The session cookie of a page. */
export async function cookieOf(page) {
  const cookies = await page.context().cookies(SERVER);
  return cookies.find((cookie) => cookie.name === COOKIE);
}

/** A request outside of the browser. */
export async function request(method, path, { token, cookie, csrf, body, headers = {} } = {}) {
  const response = await fetch(path.startsWith("http") ? path : SERVER + path, {
    method,
    redirect: "manual",
    headers: {
      ...(token ? { Authorization: `Bearer ${token}` } : {}),
      ...(cookie ? { Cookie: `${COOKIE}=${cookie}` } : {}),
      ...(csrf ? { "X-CSRF-Token": csrf } : {}),
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  let json = null;
  try {
    json = JSON.parse(text);
  } catch {
    // A page.
  }
  return { status: response.status, headers: response.headers, text, json };
}

/** The rights of a client at the provider: an access token for this audience, or for the provider's choice. */
export async function clientToken(client, secret, audience) {
  const encode = (text) => encodeURIComponent(text);
  const response = await fetch(`${ISSUER}/token`, {
    method: "POST",
    headers: { Authorization: `Basic ${Buffer.from(`${encode(client)}:${encode(secret)}`).toString("base64")}` },
    body: new URLSearchParams({ grant_type: "client_credentials", ...(audience ? { resource: audience } : {}) }),
  });
  const answer = await response.json();
  check(response.ok, `the provider refuses ${client}: ${JSON.stringify(answer)}`);
  return answer.access_token;
}

/** A terminal of a person with a configuration of its own. */
export class Terminal {
  constructor() {
    this.home = mkdtempSync(join(tmpdir(), "fairway-sign-in-"));
    homes.push(this.home);
    this.config = join(this.home, "fairway", "config.toml");
  }

  /** Starts a program; `onCode` gets the address of a device authorization. */
  start(program, words, { environment = {}, onCode } = {}) {
    const path = `${dirname(FAIRWAY)}:${process.env.PATH}`;
    const child = spawn(program, words, {
      cwd: this.home,
      stdio: ["ignore", "pipe", "pipe"],
      env: { PATH: path, HOME: this.home, XDG_CONFIG_HOME: this.home, ...environment },
    });
    const result = { out: "", err: "" };
    const seen = new Set();
    const confirmations = [];
    child.stdout.on("data", (part) => (result.out += part));
    child.stderr.on("data", (part) => {
      result.err += part;
      for (const [, address] of result.err.matchAll(/open (http\S+) in a browser\n/g)) {
        if (seen.has(address) || !onCode) continue;
        seen.add(address);
        confirmations.push(onCode(address).catch((error) => (child.kill(), Promise.reject(error))));
      }
    });
    return new Promise((resolve, reject) => {
      child.on("error", reject);
      child.on("close", (code) => Promise.all(confirmations).then(() => resolve({ ...result, code }), reject));
    });
  }

  async run(words, { code = 0, ...options } = {}) {
    const result = await this.start(FAIRWAY, words, options);
    check(result.code === code, `fairway ${words.join(" ")}: exit code ${result.code}\n${result.out}${result.err}`);
    return result;
  }

  async json(words, options) {
    return JSON.parse((await this.run([...words, "--output", "json"], options)).out);
  }

  hasConfig() {
    return existsSync(this.config);
  }
}

/** Confirms a device authorization in the browser as a person. */
export const confirmDevice = (name) => async (address) => {
  const page = await newPage();
  await page.goto(address);
  // The address carries the code; the person compares it with the terminal's.
  await page.getByRole("button", { name: "Continue" }).click();
  await confirmAtProvider(page, name);
  await page.getByText("Sign-in Success").waitFor();
  await page.context().close();
};

/** The command line of the first administrator, signed in once. */
let administrator;
export async function asAdministrator() {
  if (!administrator) {
    const terminal = new Terminal();
    await terminal.run(["login", "--server", SERVER, "--workspace", WORKSPACE], { onCode: confirmDevice("ada") });
    administrator = terminal;
  }
  return administrator;
}

/** Gives a role in the default workspace, unless the principal has it. */
export async function grant(principal, role) {
  const terminal = await asAdministrator();
  const known = await terminal.json(["role-bindings", "list", "--principal", principal]);
  if (!known.some((binding) => binding.role === role)) await terminal.run(["role-bindings", "create", principal, role]);
}
