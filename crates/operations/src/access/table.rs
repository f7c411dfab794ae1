//! The authorization table: every operation, its name in the OpenAPI document, and its requirement.

use fairway_domain::access::Permission;

/// The permissions that an operation requires of its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requirement {
    /// The operation requires no permission.
    Nothing,
    /// Any role in the tenant.
    Membership,
    /// A permission on the whole platform.
    Platform(Permission),
    /// A permission in the whole tenant.
    Tenant(Permission),
    /// A permission in a workspace. Every role in the tenant makes its workspaces visible, so a caller without the
    /// permission receives 403 with the name of the permission.
    BelowWorkspace(Permission),
    /// Two permissions in the resource's scope. A caller without `view` receives 404. A caller with `view` and
    /// without `action` receives 403.
    Resource {
        /// Permission that makes the resource visible.
        view: Permission,
        /// Permission to perform the operation.
        action: Permission,
    },
    /// Two permissions in the scope of a release. A caller without `view` receives 403 if it has `workload.view`,
    /// else 404.
    BelowWorkload {
        /// Permission that makes the release visible.
        view: Permission,
        /// Permission to perform the operation.
        action: Permission,
    },
}

macro_rules! operations {
    ($($name:ident = $id:literal => $requirement:expr;)*) => {
        /// Every operation of the HTTP API.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[expect(missing_docs, reason = "each variant is the operation's name in the OpenAPI document")]
        pub enum Operation {
            $($name,)*
        }

        impl Operation {
            /// Every operation, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the operation with this `operationId`.
            #[must_use]
            pub fn parse(id: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|operation| operation.id() == id)
            }

            /// Returns the `operationId` of the operation in the OpenAPI document.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self {
                    $(Self::$name => $id,)*
                }
            }

            /// Returns the permissions that the operation requires.
            #[must_use]
            pub const fn requirement(self) -> Requirement {
                use Requirement::{BelowWorkspace, Membership, Nothing, Platform, Tenant};
                use Permission as P;
                match self {
                    $(Self::$name => $requirement,)*
                }
            }
        }
    };
}

const fn on_resource(view_permission: Permission, required: Permission) -> Requirement {
    Requirement::Resource { view: view_permission, action: required }
}

const fn on_release(required: Permission) -> Requirement {
    Requirement::BelowWorkload { view: Permission::ReleaseView, action: required }
}

