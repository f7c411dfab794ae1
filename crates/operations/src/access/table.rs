//! The authorisation table: every operation, its name in the OpenAPI document, and what it demands.

use fairway_domain::access::Permission;

/// What an operation demands of its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Demand {
    /// Nothing.
    Nothing,
    /// Some role in the tenant.
    Membership,
    /// A permission on the whole platform.
    Platform(Permission),
    /// A permission in the whole tenant.
    Tenant(Permission),
    /// A permission in a workspace. Every role in the tenant makes its workspaces visible, so a caller that lacks the
    /// permission there gets 403 with it.
    BelowWorkspace(Permission),
    /// Two permissions where the thing is. Who lacks `sees` there is told that there is no such thing; who has `sees`
    /// and lacks `needs` is told what is missing.
    Place {
        /// Makes the thing visible.
        sees: Permission,
        /// Allows the operation.
        needs: Permission,
    },
    /// Three permissions where a release is. Its workload stands above it, so a caller that lacks `sees` and has
    /// `workload.view` there gets 403 with `sees`, and a caller that lacks both gets 404.
    BelowWorkload {
        /// Makes the release visible.
        sees: Permission,
        /// Allows the operation.
        needs: Permission,
    },
}

macro_rules! operations {
    ($($name:ident = $id:literal => $demand:expr;)*) => {
        /// Everything that can be asked of Fairway over HTTP.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[expect(missing_docs, reason = "each variant is the operation's name in the OpenAPI document")]
        pub enum Operation {
            $($name,)*
        }

        impl Operation {
            /// Every operation.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The `operationId` in the OpenAPI document.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self {
                    $(Self::$name => $id,)*
                }
            }

            /// What it demands of its caller.
            #[must_use]
            pub const fn demand(self) -> Demand {
                use Demand::{BelowWorkspace, Membership, Nothing, Platform, Tenant};
                use Permission as P;
                match self {
                    $(Self::$name => $demand,)*
                }
            }
        }
    };
}

const fn place(sees: Permission, needs: Permission) -> Demand {
    Demand::Place { sees, needs }
}

const fn release(needs: Permission) -> Demand {
    Demand::BelowWorkload { sees: Permission::ReleaseView, needs }
}

