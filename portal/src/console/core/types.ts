import type { components } from "../../api/schema";

/** The schemas of the OpenAPI document. */
export type Schemas = components["schemas"];
export type Release = Schemas["Release"];
export type ReleaseDetail = Schemas["ReleaseDetail"];
export type Workload = Schemas["Workload"];
export type Workspace = Schemas["Workspace"];
export type Execution = Schemas["Execution"];
export type Asset = Schemas["Asset"];
export type AssetVersion = Schemas["AssetVersion"];
export type Gate = Schemas["Gate"];

export const ENVIRONMENT_PATTERN = "[a-z0-9]([a-z0-9\\-]*[a-z0-9])?";
export const LANES = ["restricted", "guided", "standard"] as const;
export const RELEASE_STATES = ["draft", "review_ready", "approved", "active", "superseded", "retired"] as const;
export const RUN_STATES = ["queued", "running", "awaiting_review", "completed", "failed", "denied", "cancelled", "unknown"] as const;
export const ROLES = ["viewer", "runtime_user", "author", "approver", "operator", "auditor", "workspace_admin", "tenant_admin", "platform_admin"] as const;
export const KINDS = [
  "prompt_template", "knowledge_base", "model_policy", "model_config", "policy_bundle", "tool_definition", "hook_definition", "mcp_server", "skill", "agent", "orchestration_flow", "memory",
  "evaluation_suite", "guardrail_config", "connector_definition", "sovereignty_profile", "workload_profile", "sandbox_profile", "workload_harness",
] as const satisfies readonly Asset["asset_kind"][];
export const LIFECYCLES = ["draft", "active", "retired", "archived"] as const satisfies readonly Asset["lifecycle_state"][];
/** The form of principals (users, groups and services) in bindings of roles and workloads. */
export const PRINCIPAL_PATTERN = /^(user|group|service):[a-z0-9][a-z0-9._@+-]{0,126}$/;
