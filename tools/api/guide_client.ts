// Runs the first chapter of the guide with a TypeScript client. Its types are generated from the OpenAPI document, so a
// mismatch is a compile error.
//
// Usage: node guide_client.js ADDRESS

import { randomUUID } from "node:crypto";
import createClient from "openapi-fetch";
import type { components, paths } from "./fairway.js";

type Schemas = components["schemas"];

const address = process.argv[2];
const name = `typescript-${randomUUID().slice(0, 8)}`;
const clientOf = (actor: string) => createClient<paths>({ baseUrl: address, headers: { "X-Actor-Ref": actor } });
const ada = clientOf("user:ada");
const grace = clientOf("user:grace");

/** Returns the body; throws unless the response has this status. */
function expectStatus<T>(result: { data?: T; error?: unknown; response: Response }, status = 200): T {
  if (result.data === undefined || result.response.status !== status) {
    throw new Error(`unexpected response: ${result.response.status} ${JSON.stringify(result.error ?? result.data)}`);
  }
  return result.data;
}

function expectRefusal(result: { error?: Schemas["Error"]; response: Response }, status: number, code: string): Schemas["Error"] {
  if (result.error?.detail.error !== code || result.response.status !== status) {
    throw new Error(`unexpected refusal: ${result.response.status} ${JSON.stringify(result.error)}`);
  }
  return result.error;
}

function expectThat(condition: boolean, value: unknown): void {
  if (!condition) throw new Error(`unexpected value: ${JSON.stringify(value)}`);
}

async function version(asset_kind: Schemas["NewAsset"]["asset_kind"], content: Schemas["NewVersion"]["content"]) {
  const slug = `${name}-${asset_kind.replace("_", "-")}`;
  const asset = expectStatus(await ada.POST("/v1/assets", { body: { slug, asset_kind, owner_ref: "team:support" } }), 201);
  const path = { asset_id: asset.asset_id };
  const assetVersion = expectStatus(await ada.POST("/v1/assets/{asset_id}/versions", { params: { path }, body: { content } }), 201);
  return { asset_kind, asset, assetVersion };
}

const versions = [
  await version("prompt_template", {
    system_prompt: "Say what kind of feedback this is.\nOne of: praise (thanks, love), complaint (broken, late).\nFeedback: $arg:message",
    variables: [{ name: "message", type: "string" }],
  }),
  await version("model_policy", {
    provider_route: { route_id: "local-rules", provider: "local", model: "rules", account_slot: "local", state: "approved" },
  }),
  await version("policy_bundle", {
    rules: [
      { id: "in-dev", condition: 'environment == "dev"', outcome: "allow", reason_code: "dev_feedback" },
      { id: "too-long", condition: "size(inputs.message) > 500", outcome: "deny", reason_code: "too_long" },
    ],
  }),
];

const workload = expectStatus(
  await ada.POST("/v1/workloads", { body: { slug: name, owner_ref: "team:support", invocation_mode: "form" } }),
  201,
);
const { workload_id } = workload;
const policy_bundle_id = versions[2].asset.asset_id;
const release = expectStatus(
  await ada.POST("/v1/releases", { body: { workload_id, environment: "dev", target_lane: "all", policy_bundle_id } }),
  201,
);
const path = { release_id: release.release_id };
for (const { asset_kind, assetVersion } of versions) {
  const body = { role: asset_kind, asset_version_id: assetVersion.asset_version_id };
  expectStatus(await ada.POST("/v1/releases/{release_id}/bindings", { params: { path }, body }), 201);
}

const move = (client: typeof ada, to_state: Schemas["TransitionRequest"]["to_state"]) =>
  client.POST("/v1/releases/{release_id}/transition", { params: { path }, body: { to_state } });

expectStatus(await move(ada, "review_ready"));
expectRefusal(await move(grace, "approved"), 422, "approval_required");
const verdict: Schemas["NewApproval"] = {
  outcome: "approved",
  subject_kind: "release",
  subject_ref: release.release_id,
  note: "Read all three.",
};
expectStatus(await grace.POST("/v1/releases/{release_id}/approvals", { params: { path }, body: verdict }), 201);
expectStatus(await move(grace, "approved"));
expectStatus(await move(grace, "active"));
const active = expectStatus(
  await ada.GET("/v1/workloads/{workload_id}/active-release", {
    params: { path: { workload_id }, query: { environment: "dev" } },
  }),
);
expectThat(active.release_id === release.release_id, active);

const run = (message: string) =>
  ada.POST("/v1/workloads/by-slug/{slug}/execute", {
    params: { path: { slug: name }, header: { "Idempotency-Key": `${name}-${message.length}` } },
    body: { environment: "dev", inputs: { message } },
  });

const first = expectStatus(await run("Thanks, I love it!"));
const repeated = expectStatus(await run("Thanks, I love it!"));
if (!("output" in first)) throw new Error("the run is still running");
expectThat(first.output === "praise" && repeated.execution_id === first.execution_id, { first, repeated });
const execution_id = first.execution_id;
const execution = expectStatus(await ada.GET("/v1/executions/{execution_id}", { params: { path: { execution_id } } }));
expectThat(execution.outcome === "success" && execution.submitted_by === "user:ada", execution);
const denied = expectRefusal(await run("x".repeat(501)), 403, "policy_denied");
const refusal = expectStatus(
  await ada.GET("/v1/executions/{execution_id}", {
    params: { path: { execution_id: String(denied.detail["execution_id"]) } },
  }),
);
expectThat(refusal.reason_code === "too_long", refusal);

const graph = expectStatus(
  await grace.GET("/v1/executions/{execution_id}/evidence-graph", {
    params: { path: { execution_id }, query: { format: "graph" } },
  }),
);
if (!("nodes" in graph)) throw new Error("the response has no graph");
expectThat(graph.nodes.length > 5 && graph.edges.length > 5, graph);

const page = await ada.GET("/v1/assets", { params: { query: { limit: 2 } } });
expectThat(expectStatus(page).length === 2 && (page.response.headers.get("link") ?? "").includes('rel="next"'), page.data);
const events = expectStatus(await grace.GET("/v1/audit/events", { params: { query: { limit: 5 } } }));
expectThat(events.length === 5 && events[0].index > events[4].index, events);
const nobody = { workload_id: randomUUID() };
expectRefusal(await ada.GET("/v1/workloads/{workload_id}", { params: { path: nobody } }), 404, "not_found");
console.log(`typescript: ${name} answered \`${String(first.output)}\`; its evidence graph has ${graph.nodes.length} nodes`);
