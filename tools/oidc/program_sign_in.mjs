// Sign-in tests of programs: the command line of a person, a pipeline, an MCP client, and the commands of
// docs/operations/sign-in.md. Each exported function is one test.
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { asAdministrator, check, clientToken, confirmDevice, equal, grant, request, Terminal, until } from "./harness.mjs";
import { ISSUER, required, SECRETS, SERVER, WORKSPACE } from "./settings.mjs";
import * as provider from "./provider.mjs";

const SETTINGS_CHAPTER = new URL("../../docs/operations/sign-in.md", import.meta.url);
const METADATA = "/.well-known/oauth-protected-resource";
const TICKET = { environment: "dev", inputs: { ticket: "I was charged twice, please send a refund." } };
const EXECUTE = "/v1/workloads/by-slug/ticket-classifier/execute";

/** The shell commands of docs/operations/sign-in.md succeed unchanged, except for the addresses of this run. */
export async function chapter() {
  const text = readFileSync(SETTINGS_CHAPTER, "utf8");
  const blocks = [...text.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, block]) => block);
  check(blocks.length >= 3, "the chapter has commands");
  const script = blocks.join("\n").replaceAll("https://fairway.example", SERVER);
  const terminal = new Terminal();
  writeFileSync(join(terminal.home, "ci.secret"), SECRETS.ci);
  const result = await terminal.start("bash", ["-euc", script], { onCode: confirmDevice("ada") });
  check(result.code === 0, `the chapter fails:\n${result.out}${result.err}`);
  for (const expected of ["user:ada at", "platform_admin", "service:ci at", "billing", "deleted the tokens"]) {
    check(result.out.includes(expected), `the chapter does not show ${expected}:\n${result.out}${result.err}`);
  }
}

/** A person signs in on a terminal, makes a change that the audit log attributes to them, and signs out. */
export async function command_line() {
  await grant("group:support", "runtime_user");
  const terminal = new Terminal();
  await terminal.run(["login", "--server", SERVER, "--workspace", WORKSPACE], { onCode: confirmDevice("bob") });
  equal(statSync(terminal.config).mode & 0o777, 0o600, "the mode of the file with tokens");
  equal((await terminal.json(["whoami"])).actor, "user:bob");
  const refused = await terminal.run(["role-bindings", "create", "user:eve", "viewer"], { code: 1 });
  check(refused.err.includes("workspace.manage"), refused.err);
  const administrator = await asAdministrator();
  const binding = await administrator.json(["role-bindings", "create", "user:bob", "author"]);
  // The next request with the same token has the new role.
  const slug = `made-by-bob-${Date.now()}`;
  await terminal.run(["workloads", "create", slug, "--owner", "user:bob"]);
  // The server adds facts to the log in the background, after their commit.
  await until(async () => {
    const events = (await request("GET", "/v1/audit/events?limit=50", { token: tokenOf(administrator) })).json;
    return events.some((event) => event.kind === "workload.created" && event.actor === "user:bob");
  }, "the audit log names bob");
  await administrator.run(["role-bindings", "delete", binding.role_binding_id]);
  const revoked = await terminal.run(["workloads", "create", `${slug}-2`, "--owner", "user:bob"], { code: 1 });
  check(revoked.err.includes("workload.create"), revoked.err);
  const token = tokenOf(terminal);
  const logout = await terminal.run(["logout"]);
  check(logout.out.includes("deleted the tokens"), logout.out);
  check(!readFileSync(terminal.config, "utf8").includes("token"), "the file still has tokens");
  check(token.split(".").length === 3, "access tokens of this provider are JWTs");
  const after = await terminal.run(["whoami"], { code: 1 });
  check(after.err.includes("unauthenticated"), after.err);
}

/** The access token that a terminal stores. */
const tokenOf = (terminal) => readFileSync(terminal.config, "utf8").match(/^token = "(.*)"$/m)[1];

