// Sign-in tests of people in browsers. Each exported function is one test.
import { check, cookieOf, equal, grant, look, request, signIn, until, newPage, confirmAtProvider } from "./harness.mjs";
import { ISSUER, SERVER } from "./settings.mjs";
import * as provider from "./provider.mjs";

const FORM = "/workload-runtime/ticket-classifier?environment=dev";
const EXECUTE = "/v1/workloads/by-slug/ticket-classifier/execute";
const session = (page) => page.evaluate(async () => (await fetch("/v1/session")).json());

/** Two people in different groups have different roles, which determine what they can see and run. */
export async function two_people() {
  await grant("group:support", "runtime_user");
  const bob = await signIn("bob");
  await bob.getByText("Signed in as Bob <Desk>").waitFor();
  await bob.getByRole("link", { name: "Ticket classifier" }).waitFor();
  await look(bob, "gallery");
  const bobSession = await session(bob);
  equal([bobSession.actor, bobSession.groups, bobSession.roles.map(({ role }) => role)], ["user:bob", ["group:all-staff", "group:support"], ["runtime_user"]]);
  check(!bobSession.permissions.includes("platform.manage"), "support administers the platform");
  const cookie = await cookieOf(bob);
  check(cookie.httpOnly && cookie.secure && cookie.sameSite === "Lax" && cookie.path === "/", JSON.stringify(cookie));

  const ada = await signIn("ada");
  const adaSession = await session(ada);
  // Ada is a bootstrap administrator. The test `chapter` may also have granted the same role to her group, so that the
  // role can occur twice.
  equal([adaSession.actor, adaSession.groups, [...new Set(adaSession.roles.map(({ role }) => role))]], ["user:ada", ["group:platform"], ["platform_admin"]]);

  await bob.goto(SERVER + FORM);
  await bob.getByLabel("Ticket").fill("I was charged twice, please send a refund.");
  await bob.getByRole("button", { name: "Run" }).click();
  await bob.getByRole("heading", { name: "Result" }).waitFor();
  await look(bob, "run");
  const runs = await ada.evaluate(async () => (await fetch("/v1/executions?limit=1")).json());
  equal(runs[0].submitted_by, "user:bob");
  await bob.context().close();
  await ada.context().close();
}

/** A sign-out ends the session at Fairway and at the provider. The old session cookie is refused from then on. */
export async function sign_out() {
  await grant("group:support", "runtime_user");
  for (const path of [FORM, "/console"]) await signOutFrom(path);
}

async function signOutFrom(path) {
  const page = await signIn("bob");
  await page.goto(SERVER + path);
  const cookie = (await cookieOf(page)).value;
  equal((await request("GET", "/v1/session", { cookie })).json.actor, "user:bob");
  await page.getByRole("button", { name: "Sign out" }).click();
  // The provider asks whether the sign-out should end the provider's session too.
  await page.getByRole("button", { name: "Yes, sign me out" }).click();
  await page.getByRole("heading", { name: "You are signed out" }).waitFor();
  await look(page, "signed-out");
  equal(await cookieOf(page), undefined);
  const reused = await request("GET", "/v1/session", { cookie });
  equal([reused.status, reused.json.detail.error], [401, "unauthenticated"]);
  // The provider's session has ended, so the next sign-in asks for the name again.
  await page.getByRole("link").first().click();
  await page.getByPlaceholder("Enter any login").waitFor();
  await page.context().close();
}

/** A sign-out at the provider ends the session at Fairway by the provider's back-channel request alone. */
export async function backchannel_logout() {
  await grant("group:support", "runtime_user");
  const page = await signIn("bob");
  const otherPage = await signIn("bob");
  const [cookie, otherCookie] = [(await cookieOf(page)).value, (await cookieOf(otherPage)).value];
  const logouts = provider.confirmedLogouts;
  await page.goto(`${ISSUER}/session/end`);
  await page.getByRole("button", { name: "Yes, sign me out" }).click();
  await until(() => provider.confirmedLogouts > logouts, "the provider's logout");
  equal((await request("GET", "/v1/session", { cookie })).status, 401);
  equal((await request("GET", "/v1/session", { cookie: otherCookie })).status, 200, "another session of the same person");
  await page.goto(`${SERVER}/workload-runtime`);
  await page.getByRole("link", { name: "Sign in" }).waitFor();
  await page.context().close();
  await otherPage.context().close();
  // A logout token without the provider's signature is refused and ends no session.
  const forged = await fetch(`${SERVER}/sign-out/backchannel`, { method: "POST", body: new URLSearchParams({ logout_token: "e30.e30.AA" }) });
  equal(forged.status, 400);
}