operations! {
    ListTenants = "list_tenants" => Platform(P::PlatformManage);
    CreateTenant = "create_tenant" => Platform(P::PlatformManage);
    ReadTenantSettings = "read_tenant_settings" => Tenant(P::TenantManage);
    ChangeTenantSettings = "change_tenant_settings" => Tenant(P::TenantManage);
    // A part of `change_tenant_settings` with its own permission: changes the hosts whose anonymous clients belong to
    // the tenant.
    ChangePublicHosts = "change_tenant_public_hosts" => Platform(P::PlatformManage);
    // A person other than the requester must approve an erasure (see `erasure`).
    ListErasures = "list_erasures" => Tenant(P::TenantManage);
    ReadErasure = "read_erasure" => Tenant(P::TenantManage);
    RequestErasure = "request_erasure" => Tenant(P::TenantManage);
    ApproveErasure = "approve_erasure" => Tenant(P::TenantManage);
    RefuseErasure = "refuse_erasure" => Tenant(P::TenantManage);
    ListWorkspaces = "list_workspaces" => Membership;
    CreateWorkspace = "create_workspace" => Tenant(P::TenantManage);
    ReadWorkspace = "read_workspace" => Membership;
    ReadEnvironmentSettings = "read_environment_settings" => BelowWorkspace(P::WorkspaceManage);
    ChangeEnvironmentSettings = "change_environment_settings" => BelowWorkspace(P::WorkspaceManage);
    // Every caller may read the identity that the server recognized.
    ReadSession = "read_session" => Nothing;
    // Explaining the access of another actor also requires `workspace.manage`.
    ExplainAccess = "explain_access" => Nothing;
    ReadSignInSettings = "read_sign_in_settings" => Nothing;
    EndSession = "end_session" => Nothing;
    ListRoles = "list_roles" => Membership;
    // Granting also requires every permission of the granted role (see `role_bindings`).
    ListRoleBindings = "list_role_bindings" => BelowWorkspace(P::WorkspaceManage);
    CreateRoleBinding = "create_role_binding" => on_resource(P::WorkspaceManage, P::WorkspaceManage);
    DeleteRoleBinding = "delete_role_binding" => on_resource(P::WorkspaceManage, P::WorkspaceManage);
    ListPrincipalBindings = "list_principal_bindings" => on_resource(P::WorkloadView, P::WorkspaceManage);
    SetPrincipalBinding = "set_principal_binding" => on_resource(P::WorkloadView, P::WorkspaceManage);
    DeletePrincipalBinding = "delete_principal_binding" => on_resource(P::WorkloadView, P::WorkspaceManage);
    ListAssets = "list_assets" => on_resource(P::AssetView, P::AssetView);
    CreateAsset = "create_asset" => BelowWorkspace(P::AssetCreate);
    GenerateDraft = "generate_asset_draft" => BelowWorkspace(P::AssetCreate);
    ReadAsset = "read_asset" => on_resource(P::AssetView, P::AssetView);
    ListAssetVersions = "list_asset_versions" => on_resource(P::AssetView, P::AssetView);
    ReadAssetVersion = "read_asset_version" => on_resource(P::AssetView, P::AssetView);
    CreateAssetVersion = "create_asset_version" => on_resource(P::AssetView, P::AssetEdit);
    // Trying a prompt or policy changes nothing. A preview shows the text of included assets only to callers that may
    // view these assets.
    PreviewPrompt = "preview_prompt" => on_resource(P::AssetView, P::AssetView);
    TryPolicy = "try_policy" => on_resource(P::AssetView, P::AssetView);
    ListAssetKinds = "list_asset_kinds" => Membership;
    ReadAssetKindSchema = "read_asset_kind_schema" => Membership;
    DiffAssetVersions = "diff_asset_versions" => on_resource(P::AssetView, P::AssetView);
    ReadBlastRadius = "read_blast_radius" => on_resource(P::AssetView, P::AssetView);
    ActivateAsset = "activate_asset" => on_resource(P::AssetView, P::AssetEdit);
    RetireAsset = "retire_asset" => on_resource(P::AssetView, P::AssetEdit);
    ArchiveAsset = "archive_asset" => on_resource(P::AssetView, P::AssetEdit);
    ListAssetGrants = "list_asset_grants" => on_resource(P::AssetView, P::AssetEdit);
    CreateAssetGrant = "create_asset_grant" => on_resource(P::AssetView, P::AssetEdit);
    DeleteAssetGrant = "delete_asset_grant" => on_resource(P::AssetView, P::AssetEdit);
    AddDocuments = "add_documents" => on_resource(P::AssetView, P::AssetEdit);
    // A part of adding documents: the server itself fetches a document from an address, so the caller needs a
    // permission on connections.
    FetchDocuments = "fetch_documents" => on_resource(P::AssetView, P::ConnectionManage);
    ReembedDocuments = "reembed_documents" => on_resource(P::AssetView, P::AssetEdit);
    ListDocuments = "list_documents" => on_resource(P::AssetView, P::AssetView);
    RevokeContract = "revoke_access_contract" => on_resource(P::AssetView, P::AssetEdit);
    ListFlows = "list_flows" => on_resource(P::AssetView, P::AssetView);
    CreateFlow = "create_flow" => BelowWorkspace(P::AssetCreate);
    ReadFlow = "read_flow" => on_resource(P::AssetView, P::AssetView);
    CreateFlowVersion = "create_flow_version" => on_resource(P::AssetView, P::AssetEdit);
    // Validation stores nothing, so the permission to view assets suffices.
    ValidateFlow = "validate_flow" => on_resource(P::AssetView, P::AssetView);
    ListWorkloads = "list_workloads" => on_resource(P::WorkloadView, P::WorkloadView);
    CreateWorkload = "create_workload" => BelowWorkspace(P::WorkloadCreate);
    ReadWorkload = "read_workload" => on_resource(P::WorkloadView, P::WorkloadView);
    // The runtime interface of workloads: the public view of a workload, and the list of workloads that the caller
    // sees.
    ListRuntimeWorkloads = "list_runtime_workloads" => on_resource(P::WorkloadView, P::WorkloadView);
    ReadRuntimeWorkload = "read_runtime_workload" => on_resource(P::WorkloadView, P::WorkloadView);
    // A change of status also requires `workload.suspend`; a change of the access mode also requires
    // `workload.expose`.
    ChangeWorkload = "change_workload" => on_resource(P::WorkloadView, P::WorkloadEdit);
    SuspendWorkload = "change_workload_status" => on_resource(P::WorkloadView, P::WorkloadSuspend);
    ExposeWorkload = "change_workload_access" => on_resource(P::WorkloadView, P::WorkloadExpose);
    ListShareLinks = "list_share_links" => on_resource(P::WorkloadView, P::ShareLinkManage);
    ReadShareLink = "read_share_link" => on_resource(P::WorkloadView, P::ShareLinkManage);
    CreateShareLink = "create_share_link" => on_resource(P::WorkloadView, P::ShareLinkManage);
    RevokeShareLink = "revoke_share_link" => on_resource(P::WorkloadView, P::ShareLinkManage);
    ListReleases = "list_releases" => on_resource(P::ReleaseView, P::ReleaseView);
    // Operations on the releases of a workload. A caller that sees the workload but lacks the permission receives 403.
    ListWorkloadReleases = "list_workload_releases" => on_resource(P::WorkloadView, P::ReleaseView);
    ReadActiveRelease = "read_active_release" => on_resource(P::WorkloadView, P::ReleaseView);
    CreateRelease = "create_release" => on_resource(P::WorkloadView, P::ReleaseCreate);
    ReadRelease = "read_release" => on_release(P::ReleaseView);
    ReadReleaseGates = "read_release_gates" => on_release(P::ReleaseView);
    BindVersion = "bind_version" => on_release(P::ReleaseCreate);
    UnbindVersion = "unbind_version" => on_release(P::ReleaseCreate);
    ListLanes = "list_lanes" => on_resource(P::WorkloadView, P::ReleaseView);
    // Transitions between draft and review; `TransitionRelease` covers all others.
    SubmitRelease = "submit_release" => on_release(P::ReleaseCreate);
    TransitionRelease = "transition_release" => on_release(P::ReleaseTransition);
    RollBackRelease = "roll_back_release" => on_release(P::ReleaseRollback);
    AdvanceRollout = "advance_rollout" => on_release(P::ReleaseTransition);
    ReadRollout = "read_rollout" => on_release(P::ReleaseView);
    ReadRollbackRecommendation = "read_rollback_recommendation" => on_release(P::ReleaseView);
    ListReleaseArtifacts = "list_release_artifacts" => on_release(P::ReleaseView);
    ReadReleaseArtifact = "read_release_artifact" => on_release(P::ReleaseView);
    // The summary contains the contents of the bound versions, so it requires `asset.view` too.
    ReadReleaseBundle = "read_release_bundle" => on_release(P::AssetView);
    ReviewRelease = "review_release" => on_release(P::ReleaseApprove);
    ListApprovals = "list_approvals" => on_release(P::ReleaseView);
    ExecuteWorkload = "execute_workload" => on_resource(P::WorkloadView, P::ExecutionRun);
    RunCode = "run_code" => on_resource(P::WorkloadView, P::ExecutionRun);
    // Runs a workload on a lane that the request chooses instead of the lane of the caller's binding.
    ChooseLane = "execute_workload_on_lane" => on_resource(P::WorkloadView, P::ReleaseTransition);
    // A caller reads and erases only its own conversations, on every workload that it sees.
    ReadMemory = "read_session_memory" => on_resource(P::WorkloadView, P::WorkloadView);
    EraseMemory = "erase_session_memory" => on_resource(P::WorkloadView, P::WorkloadView);
    // Erases the conversation of the other principal that the parameter `owner` names.
    EraseMemoryOfOthers = "erase_session_memory_of_others" => on_resource(P::WorkloadView, P::ExecutionKill);
    // The submitter may always read its own run; other callers need this permission.
    ReadExecution = "read_execution" => on_resource(P::ExecutionView, P::ExecutionView);
    // The submitter may always cancel its own run and read its events; other callers need these permissions.
    CancelExecution = "cancel_execution" => on_resource(P::ExecutionView, P::ExecutionKill);
    ReadReview = "read_execution_review" => on_resource(P::ExecutionView, P::ReleaseApprove);
    ReviewExecution = "review_execution" => on_resource(P::ExecutionView, P::ReleaseApprove);
    ResolveExecution = "settle_execution" => on_resource(P::ExecutionView, P::ExecutionKill);
    ReadExecutionEvents = "read_execution_events" => on_resource(P::ExecutionView, P::ExecutionView);
    ListExecutions = "list_executions" => on_resource(P::ExecutionView, P::ExecutionView);
    ReadUsage = "read_usage" => on_resource(P::ExecutionView, P::ExecutionView);
    ReadEvidenceGraph = "read_evidence_graph" => on_resource(P::ExecutionView, P::ExecutionView);
    ReadEvidenceArtifact = "read_evidence_artifact" => on_resource(P::ExecutionView, P::ExecutionView);
    // The bundle contains the contents of the bound versions, so it requires `asset.view` too (see
    // `evidence_bundle`).
    ReadEvidenceBundle = "read_evidence_bundle" => on_resource(P::ExecutionView, P::AssetView);
    ReadContextLineage = "read_context_lineage" => on_resource(P::ExecutionView, P::ExecutionView);
    ListConnections = "list_connections" => on_resource(P::ConnectionRead, P::ConnectionRead);
    CreateConnection = "create_connection" => BelowWorkspace(P::ConnectionManage);
    ReadConnection = "read_connection" => on_resource(P::ConnectionRead, P::ConnectionRead);
    ChangeConnection = "change_connection" => on_resource(P::ConnectionRead, P::ConnectionManage);
    DeleteConnection = "delete_connection" => on_resource(P::ConnectionRead, P::ConnectionManage);
    CheckConnection = "check_connection" => on_resource(P::ConnectionRead, P::ConnectionManage);
    ListAccessRequests = "list_access_requests" => on_resource(P::ConnectionRead, P::ConnectionRead);
    GrantAccessRequest = "grant_access_request" => on_resource(P::ConnectionRead, P::AccessRequestGrant);
    DenyAccessRequest = "deny_access_request" => on_resource(P::ConnectionRead, P::AccessRequestGrant);
    // Generating and creating a use case also require `asset.create`.
    GenerateUseCase = "generate_use_case" => BelowWorkspace(P::UseCaseAuthor);
    CreateUseCase = "create_use_case" => BelowWorkspace(P::UseCaseAuthor);
    ListUseCases = "list_use_cases" => on_resource(P::WorkloadView, P::WorkloadView);
    ReadUseCase = "read_use_case" => on_resource(P::WorkloadView, P::WorkloadView);
    ReadUseCaseBundle = "read_use_case_bundle" => on_resource(P::AssetView, P::AssetView);
    ReadUseCaseChanges = "read_use_case_changes" => on_resource(P::AssetView, P::AssetView);
    RefineUseCase = "refine_use_case" => on_resource(P::WorkloadView, P::UseCaseAuthor);
    PublishUseCase = "publish_use_case" => on_resource(P::WorkloadView, P::UseCasePublish);
    ActivateUseCase = "activate_use_case" => on_resource(P::WorkloadView, P::UseCasePublish);
    ArchiveUseCase = "archive_use_case" => on_resource(P::WorkloadView, P::UseCaseAuthor);
    ReopenUseCase = "reopen_use_case" => on_resource(P::WorkloadView, P::UseCaseAuthor);
    ListAuditEvents = "list_audit_events" => on_resource(P::AuditView, P::AuditView);
    // A person's own inbox and preferences require the permission in any scope of the tenant.
    ListInbox = "list_inbox" => BelowWorkspace(P::NotificationRead);
    ChangeInboxStatus = "change_inbox_status" => BelowWorkspace(P::NotificationRead);
    MarkInboxRead = "mark_inbox_read" => BelowWorkspace(P::NotificationRead);
    ReadPreferences = "read_preferences" => BelowWorkspace(P::NotificationPreferenceSelfManage);
    ChangePreferences = "change_preferences" => BelowWorkspace(P::NotificationPreferenceSelfManage);
    ReadEffectivePreferences = "read_effective_preferences" => BelowWorkspace(P::NotificationPreferenceSelfManage);
    ReadWorkspacePreferences = "read_workspace_preferences" => BelowWorkspace(P::NotificationPreferenceSelfManage);
    ChangeWorkspacePreferences = "change_workspace_preferences" => BelowWorkspace(P::NotificationPreferenceSelfManage);
    ReadWorkloadPreferences = "read_workload_preferences" =>
        on_resource(P::WorkloadView, P::NotificationPreferenceSelfManage);
    ChangeWorkloadPreferences = "change_workload_preferences" =>
        on_resource(P::WorkloadView, P::NotificationPreferenceSelfManage);
    ReadEnvironmentPreferences = "read_environment_preferences" =>
        on_resource(P::WorkloadView, P::NotificationPreferenceSelfManage);
    ChangeEnvironmentPreferences = "change_environment_preferences" =>
        on_resource(P::WorkloadView, P::NotificationPreferenceSelfManage);
    ListWorkloadEnvironments = "list_workload_environments" =>
        on_resource(P::WorkloadView, P::NotificationPreferenceSelfManage);
    ReadDefaultProfiles = "read_default_profiles" => Tenant(P::NotificationDestinationManage);
    ChangeDefaultProfiles = "change_default_profiles" => Tenant(P::NotificationDestinationManage);
    ListOrganizationDestinations = "list_organization_destinations" => Tenant(P::NotificationDestinationManage);
    CreateOrganizationDestination = "create_organization_destination" => Tenant(P::NotificationDestinationManage);
    ReadOrganizationDestination = "read_organization_destination" => Tenant(P::NotificationDestinationManage);
    ChangeOrganizationDestination = "change_organization_destination" => Tenant(P::NotificationDestinationManage);
    DeleteOrganizationDestination = "delete_organization_destination" => Tenant(P::NotificationDestinationManage);
    ListWorkspaceDestinations = "list_workspace_destinations" => BelowWorkspace(P::NotificationDestinationManage);
    CreateWorkspaceDestination = "create_workspace_destination" => BelowWorkspace(P::NotificationDestinationManage);
    ReadWorkspaceDestination = "read_workspace_destination" => BelowWorkspace(P::NotificationDestinationManage);
    ChangeWorkspaceDestination = "change_workspace_destination" => BelowWorkspace(P::NotificationDestinationManage);
    DeleteWorkspaceDestination = "delete_workspace_destination" => BelowWorkspace(P::NotificationDestinationManage);
    TestOrganizationDestination = "test_organization_destination" => Tenant(P::NotificationDestinationManage);
    TestWorkspaceDestination = "test_workspace_destination" => BelowWorkspace(P::NotificationDestinationManage);
    ListDeliveries = "list_deliveries" => BelowWorkspace(P::NotificationDeliveryView);
    RetryDelivery = "retry_delivery" =>
        on_resource(P::NotificationDeliveryView, P::NotificationDestinationManage);
    ReadInboxStream = "read_inbox_stream" => BelowWorkspace(P::NotificationRead);
    ReadNotificationProfile = "read_notification_profile" => BelowWorkspace(P::NotificationPreferenceSelfManage);
    ChangeNotificationProfile = "change_notification_profile" => BelowWorkspace(P::NotificationPreferenceSelfManage);
    MakeAnnouncement = "make_announcement" => Tenant(P::NotificationDestinationManage);
    ReadAnnouncement = "read_announcement" => Tenant(P::NotificationDestinationManage);
    ListSuppressedDecisions = "list_suppressed_decisions" => BelowWorkspace(P::NotificationAuditView);
    // Checkpoints, tiles and consistency proofs contain only hashes of the tenant's log and reveal no event. An
    // auditor of any scope in the tenant may therefore read them.
    ReadCheckpoint = "read_checkpoint" => on_resource(P::AuditView, P::AuditView);
    ReadCheckpointKeys = "read_checkpoint_keys" => on_resource(P::AuditView, P::AuditView);
    ReadConsistencyProof = "read_consistency_proof" => on_resource(P::AuditView, P::AuditView);
    ReadLogTile = "read_log_tile" => on_resource(P::AuditView, P::AuditView);
    // The proof of an event requires the permission in the scope of the event.
    ReadInclusionProof = "read_inclusion_proof" => on_resource(P::AuditView, P::AuditView);
    // A tool call also requires the permissions of the operation that the tool performs.
    CallTool = "call_tool" => on_resource(P::WorkloadView, P::ExecutionRun);
    ReadPlugins = "read_runtime_plugins" => on_resource(P::WorkloadView, P::WorkloadView);
    ReadSystemMeta = "read_runtime_system_meta" => on_resource(P::WorkloadView, P::WorkloadView);
    ReadManifest = "read_runtime_mcp_manifest" => on_resource(P::WorkloadView, P::WorkloadView);
    // Reads the runtime interface as an HTML page.
    ReadPage = "read_page" => on_resource(P::WorkloadView, P::WorkloadView);
    ReadDocument = "read_document" => Nothing;
    ReadReference = "read_reference" => Nothing;
    Healthz = "healthz" => Nothing;
    Readyz = "readyz" => Nothing;
    Metrics = "metrics" => Nothing;
}

impl Operation {
    /// Operations that are parts of other operations and have no route of their own. The body of the request
    /// determines which of them apply.
    pub const WITHOUT_OWN_ROUTE: &[Self] = &[
        Self::ChangePublicHosts,
        Self::SuspendWorkload,
        Self::ExposeWorkload,
        Self::SubmitRelease,
        Self::ChooseLane,
        Self::EraseMemoryOfOthers,
        Self::FetchDocuments,
    ];
}
