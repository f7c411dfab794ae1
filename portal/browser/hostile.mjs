// Browser tests of threats T32 and T33: outputs and themes that try to run code, send requests or block the page.
import { api, canary, check, equal, HOST, look, newPage, pause, script, workload } from "./harness.mjs";
import { run, simple } from "./runs.mjs";

const BAIT = `${HOST}/canary`;
const MARKUP = [
  `<script>fetch("${BAIT}/script")</script>`,
  `<img src="${BAIT}/img" onerror="fetch('${BAIT}/onerror')">`,
  `<svg onload="fetch('${BAIT}/svg')"><a xlink:href="javascript:alert(1)"><text>x</text></a></svg>`,
  `<iframe srcdoc="<script>parent.fetch('${BAIT}/srcdoc')</script>"></iframe>`,
  `<math><mtext></form><form><mglyph><style></math><img src onerror=fetch("${BAIT}/mxss")>`,
  `<link rel=stylesheet href="${BAIT}/css"><style>@import "${BAIT}/import";</style>`,
  `<form action="${BAIT}/form"><button>Send</button></form><meta http-equiv=refresh content="0;url=${BAIT}/meta">`,
  `&lt;script&gt;fetch("${BAIT}/entity")&lt;/script&gt;`,
].join("\n\n");

/** Checks that an output has created no active element and sent no request. */
async function checkInert(page) {
  await pause(300);
  const active = await page.evaluate(() => document.querySelectorAll("main script, main img, main svg, main iframe, main object, main embed, main link, main style, main meta, main form form, main [onerror], main [onload]").length);
  equal(active, 0, "active elements");
  const links = await page.evaluate(() => [...document.querySelectorAll("main a")].map((link) => link.protocol));
  check(links.every((protocol) => ["http:", "https:", "mailto:"].includes(protocol)), `links ${links}`);
  equal(canary, [], "requests of an output");
}

export async function hostile_markdown() {
  await simple("markdown");
  script("hostile-markdown", [
    MARKUP,
    `![pixel](${BAIT}/markdown-image)`,
    `[![nested](${BAIT}/nested)](javascript:alert(1))`,
    "[script](javascript:alert(1)) [data](data:text/html,<script>alert(1)</script>) [tab](java\tscript:alert(1))",
    `[https://bank.example](${BAIT}/disguised) <javascript:alert(1)> <${BAIT}/auto>`,
    `[user](https://bank.example@127.0.0.1/x)`,
    "[ref][r]\n\n[r]: javascript:alert(1)",
    "\u202Etxet desrever\u202C",
  ].join("\n\n"));
  const page = await run("browser-markdown", "hostile-markdown");
  await page.getByText("[image: pixel]").waitFor();
  await checkInert(page);
  const displayedTarget = await page.getByRole("link", { name: "https://bank.example" }).evaluate((link) => link.nextElementSibling.textContent);
  equal(displayedTarget, `(${new URL(HOST).host})`, "a disguised link shows its target");
  equal(await page.getByRole("link", { name: "user", exact: true }).count(), 0, "a link with a user name is text");
  await look(page, "hostile-markdown");
  await page.context().close();
}

export async function hostile_json() {
  await simple("json");
  script("hostile-json", JSON.stringify({ [MARKUP]: MARKUP, list: [MARKUP] }).replace("{", '{"__proto__": {"polluted": true}, "constructor": 1, '));
  const page = await run("browser-json", "hostile-json");
  await page.getByText("__proto__").waitFor();
  await checkInert(page);
  equal(await page.evaluate(() => ({}).polluted), undefined);
  await look(page, "hostile-json");
  await page.context().close();
}

export async function hostile_table() {
  await simple("table");
  script("hostile-table", `[{"__proto__": 1, "constructor": ${JSON.stringify(MARKUP)}, "toString": "x", ${JSON.stringify(MARKUP)}: 2}]`);
  const page = await run("browser-table", "hostile-table");
  await page.getByRole("columnheader", { name: "__proto__" }).waitFor();
  await checkInert(page);
  await page.getByRole("button", { name: "toString" }).click();
  await look(page, "hostile-table");
  await page.context().close();
}

export async function hostile_theme() {
  const id = await simple("text", { slug: "browser-theme" });
  for (const [name, value] of [
    ["accent_color", "red;} body{background:url(//x)"],
    ["accent_color", "expression(alert(1))"],
    ["accent_color", "var(--x, url(//x))"],
    ["background_color", "</style><script>alert(1)</script>"],
    ["background_color", "\\3b red"],
    ["font_family", `url("${BAIT}/font")`],
    ["font_family", "x".repeat(1_000_000 - 100)],
    ["border_radius", "calc(1px + 100vw)"],
  ]) {
    const config = { presentation_mode: "form", theme: { [name]: value } };
    await api("PATCH", `/v1/workloads/${id}`, { interface_config: config }, { status: value.length > 100_000 ? 422 : 422 });
  }
  // A theme value that bypassed the server's validation must not affect more than its own CSS property.
  script("theme", "Themed.");
  const page = await newPage();
  await page.route("**/v1/workloads/by-slug/browser-theme", async (route) => {
    const response = await route.fetch();
    const document = await response.json();
    document.interface_config.theme = {
      accent_color: `url("${BAIT}/accent")`,
      background_color: `red; background-image: url("${BAIT}/background")`,
      font_family: `x; } body { background: url("${BAIT}/font") }`,
      border_radius: "4px !important",
    };
    await route.fulfill({ response, json: document });
  });
  await run("browser-theme", "theme", { page });
  await page.getByText("Themed.").waitFor();
  await checkInert(page);
  await look(page, "hostile-theme", { axe: false });
  await page.context().close();
}

export async function hostile_sizes() {
  await simple("markdown");
  await simple("json");
  await simple("table");
  script("deep-markdown", `${"> ".repeat(20_000)}x\n${"- ".repeat(20_000)}x`);
  script("long-markdown", `${"*a **b ".repeat(10_000)}\n\n${"[".repeat(10_000)}`);
  script("deep-json", `${"[".repeat(5_000)}1${"]".repeat(5_000)}`);
  script("wide-json", JSON.stringify(Array.from({ length: 20_000 }, (_, index) => index)));
  script("long-table", JSON.stringify(Array.from({ length: 5_000 }, (_, index) => ({ n: index, text: "x".repeat(20) }))));
  for (const [slug, marker] of [["browser-markdown", "deep-markdown"], ["browser-markdown", "long-markdown"], ["browser-json", "deep-json"], ["browser-json", "wide-json"], ["browser-table", "long-table"]]) {
    const page = await run(slug, marker);
    await page.getByRole("heading", { name: "Result" }).waitFor();
    // The page must still respond, and its document must stay small.
    const nodes = await page.evaluate(() => document.querySelectorAll("*").length);
    check(nodes < 30_000, `${marker}: ${nodes} elements`);
    await page.getByRole("button", { name: "Clear" }).click();
    await page.getByRole("heading", { name: "Result" }).waitFor({ state: "detached" });
    await page.context().close();
  }
}
