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
const acting = (actor: string) => createClient<paths>({ baseUrl: address, headers: { "X-Actor-Ref": actor } });
const ada = acting("user:ada");
const grace = acting("user:grace");

/** Returns the body; throws unless the response has this status. */
function told<T>(answer: { data?: T; error?: unknown; response: Response }, status = 200): T {
  if (answer.data === undefined || answer.response.status !== status) {
    throw new Error(`unexpected response: ${answer.response.status} ${JSON.stringify(answer.error ?? answer.data)}`);
  }
  return answer.data;
}

function refused(answer: { error?: Schemas["Error"]; response: Response }, status: number, code: string): Schemas["Error"] {
  if (answer.error?.detail.error !== code || answer.response.status !== status) {
    throw new Error(`unexpected refusal: ${answer.response.status} ${JSON.stringify(answer.error)}`);
  }
  return answer.error;
}

function holds(what: boolean, of: unknown): void {
  if (!what) throw new Error(`unexpected value: ${JSON.stringify(of)}`);
}

async function version(asset_kind: Schemas["NewAsset"]["asset_kind"], content: Schemas["NewVersion"]["content"]) {
  const slug = `${name}-${asset_kind.replace("_", "-")}`;
  const asset = told(await ada.POST("/v1/assets", { body: { slug, asset_kind, owner_ref: "team:support" } }), 201);
  const path = { asset_id: asset.asset_id };
  const made = told(await ada.POST("/v1/assets/{asset_id}/versions", { params: { path }, body: { content } }), 201);
  return { asset_kind, asset, made };
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

const workload = told(
  await ada.POST("/v1/workloads", { body: { slug: name, owner_ref: "team:support", invocation_mode: "form" } }),
  201,
);
const { workload_id } = workload;
const policy_bundle_id = versions[2].asset.asset_id;
const release = told(
  await ada.POST("/v1/releases", { body: { workload_id, environment: "dev", target_lane: "all", policy_bundle_id } }),
  201,
);
const path = { release_id: release.release_id };
for (const { asset_kind, made } of versions) {
  const body = { role: asset_kind, asset_version_id: made.asset_version_id };
  told(await ada.POST("/v1/releases/{release_id}/bindings", { params: { path }, body }), 201);
}

const move = (client: typeof ada, to_state: Schemas["TransitionRequest"]["to_state"]) =>
  client.POST("/v1/releases/{release_id}/transition", { params: { path }, body: { to_state } });

told(await move(ada, "review_ready"));
refused(await move(grace, "approved"), 422, "approval_required");
const verdict: Schemas["NewApproval"] = {
  outcome: "approved",
  subject_kind: "release",
  subject_ref: release.release_id,
  note: "Read all three.",
};
told(await grace.POST("/v1/releases/{release_id}/approvals", { params: { path }, body: verdict }), 201);
told(await move(grace, "approved"));
told(await move(grace, "active"));
const active = told(
  await ada.GET("/v1/workloads/{workload_id}/active-release", {
    params: { path: { workload_id }, query: { environment: "dev" } },
  }),
);
holds(active.release_id === release.release_id, active);

const run = (message: string) =>
  ada.POST("/v1/workloads/by-slug/{slug}/execute", {
    params: { path: { slug: name }, header: { "Idempotency-Key": `${name}-${message.length}` } },
    body: { environment: "dev", inputs: { message } },
  });

const first = told(await run("Thanks, I love it!"));
const again = told(await run("Thanks, I love it!"));
if (!("output" in first)) throw new Error("the run is still running");
holds(first.output === "praise" && again.execution_id === first.execution_id, { first, again });
const execution_id = first.execution_id;
const execution = told(await ada.GET("/v1/executions/{execution_id}", { params: { path: { execution_id } } }));
holds(execution.outcome === "success" && execution.submitted_by === "user:ada", execution);
const denied = refused(await run("x".repeat(501)), 403, "policy_denied");
const refusal = told(
  await ada.GET("/v1/executions/{execution_id}", {
    params: { path: { execution_id: String(denied.detail["execution_id"]) } },
  }),
);
holds(refusal.reason_code === "too_long", refusal);

const graph = told(
  await grace.GET("/v1/executions/{execution_id}/evidence-graph", {
    params: { path: { execution_id }, query: { format: "graph" } },
  }),
);
if (!("nodes" in graph)) throw new Error("the response has no graph");
holds(graph.nodes.length > 5 && graph.edges.length > 5, graph);

const page = await ada.GET("/v1/assets", { params: { query: { limit: 2 } } });
holds(told(page).length === 2 && (page.response.headers.get("link") ?? "").includes('rel="next"'), page.data);
const events = told(await grace.GET("/v1/audit/events", { params: { query: { limit: 5 } } }));
holds(events.length === 5 && events[0].index > events[4].index, events);
const nobody = { workload_id: randomUUID() };
refused(await ada.GET("/v1/workloads/{workload_id}", { params: { path: nobody } }), 404, "not_found");
console.log(`typescript: ${name} answered \`${String(first.output)}\`; its evidence graph has ${graph.nodes.length} nodes`);
