//! The body of a successful request for every operation.

use super::{ECHO_FLOW, Stage};
use serde_json::{Value, json};

impl Stage<'_> {
    /// The body of a successful request. Resources that it creates have unique names.
    pub(crate) fn body(&self, operation: &str) -> Value {
        let workspace = &self.workspace;
        match operation {
            "create_tenant" => json!({ "slug": self.fresh(), "name": "A tenant" }),
            "change_tenant_settings" => json!({ "notifications_enabled": true }),
            "change_tenant_public_hosts" => json!({ "public_hosts": [format!("{}.example", self.fresh())] }),
            "create_workspace" => json!({ "slug": self.fresh(), "name": "A workspace", "namespace": "elsewhere" }),
            "create_role_binding" => json!({
                "principal": format!("user:{}", self.fresh()), "role": "viewer", "scope_kind": "workspace",
                "scope_ref": workspace,
            }),
            "set_principal_binding" => json!({ "principal": format!("user:{}", self.fresh()), "lane": "guided" }),
            "create_share_link" => json!({ "ttl_hours": 1, "max_uses": 2, "label": self.fresh(), "lane": "guided" }),
            "create_asset" => json!({
                "slug": self.fresh(), "asset_kind": "prompt_template", "owner_ref": "team:a", "workspace_id": workspace,
            }),
            "generate_asset_draft" => json!({ "description": "Sort tickets by their urgency." }),
            "activate_asset" | "retire_asset" | "archive_asset" => json!({ "workspace_id": workspace }),
            "create_asset_grant" => json!({ "principal": format!("user:{}", self.fresh()), "workspace_id": workspace }),
            "create_asset_version" => json!({ "content": { "system_prompt": self.fresh() } }),
            "add_documents" => json!({
                "documents": [{ "document_id": self.fresh(), "text": "Thirty days of leave a year." }],
                "workspace_id": workspace,
            }),
            "reembed_documents" => json!({ "workspace_id": workspace }),
            "revoke_access_contract" => json!({
                "contract_id": self.fresh(), "reason": "It is over.", "workspace_id": workspace,
            }),
            "create_flow" => json!({
                "slug": self.fresh(), "owner_ref": "team:a", "content_yaml": ECHO_FLOW, "workspace_id": workspace,
            }),
            "create_flow_version" | "validate_flow" => json!({ "content_yaml": ECHO_FLOW }),
            "create_workload" => json!({
                "slug": self.fresh(), "owner_ref": "team:a", "invocation_mode": "chat", "workspace_id": workspace,
            }),
            "change_workload" => json!({ "description": self.fresh() }),
            "change_workload_access" => {
                json!({ "interface_config": { "presentation_mode": "form", "access_mode": "public" } })
            }
            "change_workload_status" => json!({ "status": "registered" }),
            "create_release" => json!({ "workload_id": self.workload.workload_id, "environment": "dev" }),
            "bind_version" => json!({
                "asset_version_id": self.policy().asset_version_id, "role": "policy_bundle",
            }),
            "submit_release" => json!({ "to_state": "review_ready" }),
            "transition_release" => json!({ "to_state": "retired" }),
            "change_environment_settings" => json!({
                "min_approvals": 1, "allow_self_approval": true, "pin_documents": false,
            }),
            "advance_rollout" | "cancel_execution" => json!({}),
            "roll_back_release" => json!({ "reason": "It answers in riddles." }),
            "review_release" => json!({
                "outcome": "approved", "subject_kind": "release", "subject_ref": self.workload.release_id,
            }),
            "review_execution" => json!({ "outcome": "approved" }),
            "settle_execution" => json!({ "outcome": "failure" }),
            "run_code" => json!({
                "workspace_id": self.workspace, "workload_slug": self.workload.slug, "environment": "dev",
                "language": "starlark", "code": "result = 1",
            }),
            "execute_workload" => json!({ "environment": "dev", "inputs": { "ticket": "a refund" } }),
            "call_tool" => json!({ "arguments": {
                "workload_slug": self.workload.slug, "environment": "dev", "inputs": { "ticket": "a refund" },
            } }),
            "execute_workload_on_lane" => json!({
                "environment": "dev", "inputs": { "ticket": "a refund" }, "lane": "restricted",
            }),
            other => panic!("no body for operation {other}"),
        }
    }
}
