//! Input columns of statements that write releases, their rollouts and their frozen references.

use crate::guarded_commit::Input;
use fairway_domain::{
    asset::VersionLabel,
    release::{
        BindingsDigest, Release, State,
        deployment::{DeploymentChange, SoakEffect},
        frozen_reference::FrozenReference,
        lane::Lane,
    },
    rollout::{AdvanceMode, Rollout},
    store::Revision,
};
use std::collections::BTreeSet;
use uuid::Uuid;

/// Adds the columns of a release's rollout, whether a soak starts, and whether the previous soak must have ended.
pub(super) fn add_rollout_columns<'v>(input: Input<'v>, change: &'v DeploymentChange) -> Input<'v> {
    let rollout = change.release.rollout.as_ref();
    let starts_soak = match change.soak {
        SoakEffect::Begun => true,
        SoakEffect::Kept => false,
    };
    let holds = |rollout: &'v Rollout| rollout.hold_reasons.iter().map(|hold| hold.as_str()).collect();
    input
        .with("rollout_status", rollout.map(|rollout| rollout.status.as_str()))
        .with_optional_list("rollout_lanes", rollout.map(|rollout| rollout.plan.lanes().map(Lane::as_str).collect()))
        // The conversion cannot fail: the domain limits a soak to one month.
        .with("soak_minutes", rollout.map(|rollout| i32::try_from(rollout.plan.soak_minutes()).unwrap_or(i32::MAX)))
        .with("auto_advance", rollout.map(|rollout| rollout.plan.advance_mode() == AdvanceMode::Automatic))
        .with("rollout_index", rollout.map(|rollout| i16::from(rollout.current_index)))
        .with("rollout_since", rollout.map(|rollout| rollout.since_revision.get()))
        .with_list("rollout_holds", rollout.map_or_else(Vec::new, holds))
        .with("starts_soak", starts_soak)
        .with("requires_ended_soak", change.requires_ended_soak)
}

/// Adds the columns that a transition of a release changes.
pub(super) fn add_release_columns<'v>(
    input: Input<'v>,
    release: &'v Release,
    expected_revision: Revision,
) -> Input<'v> {
    input
        .with("release_id", release.release_id.uuid())
        .with("expected_revision", expected_revision.get())
        .with("state", release.state.name().as_str())
        .with("bindings_digest", release.state.digest().map(BindingsDigest::as_str))
        .with("revision", release.revision.get())
        .with("updated_at", release.updated_at.to_datetime())
}

/// The references that a release freezes when it leaves draft, one vector for each column, and the distinct assets
/// to which they refer.
pub(super) struct ReferenceRows<'a> {
    from_versions: Vec<Uuid>,
    slugs: Vec<&'a str>,
    labels: Vec<&'a str>,
    to_versions: Vec<Uuid>,
    assets: Vec<Uuid>,
}

impl<'a> ReferenceRows<'a> {
    pub(super) fn of(release: &'a Release) -> Self {
        let frozen: &[FrozenReference] = match release.state {
            State::ReviewReady { .. } => &release.references,
            // In other states the references are already stored, since the release became ready for review.
            State::Draft
            | State::Approved { .. }
            | State::Active { .. }
            | State::Superseded { .. }
            | State::Retired { .. } => &[],
        };
        Self {
            from_versions: frozen.iter().map(|reference| reference.from_version_id.uuid()).collect(),
            slugs: frozen.iter().map(|reference| reference.slug.as_str()).collect(),
            labels: frozen.iter().map(|reference| reference.label.as_ref().map_or("", VersionLabel::as_str)).collect(),
            to_versions: frozen.iter().map(|reference| reference.asset_version_id.uuid()).collect(),
            assets: BTreeSet::from_iter(frozen.iter().map(|reference| reference.asset_id.uuid())).into_iter().collect(),
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.from_versions.is_empty()
    }

    /// Adds the references as list columns.
    pub(super) fn add_to_input<'v>(self, input: Input<'v>) -> Input<'v>
    where
        'a: 'v,
    {
        input
            .with_list("from_versions", self.from_versions)
            .with_list("slugs", self.slugs)
            .with_list("labels", self.labels)
            .with_list("to_versions", self.to_versions)
            .with_list("referenced_assets", self.assets)
    }
}
