// Browser tests of the access to runtime pages: refusals, share links, anonymous visitors and rate limits.
import { api, check, equal, look, newPage, pause, script, SERVER, until, workload } from "./harness.mjs";
import { visit } from "./forms.mjs";
import { run, simple } from "./runs.mjs";

const MESSAGE = [{ name: "message", label: "Message", type: "text", required: true }];

export async function denied() {
  const rules = [{ id: "none", condition: "always", outcome: "deny", reason_code: "not_today" }];
  await simple("text", { slug: "browser-denied", rules });
  const page = await run("browser-denied", "denied");
  await page.getByText("The rules of this workload do not allow this request. Reason: not_today").waitFor();
  await page.getByText("Request number: ").waitFor();
  await page.getByText("Run number: ").waitFor();
  await look(page, "denied");
  await page.context().close();
}

/** Creates a workload for holders of share links, and one of its links. */
async function linked(slug, link = { max_uses: 1 }) {
  const config = { presentation_mode: "form", access_mode: "link_shared", input_fields: MESSAGE };
  const id = await workload(slug, config, { name: "By link" });
  return { id, link: await api("POST", `/v1/workloads/${id}/share-links`, link) };
}

export async function share_link() {
  script("linked", "For the holder of the link.");
  const { link } = await linked("browser-linked");
  const page = await newPage();
  const tokens = [];
  page.on("request", (request) => {
    if (request.url().includes("token=") && !request.isNavigationRequest()) tokens.push(request.url());
    const headers = request.headers();
    if (headers["x-actor-ref"] && request.url().includes("/v1/")) tokens.push("an actor beside the token");
  });
  await visit(page, "browser-linked", `?token=${link.token}`);
  equal(new URL(page.url()).search, "", "the token is not in the address");
  check(!(await page.getByLabel("Act as").isVisible()), "a link acts as nobody else");
  await page.getByLabel("Message").fill("[[linked]]");
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByText("For the holder of the link.").waitFor();
  await look(page, "share-link");
  // The tab still has the link's token and the result, although the link permits no further run.
  await page.reload();
  await page.getByText("For the holder of the link.").waitFor();
  await page.getByLabel("Message").fill("[[linked]]");
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByText("This link has been used as often as it may be.").waitFor();
  await look(page, "share-link-used");
  equal(tokens, [], "requests carry the token as a header, alone");
  await page.context().close();
  const unlinkedPage = await newPage();
  await visit(unlinkedPage, "browser-linked");
  await unlinkedPage.getByLabel("Act as").fill("anonymous");
  await unlinkedPage.getByRole("button", { name: "Switch" }).click();
  await unlinkedPage.getByText("This page needs a link with access.").waitFor();
  await look(unlinkedPage, "share-link-missing");
  await visit(unlinkedPage, "browser-linked", "?token=%E6%97%A5%0A");
  await unlinkedPage.getByText("This link does not give access.").waitFor();
  await unlinkedPage.context().close();
}

export async function revoked_link() {
  const { id, link } = await linked("browser-revoked", { max_uses: 3 });
  const page = await newPage();
  await visit(page, "browser-revoked", `?token=${link.token}`);
  await page.getByLabel("Message").fill("[[linked]]");
  await api("DELETE", `/v1/workloads/${id}/share-links/${link.share_link_id}`);
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByText("This link was withdrawn.").waitFor();
  await look(page, "share-link-revoked");
  await page.context().close();
}

/** Opens a page as an anonymous visitor. */
async function visitor(slug) {
  const page = await newPage();
  await page.goto(`${SERVER}/workload-runtime`);
  await page.evaluate(() => localStorage.setItem("fairway.actor", "anonymous"));
  await visit(page, slug);
  return page;
}

export async function anonymous() {
  script("anonymous", "For anyone.");
  const config = { presentation_mode: "form", access_mode: "public", input_fields: MESSAGE };
  await workload("browser-public", config, { name: "For anyone" });
  const page = await visitor("browser-public");
  await page.getByLabel("Message").fill("[[anonymous]]");
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByText("For anyone.").waitFor();
  const stores = await page.evaluate(() => [JSON.stringify({ ...sessionStorage }), JSON.stringify({ ...localStorage })]);
  check(stores[0].includes("resultToken") && !stores[1].includes("resultToken"), "the result token lives in the tab only");
  await page.reload();
  await page.getByText("For anyone.").waitFor();
  await look(page, "anonymous");
  const otherTab = await page.context().newPage();
  await visit(otherTab, "browser-public");
  await pause(300);
  check(!(await otherTab.getByText("For anyone.", { exact: true }).last().isVisible().catch(() => false)) || (await otherTab.locator("[data-state]").count()) === 0, "another tab does not show the result");
  await page.context().close();
}

