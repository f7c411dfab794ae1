//! The selected columns of releases and their artifacts, and the decoding of the rows.

use crate::{
    row::{Row, parse_json, require_decoded},
    schema::release_artifact,
};
use diesel::{Queryable, Selectable, pg::Pg};
use fairway_domain::{
    access::ActorRef,
    asset::{VersionLabel, canonical::Checksum, kind::AssetKind},
    release::{
        Binding, BindingsDigest, Release, ReleaseRecord, State, StateName,
        deployment::{Deployment, DeploymentRecord},
        frozen_reference::FrozenReference,
        lane::{Lane, TargetLane},
        ports::ReleaseWithDeployment,
        review::{ReleaseVerdict, ReviewerVerdict},
        rollback::ReleaseEvidenceArtifact,
    },
    rollout::{AdvanceMode, HoldReason, Rollout, RolloutPlan, RolloutRecord, RolloutStatus},
    slug::Slug,
    store::StoreError,
    time::Timestamp,
};
use serde::Deserialize;
use time::OffsetDateTime;
use uuid::Uuid;

/// The condition that the release's workload is not built in. It is a subquery for each row, so that no plan joins
/// all workloads.
pub(super) const NOT_BUILTIN: &str = "(
    SELECT management_source FROM workload
    WHERE workload.tenant_id = release.tenant_id AND workload.workload_id = release.workload_id
) IS DISTINCT FROM 'platform_builtin'";

pub(super) const RELEASE_COLUMNS: &str = "release_id, workload_id, release.workspace_id, environment, \
    release.target_lane, release.state, release.bindings_digest, release.policy_bundle_id, \
    release.supersedes_release_id, release.revision, release.created_at, release.created_by, release.updated_at, \
    release.rollout_status, release.rollout_lanes, release.rollout_soak_minutes, release.rollout_auto_advance, \
    release.rollout_index, release.rollout_since, release.soak_started_at, release.rollout_holds, release.rollback_advised";

pub(crate) const DEPLOYMENT_COLUMNS: &str = "restricted_release_id, guided_release_id, standard_release_id, \
    soaking_lanes, deployment.revision AS deployment_revision";

pub(super) const BINDINGS: &str = "(
    SELECT coalesce(json_agg(json_build_object(
        'binding_id', binding_id, 'role', role, 'asset_version_id', asset_version_id, 'checksum', checksum,
        'version_label', version_label, 'asset_id', asset_id, 'asset_slug', asset.slug,
        'created_at', bound.created_at, 'created_by', bound.created_by) ORDER BY binding_id), '[]')::text
    FROM release_binding AS bound
    JOIN asset_version USING (tenant_id, asset_version_id) JOIN asset USING (tenant_id, asset_id)
    WHERE bound.tenant_id = release.tenant_id AND bound.release_id = release.release_id) AS bindings";

pub(super) const APPROVALS: &str = "(
    SELECT coalesce(json_agg(json_build_object(
        'approval_id', approval_id, 'outcome', outcome, 'subject_digest', subject_digest,
        'approved_by', approved_by, 'approved_at', approved_at,
        'age', floor(greatest(extract(epoch FROM fairway_now() - recorded_at), 0))) ORDER BY release_revision), '[]')::text
    FROM approval WHERE approval.tenant_id = release.tenant_id AND approval.release_id = release.release_id) AS approvals";

/// The references that were frozen under the release's bindings digest. A draft has no digest, and so no frozen
/// references.
pub(super) const REFERENCES: &str = "(
    SELECT coalesce(json_agg(json_build_object(
        'from', from_version_id, 'slug', frozen.slug, 'label', nullif(label, ''), 'asset_id', asset.asset_id,
        'asset_kind', asset.asset_kind, 'asset_version_id', to_version_id, 'version_label', version_label, 'checksum', checksum)), '[]')::text
    FROM release_reference AS frozen
    JOIN asset_version AS target ON target.tenant_id = frozen.tenant_id AND target.asset_version_id = to_version_id
    JOIN asset ON asset.tenant_id = target.tenant_id AND asset.asset_id = target.asset_id
    WHERE frozen.tenant_id = release.tenant_id AND frozen.release_id = release.release_id
        AND frozen.bindings_digest = release.bindings_digest) AS frozen_references";