/** A session cookie without the CSRF token permits no change, and other sites cannot use the cookie. */
export async function stolen_cookie() {
  await grant("group:support", "runtime_user");
  const page = await signIn("bob");
  const cookie = (await cookieOf(page)).value;
  const { csrf_token: csrf } = (await request("GET", "/v1/session", { cookie })).json;
  const body = { environment: "dev", inputs: { ticket: "a refund" } };
  for (const wrong of [undefined, "", csrf.slice(1), `${csrf}0`, cookie]) {
    const refused = await request("POST", EXECUTE, { cookie, csrf: wrong, body });
    equal([refused.status, refused.json.detail.error], [403, "csrf_token_invalid"], String(wrong));
  }
  const foreign = await request("POST", EXECUTE, { cookie, csrf, body, headers: { Origin: ISSUER } });
  equal([foreign.status, foreign.json.detail.error], [403, "cross_site_request"]);
  const form = await fetch(`${SERVER}/sign-out`, { method: "POST", redirect: "manual", headers: { Cookie: `__Host-fairway-session=${cookie}` }, body: new URLSearchParams({ csrf_token: "x" }) });
  equal(form.status, 403);
  equal((await request("POST", EXECUTE, { cookie, csrf, body })).status, 200, "with its token");
  await page.context().close();
}

/** A caller that only knows the URL of a sign-in callback, or repeats the callback, receives no session. */
export async function foreign_callback() {
  const page = await newPage();
  let callback;
  page.on("request", (request) => {
    if (request.url().startsWith(`${SERVER}/sign-in/callback`)) callback = request.url();
  });
  await page.goto(`${SERVER}/sign-in?return_to=//evil.example`);
  await confirmAtProvider(page, "bob");
  // A return target of another site is replaced.
  await page.waitForURL(`${SERVER}/workload-runtime`);
  check(callback, "the browser was not sent to the callback");
  const otherPage = await newPage();
  for (const visitor of [otherPage, page]) {
    await visitor.goto(callback);
    await visitor.getByRole("heading", { name: "Sign-in failed" }).waitFor();
  }
  equal(await cookieOf(otherPage), undefined);
  await otherPage.context().close();
  await page.context().close();
}

/** While the provider is down, sessions stay valid and sign-outs work. After its restart people can sign in again. */
export async function provider_down() {
  await grant("group:support", "runtime_user");
  const page = await signIn("bob");
  await provider.stop();
  try {
    await page.goto(SERVER + FORM);
    await page.getByLabel("Ticket").fill("refund");
    await page.getByRole("button", { name: "Run" }).click();
    await page.getByRole("heading", { name: "Result" }).waitFor();
    // The sign-out at Fairway does not wait for the provider.
    await page.getByRole("button", { name: "Sign out" }).click();
    await until(async () => (await cookieOf(page)) === undefined, "the end of the session");
    const callback = `${SERVER}/sign-in/callback?code=x&state=y`;
    equal((await request("GET", callback)).status, 400, "a callback without a sign-in");
  } finally {
    await provider.start();
  }
  await page.context().close();
  await (await signIn("bob")).context().close();
}

/** An administrator uses the page `/sign-in/test`, and stays signed in. */
export async function test_sign_in() {
  await grant("group:support", "runtime_user");
  const visitor = await newPage();
  await visitor.goto(`${SERVER}/sign-in/test`);
  await visitor.getByRole("heading", { name: "Sign in first" }).waitFor();
  await visitor.context().close();
  const bob = await signIn("bob");
  await bob.goto(`${SERVER}/sign-in/test`);
  await bob.getByText("platform.manage").waitFor();
  await bob.context().close();

  const page = await signIn("ada");
  const cookie = (await cookieOf(page)).value;
  await page.goto(`${SERVER}/sign-in/test`);
  await page.getByRole("link", { name: "localhost" }).click();
  await confirmAtProvider(page, "ada", { hasConsented: true });
  await page.getByText("A sign-in would succeed.").waitFor();
  const text = await page.locator("main").innerText();
  for (const line of ["the subject is pinned as user:ada", "group:platform", "platform_admin on platform", "Ada Lovelace", "ada@people.example"]) {
    check(text.includes(line), `the report lacks ${line}:\n${text}`);
  }
  await look(page, "test");
  equal((await cookieOf(page)).value, cookie, "the session of the administrator");
  // The test sends the request outside the browser, because the content security policy of the page permits no script.
  const isStillAda = async () => equal((await request("GET", "/v1/session", { cookie })).json.actor, "user:ada");
  await isStillAda();
  // The provider permits one account for each browser. A sign-in with another account ends the administrator's
  // session, so the page shows no claims.
  await page.getByRole("link", { name: "Test again" }).click();
  await page.getByRole("link", { name: "localhost" }).click();
  await confirmAtProvider(page, "bob");
  await page.getByRole("heading", { name: "Sign in first" }).waitFor();
  check(!(await page.locator("main").innerText()).includes("Bob"), "claims without an administrator");
  equal((await request("GET", "/v1/session", { cookie })).status, 401);
  await page.context().close();
}
