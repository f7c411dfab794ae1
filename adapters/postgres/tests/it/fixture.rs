//! Test fixture: a separate database with a store, and aggregates that are built as operations build them.

pub(crate) mod knowledge;

use fairway_domain::{
    access::{ActorRef, OwnerRef},
    asset::{
        Asset, AssetVersion, Lifecycle, NewAsset, VersionContent, VersionLabel,
        artifact_store::ArtifactPath,
        canonical::Canonical,
        kind::AssetKind,
        ports::{AssetStore, VersionStore},
        reference::AssetReference,
    },
    audit::Stamp,
    evidence::{
        EvidenceArtifact, EvidenceSnapshot, GovernanceChain, RecordedDecision,
        lineage::{ActionClass, InfluenceRole, LineageItem, Origin, UntrustedReason},
    },
    execution::{
        Acceptance, AdditionalAccess, AdmissionDecision, ExecutionOutcome, FinishRecord, Payload, RunRef, Status,
        StepRecord,
        dispatch::{Claim, RequestContext},
        ports::{ExpectedRevisions, RunStore},
        progress::{ProgressRecord, RunEvent},
        script::Language,
    },
    id::TenantId,
    note::Note,
    notification::ports::ProjectionBasis,
    policy::{self, FailedRule},
    release::{
        BindableVersion, NewRelease, Release,
        activate::{ActivationReport, FlowStatus, LaneSelection},
        deployment::DeploymentChange,
        frozen_reference::FrozenReference,
        lane::{Lane, TargetLane},
        ports::{DeploymentStore, ReleaseStore, ReleaseWithDeployment},
        review::{ApprovalRule, ReleaseVerdict, SelfApproval},
    },
    slug::Slug,
    store::Revision,
    tenant::{DEFAULT_NAMESPACE_ID, DEFAULT_TENANT_ID, DEFAULT_WORKSPACE_ID, TenantScope},
    time::Timestamp,
    workload::{IntendedUse, NewWorkload, Workload, ports::WorkloadStore},
};
use fairway_postgres::{Database, DatabaseOptions};
use fairway_testkit::TestDatabase;
use serde_json::{Map, json};
use std::{ops::Deref, sync::Arc, time::Duration};
use time::OffsetDateTime;
use tokio_postgres::{Client, Config, NoTls};
use uuid::Uuid;

/// An approval rule with one approval, which the release's creator may give. Approval roles are not under test here.
pub(crate) const RULE: ApprovalRule = ApprovalRule::new(1, SelfApproval::Allowed);

/// A store, and an owner connection that bypasses the store.
pub(crate) struct StoreFixture {
    pub(crate) owner: Client,
    pub(crate) store: Arc<Database>,
}

/// A [`StoreFixture`] on a clone of the migrated template database.
pub(crate) struct Fixture {
    store_fixture: StoreFixture,
    /// The last field, so that it is dropped last: its drop closes every connection to the database.
    pub(crate) database: TestDatabase,
}

impl Deref for Fixture {
    type Target = StoreFixture;

    fn deref(&self) -> &StoreFixture {
        &self.store_fixture
    }
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self::with_connections(8).await
    }

    pub(crate) async fn with_connections(connections: usize) -> Self {
        Self::over(TestDatabase::create().await.unwrap(), connections).await
    }

    pub(crate) async fn over(database: TestDatabase, connections: usize) -> Self {
        Self { store_fixture: StoreFixture::new(&database.url_for_owner(), connections).await, database }
    }

    /// Closes the connections and returns the database.
    pub(crate) fn into_database(self) -> TestDatabase {
        self.database
    }
}

impl StoreFixture {
    pub(crate) async fn new(url: &str, connections: usize) -> Self {
        Self { owner: connect(url).await, store: open_store(url, connections) }
    }

