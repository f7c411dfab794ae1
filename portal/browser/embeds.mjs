// Browser tests of runtime pages that are embedded in frames of other sites.
import { api, check, equal, HOST, hostPage, look, newPage, script, SERVER, THIRD_ORIGIN, until, workload } from "./harness.mjs";
import { readFileSync } from "node:fs";
import { FIELDS } from "./forms.mjs";

const GUIDE = new URL("../../docs/guide/runtime-pages.md", import.meta.url);

/** The embedding snippet of the guide, adapted to this server and slug. */
function snippet(slug, query = "") {
  const text = readFileSync(GUIDE, "utf8").match(/```html\n([\s\S]*?)```/)?.[1];
  check(text, "the guide has no snippet");
  return text.replaceAll("https://fairway.example", SERVER).replaceAll("ticket-classifier", slug + query);
}
const page = (html) => `<!doctype html><html lang="en"><title>Host</title><meta charset="utf-8"><body><h1>Another site</h1>${html}</body></html>`;

export async function embed_handshake() {
  script("embedded", "Shown in the frame.\n".repeat(20));
  const config = { presentation_mode: "form", access_mode: "public", input_fields: [FIELDS[0]], theme: { accent_color: "#7b1fa2", background_color: "#fff8e1", border_radius: "14px", font_family: "Georgia, serif" } };
  await workload("browser-embed", config, { name: "Embedded" });
  hostPage("/embed", page(snippet("browser-embed")));
  const host = await newPage();
  await host.goto(`${HOST}/embed`);
  await host.evaluate(() => {
    globalThis.received = [];
    addEventListener("message", (event) => globalThis.received.push({ origin: event.origin, ...event.data }));
    // Sends messages before the handshake: the snippet must queue them in order.
    globalThis.fairway.reset();
    globalThis.fairway.setInputs({ message: "early" });
  });
  const frame = host.frameLocator("iframe");
  await frame.getByRole("heading", { name: "Embedded" }).waitFor();
  equal(await frame.getByLabel("Act as").count(), 0, "an embed has no chrome");
  await until(async () => (await frame.getByLabel("Message").inputValue()) === "early", "messages before the handshake arrive after it");
  const before = (await host.locator("iframe").boundingBox()).height;
  await host.evaluate(() => globalThis.fairway.setInputs({ message: "[[embedded]]", unknown: "x" }));
  await until(async () => (await frame.getByLabel("Message").inputValue()) === "[[embedded]]", "setInputs fills the form");
  await frame.getByRole("button", { name: "Run" }).click();
  await frame.getByRole("region", { name: "Result" }).waitFor();
  await until(async () => (await host.locator("iframe").boundingBox()).height > before, "the frame grows with its content");
  const ended = () => host.evaluate(() => globalThis.received.find((message) => message.type === "fairway:ended"));
  await until(async () => (await ended()) !== undefined, "the host hears of the end");
  equal((await ended()).status, "completed");
  const inner = host.frames().find((candidate) => candidate.url().startsWith(SERVER));
  await look(host, "embed", { frame: inner });
  await host.evaluate(() => globalThis.fairway.reset());
  await until(async () => (await frame.getByLabel("Message").inputValue()) === "", "reset clears the form");
  // Messages to the embedding page must not contain inputs or outputs.
  const all = JSON.stringify(await host.evaluate(() => globalThis.received));
  check(!all.includes("Shown in the frame"), "no output leaves the frame");
  await host.context().close();
}

export async function embed_themed() {
  const response = await fetch(`${SERVER}/browser-embed`);
  const html = await response.text();
  check(/<style nonce="[0-9a-f]{32}">#root \{ --svc-accent: #7b1fa2; --svc-bg: #fff8e1; --svc-font: Georgia, serif; --svc-radius: 14px; \}<\/style>/.test(html), "the document carries the theme");
  const direct = await newPage({ colorScheme: "dark" });
  await direct.goto(`${SERVER}/browser-embed`);
  await direct.getByRole("button", { name: "Run" }).waitFor();
  const colors = await direct.evaluate(() => {
    const style = (element) => getComputedStyle(element);
    const button = style(document.querySelector("button[type=submit]"));
    const root = style(document.getElementById("root"));
    return [root.backgroundColor, root.color, root.fontFamily, button.backgroundColor, button.borderTopLeftRadius];
  });
  equal(colors, ["rgb(255, 248, 225)", "rgb(26, 29, 33)", "Georgia, serif", "rgb(123, 31, 162)", "14px"], "a light theme has dark text, also in dark mode");
  await look(direct, "embed-themed");
  await direct.context().close();
}

export async function embed_refused() {
  const id = await workload("browser-link", { presentation_mode: "form", access_mode: "link_shared", input_fields: [FIELDS[0]] }, { name: "Embedded by link" });
  const link = await api("POST", `/v1/workloads/${id}/share-links`, {});
  hostPage("/embed-link", page(snippet("browser-link", `?token=${link.token}`)));
  const host = await newPage();
  await host.goto(`${HOST}/embed-link`);
  await host.frameLocator("iframe").getByRole("heading", { name: "Embedded by link" }).waitFor();
  const inner = host.frames().find((candidate) => candidate.url().startsWith(SERVER));
  check(!inner.url().includes("token"), "the token is not in the frame's address");
  await api("DELETE", `/v1/workloads/${id}/share-links/${link.share_link_id}`);
  await host.reload();
  await host.frameLocator("iframe").getByRole("heading", { name: "No access" }).waitFor();
  await look(host, "embed-refused", { axe: false });
  const response = await fetch(`${SERVER}/browser-link`);
  equal(response.status, 401);
  await host.context().close();
}

/** Whether a page shows a frame of this address. */
async function isFramed(origin, path, address) {
  hostPage(path, page(`<iframe title="x" src="${address}"></iframe>`));
  const host = await newPage({ expectsViolations: true });
  await host.goto(origin + path);
  const loaded = host.frames()[1];
  await until(() => loaded.url() !== "" && loaded.url() !== "about:blank", "the frame has loaded or was blocked");
  await host.waitForLoadState("networkidle");
  const isShown = loaded.url().startsWith(SERVER) && (await loaded.locator("h1, body :text('ok')").count().catch(() => 0)) > 0;
  await host.context().close();
  return isShown;
}

export async function embed_stranger() {
  check(await isFramed(HOST, "/framed", `${SERVER}/browser-embed`), "a listed origin may frame the page");
  check(!(await isFramed(THIRD_ORIGIN, "/framed-by-stranger", `${SERVER}/browser-embed`)), "an unlisted origin may not");
}

export async function no_other_page_framed() {
  for (const path of ["/workload-runtime", "/workload-runtime/browser-embed", "/docs/", "/browser-text"]) {
    check(!(await isFramed(HOST, `/framed${path.replaceAll("/", "-")}`, SERVER + path)), `${path} cannot be framed`);
    const response = await fetch(SERVER + path);
    check(response.headers.get("content-security-policy").includes("frame-ancestors 'none'"), path);
  }
}