/** A pipeline signs in by client credentials, and has the roles of its service name and groups. */
export async function service() {
  const environment = { FAIRWAY_CLIENT_ID: "ci", FAIRWAY_CLIENT_SECRET: SECRETS.ci, FAIRWAY_CLI_SERVER: SERVER };
  const terminal = new Terminal();
  const caller = await terminal.json(["whoami"], { environment });
  equal([caller.actor, caller.groups], ["service:ci", ["group:pipelines"]]);
  await grant("group:pipelines", "runtime_user");
  const token = await clientToken("ci", SECRETS.ci, SERVER);
  equal(JSON.parse(Buffer.from(token.split(".")[0], "base64url")).typ, "at+jwt");
  const run = await request("POST", EXECUTE, { token, body: TICKET });
  equal([run.status, run.json.status], [200, "completed"], run.text);
  check(!terminal.hasConfig(), "a pipeline stores nothing");
  const wrong = await terminal.run(["whoami"], { code: 1, environment: { ...environment, FAIRWAY_CLIENT_SECRET: "wrong-secret" } });
  check(wrong.err.includes("invalid_client") && !wrong.err.includes("wrong-secret"), wrong.err);
  const withActorHeader = await request("GET", "/v1/session", { token, headers: { "X-Actor-Ref": "user:ada" } });
  equal([withActorHeader.status, withActorHeader.json.detail.error], [403, "actor_ref_not_allowed"]);
}

/** An MCP client discovers the token endpoint from the 401 response. A token for another audience is refused. */
export async function mcp() {
  await grant("service:assistant", "runtime_user");
  const challenged = await request("POST", "/mcp", { body: {} });
  equal(challenged.status, 401);
  const address = challenged.headers.get("www-authenticate").match(/resource_metadata="([^"]+)"/)[1];
  equal(address, SERVER + METADATA);
  const metadata = (await request("GET", address)).json;
  equal([metadata.resource, metadata.authorization_servers], [SERVER, [ISSUER]]);
  const clientArguments = [new URL("mcp_client.py", import.meta.url).pathname, `${SERVER}/mcp`, ISSUER, "assistant", SECRETS.assistant];
  const result = await new Terminal().start(required("OIDC_PYTHON"), clientArguments, { environment: { PYTHONDONTWRITEBYTECODE: "1" } });
  check(result.code === 0, `the MCP client fails:\n${result.out}${result.err}`);
  const [status, execution] = result.out.trim().split(" ");
  equal(status, "completed");
  const executionResponse = await request("GET", `/v1/executions/${execution}`, { token: tokenOf(await asAdministrator()) });
  equal(executionResponse.json.submitted_by, "service:assistant", executionResponse.text);
  const foreign = await clientToken("assistant", SECRETS.assistant, provider.OTHER_AUDIENCE);
  for (const path of ["/mcp", EXECUTE]) {
    const refused = await request("POST", path, { token: foreign, body: {} });
    equal([refused.status, refused.json.detail.error], [401, "unauthenticated"], path);
    check(refused.headers.get("www-authenticate").includes('error="invalid_token"'), "the challenge");
    check(!/audience/i.test(refused.text), "a refusal tells no rule");
  }
}

/**
 * While the provider is down, tokens signed by known keys are accepted, and tokens signed by unknown keys are refused.
 */
export async function known_keys() {
  await grant("group:pipelines", "runtime_user");
  const token = await clientToken("ci", SECRETS.ci, SERVER);
  equal((await request("GET", "/v1/session", { token })).status, 200);
  await provider.stop();
  try {
    const fresh = await request("POST", EXECUTE, { token, body: TICKET });
    equal(fresh.status, 200, fresh.text);
    const [, ...otherParts] = token.split(".");
    const header = Buffer.from(JSON.stringify({ alg: "ES256", typ: "at+jwt", kid: "unknown" })).toString("base64url");
    const unknown = await request("GET", "/v1/session", { token: [header, ...otherParts].join(".") });
    // The server does not reread the key set within a short time, and then refuses the unknown key with 401.
    // Otherwise it tries to read the key set, fails, and responds with 503.
    check([401, 503].includes(unknown.status), `an unknown key gets ${unknown.status}`);
    check(unknown.status === 401 || unknown.headers.has("retry-after"), "Retry-After");
    const failed = await new Terminal().run(["whoami"], {
      code: 3,
      environment: { FAIRWAY_CLIENT_ID: "ci", FAIRWAY_CLIENT_SECRET: SECRETS.ci, FAIRWAY_CLI_SERVER: SERVER },
    });
    check(!failed.err.includes(SECRETS.ci), "the error shows the secret");
  } finally {
    await provider.start();
  }
}
