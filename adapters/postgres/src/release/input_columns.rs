//! Input columns of statements that write releases, their rollouts and their frozen references.

use crate::{guarded_commit::Input, param::array_literal};
use fairway_domain::{
    asset::VersionLabel,
    id::ReleaseId,
    release::{
        BindingsDigest, Release, State,
        deployment::{DeploymentChange, SoakEffect},
        frozen_reference::FrozenReference,
        lane::{Lane, LaneMove},
    },
    rollout::{AdvanceMode, Rollout},
    store::Revision,
};
use std::collections::BTreeSet;
use uuid::Uuid;

/// Adds the columns of the releases that lane changes assign: those of their states and rollouts, whether a soak starts,
/// and whether the previous soak must have ended.
pub(super) fn add_changed_release_columns<'v, C>(input: Input<'v>, changes: impl Fn() -> C) -> Input<'v>
where
    C: Iterator<Item = &'v DeploymentChange>,
{
    let releases = || changes().map(|change| &change.release);
    let rollouts = || releases().map(|release| release.rollout.as_ref());
    let starts_soak = |change: &DeploymentChange| match change.soak {
        SoakEffect::Begun => true,
        SoakEffect::Kept => false,
    };
    let holds = |rollout: &Rollout| array_literal(rollout.hold_reasons.iter().map(|hold| Some(hold.as_str())));
    input
        .with_column("release_id", releases().map(|release| release.release_id.uuid()))
        .with_column("expected_revision", changes().map(|change| change.expected_release_revision.get()))
        .with_column("state", releases().map(|release| release.state.name().as_str()))
        .with_column("bindings_digest", releases().map(|release| release.state.digest().map(BindingsDigest::as_str)))
        .with_column("revision", releases().map(|release| release.revision.get()))
        .with_column("updated_at", releases().map(|release| release.updated_at.to_datetime()))
        .with_column("supersedes", releases().map(|release| release.supersedes_release_id.map(ReleaseId::uuid)))
        .with_column("rollout_status", rollouts().map(|rollout| rollout.map(|rollout| rollout.status.as_str())))
        .with_column(
            "rollout_lanes",
            rollouts().map(|rollout| rollout.map(|rollout| lanes_literal(rollout.plan.lanes()))),
        )
        // The conversion cannot fail: the domain limits a soak to one month.
        .with_column(
            "soak_minutes",
            rollouts()
                .map(|rollout| rollout.map(|rollout| i32::try_from(rollout.plan.soak_minutes()).unwrap_or(i32::MAX))),
        )
        .with_column(
            "auto_advance",
            rollouts().map(|rollout| rollout.map(|rollout| rollout.plan.advance_mode() == AdvanceMode::Automatic)),
        )
        .with_column("rollout_index", rollouts().map(|rollout| rollout.map(|rollout| i16::from(rollout.current_index))))
        .with_column("rollout_since", rollouts().map(|rollout| rollout.map(|rollout| rollout.since_revision.get())))
        .with_column("rollout_holds", rollouts().map(|rollout| rollout.map_or_else(|| "{}".to_owned(), holds)))
        .with_column("starts_soak", changes().map(starts_soak))
        .with_column("requires_ended_soak", changes().map(|change| change.requires_ended_soak))
}

/// Encodes lanes as a PostgreSQL array literal.
pub(super) fn lanes_literal(lanes: impl IntoIterator<Item = Lane>) -> String {
    array_literal(lanes.into_iter().map(|lane| Some(lane.as_str())))
}

/// Encodes releases as a PostgreSQL array literal.
pub(super) fn releases_literal(releases: &[ReleaseId]) -> String {
    array_literal(releases.iter().map(|release| Some(release.uuid().to_string())))
}

/// Encodes one lane holder of each move as a PostgreSQL array literal.
pub(super) fn holders_literal(moves: &[LaneMove], holder: impl Fn(&LaneMove) -> Option<ReleaseId>) -> String {
    array_literal(moves.iter().map(|lane_move| holder(lane_move).map(|release| release.uuid().to_string())))
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

/// The references that the transition to the state of this release freezes.
pub(super) fn frozen_references(release: &Release) -> &[FrozenReference] {
    match release.state {
        State::ReviewReady { .. } => &release.references,
        // In other states the references are already stored, since the release became ready for review.
        State::Draft
        | State::Approved { .. }
        | State::Active { .. }
        | State::Superseded { .. }
        | State::Retired { .. } => &[],
    }
}

impl<'a> ReferenceRows<'a> {
    pub(super) fn of(release: &'a Release) -> Self {
        let frozen = frozen_references(release);
        Self {
            from_versions: frozen.iter().map(|reference| reference.from_version_id.uuid()).collect(),
            slugs: frozen.iter().map(|reference| reference.slug.as_str()).collect(),
            labels: frozen.iter().map(|reference| reference.label.as_ref().map_or("", VersionLabel::as_str)).collect(),
            to_versions: frozen.iter().map(|reference| reference.asset_version_id.uuid()).collect(),
            assets: BTreeSet::from_iter(frozen.iter().map(|reference| reference.asset_id.uuid())).into_iter().collect(),
        }
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