    /// The single number that an SQL query returns.
    pub(crate) async fn query_number(&self, sql: &str) -> i64 {
        self.owner.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// The database's time and the generation of the tenant's notification settings. A batch of facts is decided
    /// under both.
    pub(crate) async fn projection_basis(&self) -> ProjectionBasis {
        let micros = self.query_number("SELECT (extract(epoch FROM fairway_now()) * 1000000)::bigint").await;
        let generation = format!(
            "SELECT notification_generation + advanced_notification_generation FROM tenant
            WHERE tenant_id = '{DEFAULT_TENANT_ID}'"
        );
        let generation = u64::try_from(self.query_number(&generation).await).unwrap();
        ProjectionBasis { at: Timestamp::from_micros(micros).unwrap(), generation }
    }

    pub(crate) async fn run(&self, sql: &str) {
        self.owner.batch_execute(sql).await.unwrap();
    }

    pub(crate) async fn workload(&self) -> Workload {
        let change = Workload::create(new_workload(), &stamp()).unwrap();
        let workload = change.next.clone();
        WorkloadStore::commit_new(&*self.store, scope(), change, None).await.unwrap();
        workload
    }

    pub(crate) async fn asset(&self, kind: AssetKind) -> Asset {
        let change = Asset::create(new_asset(kind), &stamp());
        let asset = change.next.clone();
        AssetStore::commit_new(&*self.store, scope(), change, None).await.unwrap();
        asset
    }

    pub(crate) async fn version(&self, asset: &Asset, label: Option<&str>) -> AssetVersion {
        let label = label.map(|text| VersionLabel::parse(text).unwrap());
        let change = asset.add_version(fresh(), label, content_with_attachments(), &stamp()).unwrap();
        self.store.commit_version(scope(), change, None).await.unwrap()
    }

    /// A draft release of the workload for `dev`.
    pub(crate) async fn draft(&self, workload: &Workload) -> Release {
        let change = Release::draft(new_release(workload), &stamp());
        let release = change.next.clone();
        ReleaseStore::commit_draft(&*self.store, scope(), change, None).await.unwrap();
        release
    }

    /// A version of a policy bundle that a release can bind.
    pub(crate) async fn bindable(&self) -> BindableVersion {
        self.bindable_as(AssetKind::PolicyBundle).await
    }

    /// A version of this asset kind that a release can bind.
    pub(crate) async fn bindable_as(&self, kind: AssetKind) -> BindableVersion {
        let asset = self.asset(kind).await;
        let version = self.version(&asset, None).await;
        BindableVersion {
            asset_version_id: version.asset_version_id,
            checksum: version.checksum,
            version_label: version.version_label,
            asset_id: asset.asset_id,
            asset_slug: asset.slug.clone(),
            kind: asset.kind,
            lifecycle: Lifecycle::Active,
        }
    }

    /// Creates a release that binds the version, and submits it for review.
    pub(crate) async fn submitted(&self, workload: &Workload, version: &BindableVersion) -> ReleaseWithDeployment {
        let draft = self.draft(workload).await;
        let change = draft.bind(fresh(), AssetKind::PolicyBundle, version, &stamp()).unwrap();
        self.store.commit_binding(scope(), change, None).await.unwrap();
        let deployed_release = self.current_release(&draft).await;
        let change = deployed_release
            .release
            .submit(Ok(vec![self_reference(version)]), &deployed_release.deployment, &stamp())
            .unwrap();
        self.store.commit_transition(scope(), change, None).await.unwrap();
        self.current_release(&draft).await
    }

    /// Creates a release that binds the version, submits it and approves it.
    pub(crate) async fn approved(&self, workload: &Workload, version: &BindableVersion) -> ReleaseWithDeployment {
        let deployed_release = self.submitted(workload, version).await;
        let change = deployed_release
            .release
            .record_verdict(fresh(), ReleaseVerdict::Approved, Note::parse("read it"), RULE, &stamp())
            .unwrap();
        self.store.commit_review(scope(), change, None).await.unwrap();
        let deployed_release = self.current_release(&deployed_release.release).await;
        let change = deployed_release.release.move_to_approved(RULE, &deployed_release.deployment, &stamp()).unwrap();
        self.store.commit_transition(scope(), change, None).await.unwrap();
        self.current_release(&deployed_release.release).await
    }

    /// Creates a workload, and a release that holds all of its lanes.
    pub(crate) async fn active(&self) -> (Workload, ReleaseWithDeployment) {
        let workload = self.workload().await;
        let version = self.bindable().await;
        let deployed_release = self.approved(&workload, &version).await;
        self.store.commit_lane_change(scope(), activation(&deployed_release, None), None).await.unwrap();
        let deployed_release = self.current_release(&deployed_release.release).await;
        let body = GovernanceChain::for_release(&deployed_release.release, &workload).to_snapshot().body;
        let snapshot = EvidenceSnapshot { digest: snapshot_digest(&deployed_release), body };
        self.store.store_evidence_snapshot(scope(), &snapshot).await.unwrap();
        (workload, deployed_release)
    }

    /// Reads the current state of a release, with its deployment.
    pub(crate) async fn current_release(&self, release: &Release) -> ReleaseWithDeployment {
        ReleaseStore::find(&*self.store, scope(), release.release_id).await.unwrap().unwrap()
    }

    /// The current revisions, under which a run of this release is accepted.
    pub(crate) async fn expected_revisions(
        &self,
        workload: &Workload,
        deployed_release: &ReleaseWithDeployment,
    ) -> ExpectedRevisions {
        let access = self.query_number("SELECT access_revision FROM tenant WHERE slug = 'default'").await;
        ExpectedRevisions {
            deployment: deployed_release.deployment.revision,
            workload: workload.revision,
            access: Revision::new(access),
        }
    }
}

/// Connects as the login role.
pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = url.parse::<Config>().unwrap().connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Duration of leases, longer than any test. Leases expire only when a test moves the clock: otherwise a claim could
/// reclaim expired leases before it takes queued runs.
pub(crate) const LEASE: Duration = Duration::from_secs(240);

/// Retention time of results in tests.
pub(crate) const RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

pub(crate) fn open_store(url: &str, connections: usize) -> Arc<Database> {
    Arc::new(Database::new(&DatabaseOptions { url: url.to_owned(), connections, result_retention: RETENTION }).unwrap())
}

pub(crate) fn scope() -> TenantScope {
    TenantScope::for_background_task(TenantId::from(DEFAULT_TENANT_ID))
}

pub(crate) fn fresh<T: From<Uuid>>() -> T {
    Uuid::now_v7().into()
}

pub(crate) fn now() -> Timestamp {
    Timestamp::new(OffsetDateTime::now_utc())
}

pub(crate) fn actor() -> ActorRef {
    ActorRef::parse("user:ada").unwrap()
}

pub(crate) fn stamp() -> Stamp {
    Stamp { fact_id: fresh(), at: now(), actor: actor(), request_id: fresh() }
}

/// A unique slug.
pub(crate) fn slug() -> Slug {
    Slug::parse(&format!("s{}", Uuid::now_v7().simple())).unwrap()
}

pub(crate) fn environment() -> Slug {
    Slug::parse("dev").unwrap()
}

pub(crate) fn content() -> Canonical {
    Canonical::of(&json!({ "b": [1, 2.5, "ä"], "a": Uuid::now_v7().to_string() })).unwrap()
}

/// Content with all optional parts: source text, note and reference.
pub(crate) fn content_with_attachments() -> VersionContent {
    let reference = AssetReference {
        slug: slug(),
        version: VersionLabel::parse("v1"),
        pointer: "/a".to_owned(),
        kinds: Vec::new(),
    };
    VersionContent {
        canonical: content(),
        source_text: Some("source".to_owned()),
        change_note: Note::parse("because"),
        references: vec![reference],
    }
}

pub(crate) fn new_asset(kind: AssetKind) -> NewAsset {
    NewAsset {
        asset_id: fresh(),
        slug: slug(),
        kind,
        owner_ref: OwnerRef::parse("team:risk").unwrap(),
        workspace_id: DEFAULT_WORKSPACE_ID.into(),
        namespace_id: DEFAULT_NAMESPACE_ID.into(),
    }
}

pub(crate) fn new_workload() -> NewWorkload {
    NewWorkload {
        workload_id: fresh(),
        slug: slug(),
        name: None,
        description: None,
        owner_ref: OwnerRef::parse("team:support").unwrap(),
        invocation_mode: IntendedUse::Form,
        workspace_id: DEFAULT_WORKSPACE_ID.into(),
        namespace_id: DEFAULT_NAMESPACE_ID.into(),
    }
}

pub(crate) fn new_release(workload: &Workload) -> NewRelease {
    NewRelease {
        release_id: fresh(),
        workload_id: workload.workload_id,
        workspace_id: workload.workspace_id,
        environment: environment(),
        target_lane: TargetLane::All,
        policy_bundle_id: None,
    }
}

/// A reference of the version to itself. Stores accept it, because they do not check references.
pub(crate) fn self_reference(version: &BindableVersion) -> FrozenReference {
    FrozenReference {
        from_version_id: version.asset_version_id,
        slug: version.asset_slug.clone(),
        label: None,
        asset_id: version.asset_id,
        kind: version.kind,
        asset_version_id: version.asset_version_id,
        version_label: version.version_label.clone(),
        checksum: version.checksum.clone(),
    }
}

/// Activates an approved or active release: on one lane, or on all lanes that it does not hold.
pub(crate) fn activation(deployed_release: &ReleaseWithDeployment, lane: Option<Lane>) -> DeploymentChange {
    let selection = lane.map_or(LaneSelection::All, LaneSelection::One);
    deployed_release
        .release
        .activate(&selection, &deployed_release.deployment, &passing_checks(), RULE, &stamp())
        .unwrap()
}

/// An activation report without problems.
pub(crate) const fn passing_checks() -> ActivationReport {
    ActivationReport {
        primary_route: None,
        flow: FlowStatus::Absent,
        tools: Vec::new(),
        unsupported_obligations: Vec::new(),
        undeclared_inputs: Vec::new(),
        unpassed_variables: Vec::new(),
        unsupported_controls: Vec::new(),
        unsupported_memory: Vec::new(),
        unenforced_controls: Vec::new(),
        has_no_route: false,
        route_accounts: Vec::new(),
        is_workload_retired: false,
        is_use_case_inactive: false,
    }
}

/// The digest of a run's snapshot. It is the same for all runs of a release, because no test reads the snapshot's
/// content.
fn snapshot_digest(deployed_release: &ReleaseWithDeployment) -> [u8; 32] {
    let id = *deployed_release.release.release_id.uuid().as_bytes();
    std::array::from_fn(|index| id[index % id.len()])
}

/// An admitted run of the release on the lane `standard`.
pub(crate) fn acceptance(deployed_release: &ReleaseWithDeployment) -> Acceptance {
    Acceptance {
        execution_id: fresh(),
        workload_id: deployed_release.release.workload_id,
        workspace_id: deployed_release.release.workspace_id,
        release_id: deployed_release.release.release_id,
        environment: deployed_release.release.environment.clone(),
        lane: Lane::Standard,
        submitter: actor(),
        snapshot: snapshot_digest(deployed_release),
        decision: decision(policy::DecisionOutcome::Allow),
        inputs: Payload { body: json!({ "ticket": "I was charged twice" }).to_string().into(), salt: [1; 16] },
        request_context: RequestContext {
            request_id: fresh(),
            groups: vec!["group:care".to_owned()],
            lane: "standard".to_owned(),
            session: None,
        },
        started_at: now(),
        admission: AdmissionDecision::Run { lease: fresh(), lease_for: LEASE, deadline_in: Duration::from_secs(600) },
        delegated_access: AdditionalAccess::default(),
    }
}

/// An admitted run like [`acceptance`], but queued.
pub(crate) fn queued(deployed_release: &ReleaseWithDeployment) -> Acceptance {
    Acceptance { admission: AdmissionDecision::Queue { limit: 100_000 }, ..acceptance(deployed_release) }
}

/// The acceptance of a script, like [`acceptance`] for a run.
pub(crate) fn script(deployed_release: &ReleaseWithDeployment) -> Acceptance {
    let run = acceptance(deployed_release);
    let admission = AdmissionDecision::Script {
        lease: fresh(),
        lease_for: LEASE,
        deadline_in: Duration::from_secs(600),
        fact: Box::new(run_ref(&run).code_accepted_fact(Language::Starlark, &stamp())),
    };
    Acceptance { admission, ..run }
}

/// A claim by a worker with free capacity.
pub(crate) fn claim() -> Claim {
    Claim {
        lease: fresh(),
        lost_leases: Vec::new(),
        lease_for: LEASE,
        deadline_after: Duration::from_secs(600),
        limit: 100,
        per_tenant_limit: 100,
        after_tenant: None,
        saturated: Vec::new(),
        max_input_bytes: 128 << 10,
        takes_large: true,
        no_large_tenants: Vec::new(),
    }
}

/// A run like [`acceptance`], but denied by policy.
pub(crate) fn denied(deployed_release: &ReleaseWithDeployment) -> Acceptance {
    let mut run = acceptance(deployed_release);
    run.decision = decision(policy::DecisionOutcome::Deny);
    run.admission = AdmissionDecision::Deny(Box::new(run_ref(&run).denied_fact(&run.decision, &stamp())));
    run
}

fn decision(outcome: policy::DecisionOutcome) -> RecordedDecision {
    RecordedDecision {
        decision_id: fresh(),
        outcome,
        reason_code: "a_rule".to_owned(),
        obligations: vec!["record".to_owned()],
        rules: vec!["rule".to_owned()],
        failed_rules: vec![FailedRule {
            rule: "failed".to_owned(),
            missing_field: Some(r#"{odd "name", \N}"#.to_owned()),
        }],
        evaluated_at: now(),
    }
}

pub(crate) fn run_ref(run: &Acceptance) -> RunRef<'_> {
    RunRef {
        execution_id: run.execution_id,
        workload_id: run.workload_id,
        workspace_id: run.workspace_id,
        release_id: run.release_id,
        environment: &run.environment,
        input_digest: run.inputs.digest(),
    }
}

pub(crate) fn lease_of(run: &Acceptance) -> Uuid {
    match &run.admission {
        AdmissionDecision::Run { lease, .. } | AdmissionDecision::Script { lease, .. } => *lease,
        AdmissionDecision::Queue { .. } | AdmissionDecision::Deny(_) => panic!("a queued or denied run holds no lease"),
    }
}

/// The ending of a completed run, with an output, a step, an event, a second decision, an artifact with a payload, a
/// fulfilled obligation, and a lineage item.
pub(crate) fn ending(run: &Acceptance) -> FinishRecord {
    let output = Payload { body: json!({ "output": "billing", "metadata": {} }).to_string().into(), salt: [2; 16] };
    let artifact_id = fresh();
    FinishRecord {
        execution_id: run.execution_id,
        lease: lease_of(run),
        status: Status::Completed,
        outcome: ExecutionOutcome::Success,
        review_timeout: None,
        error: None,
        steps: vec![StepRecord {
            step_id: "answer".to_owned(),
            step_type: "return",
            failure: None,
            duration: Duration::from_micros(250),
        }],
        decisions: vec![decision(policy::DecisionOutcome::Allow)],
        artifacts: vec![EvidenceArtifact {
            artifact_id,
            kind: "provider_call",
            storage_ref: ArtifactPath::of_database_evidence(run.execution_id, artifact_id, "provider_call.json"),
            body: Map::from_iter([("tokens".to_owned(), json!(3))]),
            payload: Some(Payload { body: r#"{"calls":[]}"#.into(), salt: [3; 16] }),
            created_at: now(),
        }],
        lineage: vec![LineageItem {
            lineage_id: fresh(),
            origin: Origin::UserInput,
            influence_role: InfluenceRole::Input,
            action_class: ActionClass::Generate,
            reference: "inputs".to_owned(),
            digest: run.inputs.digest(),
            size_bytes: 2,
            untrusted: Some(UntrustedReason::UserSupplied),
            created_at: now(),
        }],
        fulfilled: vec![(policy::Obligation::RecordTranscript, now())],
        progress: Some(ProgressRecord {
            position: 1,
            answer: None,
            events: vec![RunEvent::step_completed("answer", None)],
        }),
        writeback: None,
        finished_at: now(),
        fact: run_ref(run).ended_fact(ExecutionOutcome::Success, None, Some(&output), &stamp()),
        output: Some(output),
    }
}