#[derive(Deserialize)]
struct ReferenceRow {
    from: Uuid,
    slug: String,
    label: Option<String>,
    asset_id: Uuid,
    asset_kind: String,
    asset_version_id: Uuid,
    version_label: String,
    checksum: String,
}

fn reference(row: ReferenceRow) -> Result<FrozenReference, StoreError> {
    let label = row.label.map(|label| require_decoded("label", VersionLabel::parse(&label))).transpose()?;
    Ok(FrozenReference {
        from_version_id: row.from.into(),
        slug: require_decoded("slug", Slug::parse(&row.slug).ok())?,
        label,
        asset_id: row.asset_id.into(),
        kind: require_decoded("asset_kind", AssetKind::parse(&row.asset_kind))?,
        asset_version_id: row.asset_version_id.into(),
        version_label: require_decoded("version_label", VersionLabel::parse(&row.version_label))?,
        checksum: require_decoded("checksum", Checksum::parse(&row.checksum))?,
    })
}

#[derive(Deserialize)]
struct BindingRow {
    binding_id: Uuid,
    role: String,
    asset_version_id: Uuid,
    checksum: String,
    version_label: String,
    asset_id: Uuid,
    asset_slug: String,
    created_at: Timestamp,
    created_by: String,
}

fn binding(row: BindingRow) -> Result<Binding, StoreError> {
    Ok(Binding {
        binding_id: row.binding_id.into(),
        role: require_decoded("role", AssetKind::parse(&row.role))?,
        asset_version_id: row.asset_version_id.into(),
        checksum: require_decoded("checksum", Checksum::parse(&row.checksum))?,
        version_label: require_decoded("version_label", VersionLabel::parse(&row.version_label))?,
        asset_id: row.asset_id.into(),
        asset_slug: require_decoded("asset_slug", Slug::parse(&row.asset_slug).ok())?,
        created_at: row.created_at,
        created_by: require_decoded("created_by", ActorRef::parse(&row.created_by).ok())?,
    })
}

#[derive(Deserialize)]
struct ApprovalRow {
    approval_id: Uuid,
    outcome: String,
    subject_digest: String,
    approved_by: String,
    approved_at: Timestamp,
    age: u64,
}

fn approval(row: ApprovalRow) -> Result<ReviewerVerdict, StoreError> {
    Ok(ReviewerVerdict {
        approval_id: row.approval_id.into(),
        verdict: require_decoded("outcome", ReleaseVerdict::parse(&row.outcome))?,
        by: require_decoded("approved_by", ActorRef::parse(&row.approved_by).ok())?,
        at: row.approved_at,
        note: None,
        subject_digest: BindingsDigest::from_stored(row.subject_digest),
        age_seconds: row.age,
    })
}

pub(super) fn decode_release(row: &Row) -> Result<Release, StoreError> {
    let name = row.parse_column("state", StateName::parse)?;
    let digest = row.column::<Option<String>>("bindings_digest")?.map(BindingsDigest::from_stored);
    Ok(Release::restore(ReleaseRecord {
        release_id: row.id("release_id")?,
        workload_id: row.id("workload_id")?,
        workspace_id: row.id("workspace_id")?,
        environment: row.slug("environment")?,
        target_lane: row.parse_column("target_lane", TargetLane::parse)?,
        state: require_decoded("state", State::from_parts(name, digest))?,
        policy_bundle_id: row.optional_id("policy_bundle_id")?,
        supersedes_release_id: row.optional_id("supersedes_release_id")?,
        rollout: rollout(row)?,
        rollback_advised: row.column("rollback_advised")?,
        bindings: Vec::new(),
        references: Vec::new(),
        approvals: Vec::new(),
        created_at: row.timestamp("created_at")?,
        created_by: row.actor("created_by")?,
        updated_at: row.timestamp("updated_at")?,
        revision: row.revision("revision")?,
    }))
}

