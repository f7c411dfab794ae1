// Test fixture of the sign-in tests: a browser, terminals that run the command line, and direct HTTP requests.
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
/** Timeout of each wait for an event, in milliseconds. It is long, because only a hanging test reaches it. */
const TIMEOUT = 60_000;

export function check(condition, message) {
  if (!condition) throw new Error(message);
}
export function equal(actual, expected, message = "") {
  const [actualText, expectedText] = [JSON.stringify(actual), JSON.stringify(expected)];
  check(actualText === expectedText, `${message}: ${actualText} instead of ${expectedText}`);
}
export async function until(condition, message) {
  const end = Date.now() + TIMEOUT;
  while (!(await condition())) {
    check(Date.now() < end, `timed out: ${message}`);
    await pause(50);
  }
}

let browser;
const homeDirectories = [];
/**
 * Defects that pages reported: violations of the content security policy, script errors, and requests to other sites.
 */
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
  for (const directory of homeDirectories) rmSync(directory, { recursive: true, force: true });
}

/** A page in a separate browser profile, which shares no cookies with other pages. */
export async function newPage() {
  const context = await browser.newContext({ locale: "en-GB" });
  const page = await context.newPage();
  const isFairwayPage = () => page.url().startsWith(SERVER);
  page.on("console", (message) => {
    if (isFairwayPage() && /Content Security Policy|Trusted|Uncaught/.test(message.text())) violations.push(`${page.url()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => isFairwayPage() && violations.push(`${page.url()}: ${error}`));
  // The provider's pages load a font from another site; Fairway's pages must load nothing from other sites.
  const isOtherSite = (url) => ![SERVER, ISSUER].includes(url.origin) && !["data:", "blob:"].includes(url.protocol);
  await context.route(isOtherSite, (route) => {
    // The URL of the page may already have changed when a request of the provider's page is reported. Fairway's pages
    // send no `Referer`, so the header tells which page made the request.
    const isFromProvider = route.request().headers().referer?.startsWith(ISSUER);
    if (!isFromProvider) violations.push(`request to ${route.request().url()}`);
    return route.abort();
  });
  page.setDefaultTimeout(TIMEOUT);
  return page;
}

export const look = (page, name) => page.screenshot({ path: join(PICTURES, `sign-in-${name}.png`), fullPage: true });

/**
 * Signs in at the provider with a name, and consents to the client's request unless the person has consented before.
 */
export async function confirmAtProvider(page, name, { hasConsented = false } = {}) {
  await page.getByPlaceholder("Enter any login").fill(name);
  await page.getByPlaceholder("and password").fill("not checked");
  await page.getByRole("button", { name: "Sign-in" }).click();
  if (!hasConsented) await page.getByRole("button", { name: "Continue" }).click();
}

/** Opens a page of Fairway, signs in as a person, and returns the page. */
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
    // The response is an HTML page.
  }
  return { status: response.status, headers: response.headers, text, json };
}

/** An access token by client credentials for this audience, or for the provider's default audience. */
export async function clientToken(client, secret, audience) {
  const encode = (text) => encodeURIComponent(text);
  const response = await fetch(`${ISSUER}/token`, {
    method: "POST",
    headers: { Authorization: `Basic ${Buffer.from(`${encode(client)}:${encode(secret)}`).toString("base64")}` },
    body: new URLSearchParams({ grant_type: "client_credentials", ...(audience ? { resource: audience } : {}) }),
  });
  const document = await response.json();
  check(response.ok, `the provider refuses ${client}: ${JSON.stringify(document)}`);
  return document.access_token;
}

/** A person's terminal with a separate home directory and configuration. */
export class Terminal {
  constructor() {
    this.home = mkdtempSync(join(tmpdir(), "fairway-sign-in-"));
    homeDirectories.push(this.home);
    this.config = join(this.home, "fairway", "config.toml");
  }

  /** Starts a program; calls `onCode` with the address of each device authorization that the program prints. */
  start(program, commandArguments, { environment = {}, onCode } = {}) {
    const path = `${dirname(FAIRWAY)}:${process.env.PATH}`;
    const child = spawn(program, commandArguments, {
      cwd: this.home,
      stdio: ["ignore", "pipe", "pipe"],
      env: { PATH: path, HOME: this.home, XDG_CONFIG_HOME: this.home, ...environment },
    });
    const result = { out: "", err: "" };
    const confirmedAddresses = new Set();
    const confirmations = [];
    child.stdout.on("data", (part) => (result.out += part));
    child.stderr.on("data", (part) => {
      result.err += part;
      for (const [, address] of result.err.matchAll(/open (http\S+) in a browser\n/g)) {
        if (confirmedAddresses.has(address) || !onCode) continue;
        confirmedAddresses.add(address);
        confirmations.push(onCode(address).catch((error) => (child.kill(), Promise.reject(error))));
      }
    });
    return new Promise((resolve, reject) => {
      child.on("error", reject);
      child.on("close", (code) => Promise.all(confirmations).then(() => resolve({ ...result, code }), reject));
    });
  }

  async run(commandArguments, { code = 0, ...options } = {}) {
    const result = await this.start(FAIRWAY, commandArguments, options);
    check(result.code === code, `fairway ${commandArguments.join(" ")}: exit code ${result.code}\n${result.out}${result.err}`);
    return result;
  }

  async json(commandArguments, options) {
    return JSON.parse((await this.run([...commandArguments, "--output", "json"], options)).out);
  }

  hasConfig() {
    return existsSync(this.config);
  }
}

/** Confirms a device authorization in the browser as a person. */
export const confirmDevice = (name) => async (address) => {
  const page = await newPage();
  await page.goto(address);
  // The address contains the user code, which the person compares with the code on the terminal.
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

/** Grants a role in the default workspace, unless the principal already has the role. */
export async function grant(principal, role) {
  const terminal = await asAdministrator();
  const bindings = await terminal.json(["role-bindings", "list", "--principal", principal]);
  if (!bindings.some((binding) => binding.role === role)) await terminal.run(["role-bindings", "create", principal, role]);
}