operations! {
    ListTenants = "list_tenants" => Platform(P::PlatformManage);
    CreateTenant = "create_tenant" => Platform(P::PlatformManage);
    ReadTenantSettings = "read_tenant_settings" => Tenant(P::TenantManage);
    ChangeTenantSettings = "change_tenant_settings" => Tenant(P::TenantManage);
    // Of a tenant's settings, the hosts whose strangers come to it.
    ChangePublicHosts = "change_tenant_public_hosts" => Platform(P::PlatformManage);
    ListWorkspaces = "list_workspaces" => Membership;
    CreateWorkspace = "create_workspace" => Tenant(P::TenantManage);
    ReadWorkspace = "read_workspace" => Membership;
    ReadEnvironmentSettings = "read_environment_settings" => BelowWorkspace(P::WorkspaceManage);
    ChangeEnvironmentSettings = "change_environment_settings" => BelowWorkspace(P::WorkspaceManage);
    ListRoles = "list_roles" => Membership;
    // Granting demands more than the table can say: every permission of the granted role (see `grants`).
    ListRoleBindings = "list_role_bindings" => BelowWorkspace(P::WorkspaceManage);
    CreateRoleBinding = "create_role_binding" => place(P::WorkspaceManage, P::WorkspaceManage);
    DeleteRoleBinding = "delete_role_binding" => place(P::WorkspaceManage, P::WorkspaceManage);
    ListPrincipalBindings = "list_principal_bindings" => place(P::WorkloadView, P::WorkspaceManage);
    SetPrincipalBinding = "set_principal_binding" => place(P::WorkloadView, P::WorkspaceManage);
    DeletePrincipalBinding = "delete_principal_binding" => place(P::WorkloadView, P::WorkspaceManage);
    ListAssets = "list_assets" => place(P::AssetView, P::AssetView);
    CreateAsset = "create_asset" => BelowWorkspace(P::AssetCreate);
    GenerateDraft = "generate_asset_draft" => BelowWorkspace(P::AssetCreate);
    ReadAsset = "read_asset" => place(P::AssetView, P::AssetView);
    ListAssetVersions = "list_asset_versions" => place(P::AssetView, P::AssetView);
    ReadAssetVersion = "read_asset_version" => place(P::AssetView, P::AssetView);
    CreateAssetVersion = "create_asset_version" => place(P::AssetView, P::AssetEdit);
    ListAssetKinds = "list_asset_kinds" => Membership;
    ReadAssetKindSchema = "read_asset_kind_schema" => Membership;
    DiffAssetVersions = "diff_asset_versions" => place(P::AssetView, P::AssetView);
    ReadBlastRadius = "read_blast_radius" => place(P::AssetView, P::AssetView);
    ActivateAsset = "activate_asset" => place(P::AssetView, P::AssetEdit);
    RetireAsset = "retire_asset" => place(P::AssetView, P::AssetEdit);
    ArchiveAsset = "archive_asset" => place(P::AssetView, P::AssetEdit);
    ListAssetGrants = "list_asset_grants" => place(P::AssetView, P::AssetEdit);
    CreateAssetGrant = "create_asset_grant" => place(P::AssetView, P::AssetEdit);
    DeleteAssetGrant = "delete_asset_grant" => place(P::AssetView, P::AssetEdit);
    AddDocuments = "add_documents" => place(P::AssetView, P::AssetEdit);
    // A part of adding documents: fetching from an address is using a connection.
    FetchDocuments = "fetch_documents" => place(P::AssetView, P::ConnectionManage);
    ReembedDocuments = "reembed_documents" => place(P::AssetView, P::AssetEdit);
    ListDocuments = "list_documents" => place(P::AssetView, P::AssetView);
    RevokeContract = "revoke_access_contract" => place(P::AssetView, P::AssetEdit);
    ListFlows = "list_flows" => place(P::AssetView, P::AssetView);
    CreateFlow = "create_flow" => BelowWorkspace(P::AssetCreate);
    ReadFlow = "read_flow" => place(P::AssetView, P::AssetView);
    CreateFlowVersion = "create_flow_version" => place(P::AssetView, P::AssetEdit);
    // A dry run changes nothing.
    ValidateFlow = "validate_flow" => place(P::AssetView, P::AssetView);
    ListWorkloads = "list_workloads" => place(P::WorkloadView, P::WorkloadView);
    CreateWorkload = "create_workload" => BelowWorkspace(P::WorkloadCreate);
    ReadWorkload = "read_workload" => place(P::WorkloadView, P::WorkloadView);
    // What of it is a runtime interface: what people see, and the list of all that they may see.
    ListRuntimeWorkloads = "list_runtime_workloads" => place(P::WorkloadView, P::WorkloadView);
    ReadRuntimeWorkload = "read_runtime_workload" => place(P::WorkloadView, P::WorkloadView);
    // A change of status demands `workload.suspend` besides, one of who may come `workload.expose`.
    ChangeWorkload = "change_workload" => place(P::WorkloadView, P::WorkloadEdit);
    SuspendWorkload = "change_workload_status" => place(P::WorkloadView, P::WorkloadSuspend);
    ExposeWorkload = "change_workload_access" => place(P::WorkloadView, P::WorkloadExpose);
    ListShareLinks = "list_share_links" => place(P::WorkloadView, P::ShareLinkManage);
    ReadShareLink = "read_share_link" => place(P::WorkloadView, P::ShareLinkManage);
    CreateShareLink = "create_share_link" => place(P::WorkloadView, P::ShareLinkManage);
    RevokeShareLink = "revoke_share_link" => place(P::WorkloadView, P::ShareLinkManage);
    ListReleases = "list_releases" => place(P::ReleaseView, P::ReleaseView);
    // A workload's releases lie below the workload: whoever sees the workload is told which permission is missing.
    ListWorkloadReleases = "list_workload_releases" => place(P::WorkloadView, P::ReleaseView);
    ReadActiveRelease = "read_active_release" => place(P::WorkloadView, P::ReleaseView);
    CreateRelease = "create_release" => place(P::WorkloadView, P::ReleaseCreate);
    ReadRelease = "read_release" => release(P::ReleaseView);
    ReadReleaseGates = "read_release_gates" => release(P::ReleaseView);
    BindVersion = "bind_version" => release(P::ReleaseCreate);
    UnbindVersion = "unbind_version" => release(P::ReleaseCreate);
    ListLanes = "list_lanes" => place(P::WorkloadView, P::ReleaseView);
    // Between draft and review; every other move is `MoveRelease`.
    SubmitRelease = "submit_release" => release(P::ReleaseCreate);
    MoveRelease = "transition_release" => release(P::ReleaseTransition);
    RollBackRelease = "roll_back_release" => release(P::ReleaseRollback);
    AdvanceRollout = "advance_rollout" => release(P::ReleaseTransition);
    ReadRollout = "read_rollout" => release(P::ReleaseView);
    ReadRollbackRecommendation = "read_rollback_recommendation" => release(P::ReleaseView);
    ListReleaseArtifacts = "list_release_artifacts" => release(P::ReleaseView);
    ReadReleaseArtifact = "read_release_artifact" => release(P::ReleaseView);
    ReviewRelease = "review_release" => release(P::ReleaseApprove);
    ListApprovals = "list_approvals" => release(P::ReleaseView);
    ExecuteWorkload = "execute_workload" => place(P::WorkloadView, P::ExecutionRun);
    RunCode = "run_code" => place(P::WorkloadView, P::ExecutionRun);
    // A run that names its lane goes where its caller's binding would not send it.
    ChooseLane = "execute_workload_on_lane" => place(P::WorkloadView, P::ReleaseTransition);
    // Of a conversation everybody reads its own turns alone, wherever it sees the workload.
    ReadMemory = "read_session_memory" => place(P::WorkloadView, P::WorkloadView);
    EraseMemory = "erase_session_memory" => place(P::WorkloadView, P::WorkloadView);
    // Somebody else's, which `owner` names.
    EraseMemoryOfOthers = "erase_session_memory_of_others" => place(P::WorkloadView, P::ExecutionKill);
    // The submitter may always read its own run; everybody else needs this.
    ReadExecution = "read_execution" => place(P::ExecutionView, P::ExecutionView);
    // The submitter may always stop and follow its own run.
    CancelExecution = "cancel_execution" => place(P::ExecutionView, P::ExecutionKill);
    ReadReview = "read_execution_review" => place(P::ExecutionView, P::ReleaseApprove);
    ReviewExecution = "review_execution" => place(P::ExecutionView, P::ReleaseApprove);
    SettleExecution = "settle_execution" => place(P::ExecutionView, P::ExecutionKill);
    ReadExecutionEvents = "read_execution_events" => place(P::ExecutionView, P::ExecutionView);
    ListExecutions = "list_executions" => place(P::ExecutionView, P::ExecutionView);
    ReadEvidenceGraph = "read_evidence_graph" => place(P::ExecutionView, P::ExecutionView);
    ReadEvidenceArtifact = "read_evidence_artifact" => place(P::ExecutionView, P::ExecutionView);
    ReadContextLineage = "read_context_lineage" => place(P::ExecutionView, P::ExecutionView);
    ListAuditEvents = "list_audit_events" => place(P::AuditView, P::AuditView);
    // What a tool stands for demands what it demands there, besides.
    CallTool = "call_tool" => place(P::WorkloadView, P::ExecutionRun);
    ReadPlugins = "read_runtime_plugins" => place(P::WorkloadView, P::WorkloadView);
    ReadSystemMeta = "read_runtime_system_meta" => place(P::WorkloadView, P::WorkloadView);
    ReadManifest = "read_runtime_mcp_manifest" => place(P::WorkloadView, P::WorkloadView);
    // The runtime interface, as a page.
    ReadPage = "read_page" => place(P::WorkloadView, P::WorkloadView);
    ReadDocument = "read_document" => Nothing;
    ReadReference = "read_reference" => Nothing;
    Healthz = "healthz" => Nothing;
    Readyz = "readyz" => Nothing;
    Metrics = "metrics" => Nothing;
}

impl Operation {
    /// Parts of another operation that are not routes of their own: the route's body decides which one is meant.
    pub const PARTS: &[Self] = &[
        Self::ChangePublicHosts,
        Self::SuspendWorkload,
        Self::ExposeWorkload,
        Self::SubmitRelease,
        Self::ChooseLane,
        Self::EraseMemoryOfOthers,
        Self::FetchDocuments,
    ];
}