fn rollout(row: &Row) -> Result<Option<Rollout>, StoreError> {
    let Some(status) = row.column::<Option<String>>("rollout_status")? else { return Ok(None) };
    let sequence = lanes("rollout_lanes", &row.column::<Vec<String>>("rollout_lanes")?)?;
    let minutes = u32::try_from(row.column::<i32>("rollout_soak_minutes")?).ok();
    let minutes = require_decoded("rollout_soak_minutes", minutes)?;
    let advance_mode = if row.column("rollout_auto_advance")? { AdvanceMode::Automatic } else { AdvanceMode::Manual };
    let holds = row.column::<Vec<String>>("rollout_holds")?;
    Ok(Some(Rollout::restore(RolloutRecord {
        plan: require_decoded("rollout_lanes", RolloutPlan::new(&sequence, minutes, advance_mode).ok())?,
        status: require_decoded("rollout_status", RolloutStatus::parse(&status))?,
        current_index: require_decoded("rollout_index", u8::try_from(row.column::<i16>("rollout_index")?).ok())?,
        since_revision: row.revision("rollout_since")?,
        soak_started_at: row.timestamp("soak_started_at")?,
        hold_reasons: holds
            .iter()
            .map(|hold| require_decoded("rollout_holds", HoldReason::parse(hold)))
            .collect::<Result<_, _>>()?,
    })))
}

fn lanes(name: &'static str, names: &[String]) -> Result<Vec<Lane>, StoreError> {
    names.iter().map(|lane| require_decoded(name, Lane::parse(lane))).collect()
}

pub(crate) fn decode_deployment(row: &Row) -> Result<Deployment, StoreError> {
    Ok(Deployment::restore(DeploymentRecord {
        workload_id: row.id("workload_id")?,
        environment: row.slug("environment")?,
        restricted: row.optional_id("restricted_release_id")?,
        guided: row.optional_id("guided_release_id")?,
        standard: row.optional_id("standard_release_id")?,
        soaking: lanes("soaking_lanes", &row.column::<Vec<String>>("soaking_lanes")?)?,
        revision: row.revision("deployment_revision")?,
    }))
}

pub(super) fn decode_release_with_deployment(row: &Row) -> Result<ReleaseWithDeployment, StoreError> {
    let bindings: Vec<BindingRow> = parse_json(row.column("bindings")?)?;
    let approvals: Vec<ApprovalRow> = parse_json(row.column("approvals")?)?;
    let frozen: Vec<ReferenceRow> = parse_json(row.column("frozen_references")?)?;
    let mut references = frozen.into_iter().map(reference).collect::<Result<Vec<_>, _>>()?;
    references.sort_unstable();
    let release = Release::restore(ReleaseRecord {
        references,
        bindings: bindings.into_iter().map(binding).collect::<Result<_, _>>()?,
        approvals: approvals.into_iter().map(approval).collect::<Result<_, _>>()?,
        ..decode_release(row)?.into_record()
    });
    Ok(ReleaseWithDeployment { release, deployment: decode_deployment(row)? })
}

pub(super) const ARTIFACT_COLUMNS: &str =
    "release_id, artifact_id, artifact_kind, content, checksum, created_at, created_by";

pub(super) fn decode_artifact(row: &Row) -> Result<ReleaseEvidenceArtifact, StoreError> {
    let stored = StoredArtifact {
        artifact_id: row.column("artifact_id")?,
        release_id: row.column("release_id")?,
        artifact_kind: row.column("artifact_kind")?,
        content: row.column("content")?,
        checksum: row.column("checksum")?,
        created_at: row.column("created_at")?,
        created_by: row.column("created_by")?,
    };
    stored.into_value()
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = release_artifact, check_for_backend(Pg))]
pub(super) struct StoredArtifact {
    artifact_id: Uuid,
    release_id: Uuid,
    artifact_kind: String,
    content: String,
    checksum: String,
    created_at: OffsetDateTime,
    created_by: String,
}

impl StoredArtifact {
    pub(super) fn into_value(self) -> Result<ReleaseEvidenceArtifact, StoreError> {
        Ok(ReleaseEvidenceArtifact {
            artifact_id: self.artifact_id.into(),
            release_id: self.release_id.into(),
            kind: self.artifact_kind,
            content: self.content,
            checksum: require_decoded("checksum", Checksum::parse(&self.checksum))?,
            created_at: Timestamp::new(self.created_at),
            created_by: require_decoded("created_by", ActorRef::parse(&self.created_by).ok())?,
        })
    }
}