export async function rate_limit() {
  const config = { presentation_mode: "form", access_mode: "public", input_fields: MESSAGE };
  await workload("browser-limited", config);
  const page = await visitor("browser-limited");
  for (let count = 0; count < 40; count += 1) {
    const { status } = await fetch(`${SERVER}/v1/workloads/by-slug/browser-limited`, { headers: { "X-Actor-Ref": "anonymous" } });
    if (status === 429) break;
  }
  await page.getByLabel("Message").fill("[[anonymous]]");
  await page.getByRole("button", { name: "Run" }).click();
  await page.locator("[data-code=rate_limited]").waitFor();
  await page.getByText("Too many requests came from your network.").waitFor();
  check(/You can try again (in \d+ s|now)\./.test(await page.getByTestId("countdown").textContent()), "a countdown");
  await look(page, "rate-limit");
  await page.getByText("You can try again now.").waitFor();
  await page.getByRole("button", { name: "Try again" }).click();
  await page.locator("[data-code=rate_limited]").waitFor({ state: "detached" });
  await page.context().close();
}

export async function unknown() {
  const page = await newPage();
  await visit(page, "no-such-workload");
  await page.getByText("This workload does not exist, or you may not see it.").waitFor();
  await look(page, "unknown");
  await page.context().close();
}

export async function suspended() {
  const id = await workload("browser-suspended", { presentation_mode: "form", input_fields: MESSAGE });
  await api("PATCH", `/v1/workloads/${id}`, { status: "suspended" });
  const page = await run("browser-suspended", "x");
  await page.getByText("This workload is paused.").waitFor();
  await look(page, "suspended");
  await page.context().close();
}

export async function no_release() {
  const created = await api("POST", "/v1/workloads", { slug: "browser-bare", owner_ref: "team:browser", invocation_mode: "form" });
  await api("PATCH", `/v1/workloads/${created.workload_id}`, { interface_config: { presentation_mode: "form", input_fields: MESSAGE } });
  const page = await newPage();
  await visit(page, "browser-bare");
  await page.getByText("No release of this workload is active").waitFor();
  await look(page, "no-release");
  await page.context().close();
}

export async function environment_choice() {
  const id = await workload("browser-choice", { presentation_mode: "form", input_fields: MESSAGE });
  const [release] = await api("GET", `/v1/workloads/${id}/releases`);
  const { bindings } = await api("GET", `/v1/releases/${release.release_id}`);
  const testRelease = await api("POST", "/v1/releases", { workload_id: id, environment: "test", target_lane: "all" });
  const path = `/v1/releases/${testRelease.release_id}`;
  for (const { asset_version_id, role } of bindings) await api("POST", `${path}/bindings`, { asset_version_id, role });
  await api("POST", `${path}/transition`, { to_state: "review_ready" });
  await api("POST", `${path}/approvals`, { outcome: "approved", subject_kind: "release", subject_ref: testRelease.release_id }, { as: "user:demo-approver" });
  for (const to_state of ["approved", "active"]) await api("POST", `${path}/transition`, { to_state }, { as: "user:demo-approver" });
  const page = await newPage();
  await visit(page, "browser-choice");
  await page.getByLabel("Environment").waitFor();
  equal(await page.getByLabel("Environment").locator("option").allTextContents(), ["Choose …", "dev", "test"]);
  await look(page, "environment-choice");
  await page.getByLabel("Environment").selectOption("test");
  await page.getByLabel("Message").fill("[[x]]");
  const executeRequest = page.waitForRequest((request) => request.url().endsWith("/execute"));
  await page.getByRole("button", { name: "Run" }).click();
  equal((await executeRequest).postDataJSON().environment, "test");
  await visit(page, "browser-choice", "?environment=dev");
  check(!(await page.getByLabel("Environment").isVisible()), "the address chooses");
  await page.context().close();
}
