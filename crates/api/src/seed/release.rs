//! Releases: drafted, bound and submitted by one, approved and activated by the other.

use super::{
    APPROVER, AUTHOR,
    asset::Version,
    manifest::ReleaseManifest,
    remote::{Remote, text},
    say,
};
use anyhow::{Context as _, bail};
use fairway_domain::{asset::kind::AssetKind, release::StateName};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What the approver says of what it saw.
const NOTE: &str = "Read and approved as part of the demo.";

/// A release to bring about.
struct Wanted<'a> {
    manifest: &'a ReleaseManifest,
    workload_id: &'a str,
    bound: Vec<&'a Version<'a>>,
}

/// Sees to it that the versions that the manifest names are active, and says each step.
pub(super) async fn ensure_active(
    remote: &Remote,
    manifest: &ReleaseManifest,
    workload_id: &str,
    versions: &BTreeMap<&str, Version<'_>>,
) -> anyhow::Result<()> {
    let bound = manifest.bindings.iter().map(|binding| {
        let version = versions.get(binding.asset.as_str());
        version.with_context(|| format!("the asset `{}` is not in the directory", binding.asset))
    });
    let wanted = Wanted { manifest, workload_id, bound: bound.collect::<anyhow::Result<_>>()? };
    if wanted.is_active(remote).await? {
        say(format_args!(
            "a release of `{}` with these versions is active in `{}`",
            manifest.workload, manifest.environment
        ));
        return Ok(());
    }
    let release = match wanted.unfinished(remote).await? {
        Some(release) => release,
        None => wanted.draft(remote).await?,
    };
    wanted.carry_on(remote, release).await
}

impl Wanted<'_> {
    fn version_ids(&self) -> BTreeSet<&str> {
        self.bound.iter().map(|version| version.asset_version_id.as_str()).collect()
    }

    /// The policy bundle that the release names besides binding a version of it.
    fn policy_bundle(&self) -> Option<&str> {
        let bundle = self.bound.iter().find(|version| version.kind == AssetKind::PolicyBundle);
        bundle.map(|version| version.asset_id.as_str())
    }

    async fn is_active(&self, remote: &Remote) -> anyhow::Result<bool> {
        let mut query = vec![("environment", self.manifest.environment.clone())];
        if self.manifest.target_lane != "all" {
            query.push(("lane", self.manifest.target_lane.clone()));
        }
        let path = ["workloads", self.workload_id, "active-release"];
        let active = remote.find(AUTHOR, &path, &query).await?;
        Ok(active.is_some_and(|active| bound_in(&active) == self.version_ids()))
    }

    /// A release on its way, of the same author with the same aim: what an earlier attempt left when it was interrupted.
    async fn unfinished(&self, remote: &Remote) -> anyhow::Result<Option<Value>> {
        let of_workload =
            [("workload_id", self.workload_id.to_owned()), ("environment", self.manifest.environment.clone())];
        for listed in remote.list(AUTHOR, &["releases"], &of_workload).await? {
            let same_aim = text(&listed, "created_by")? == AUTHOR
                && text(&listed, "target_lane")? == self.manifest.target_lane
                && listed.get("policy_bundle_id").and_then(Value::as_str) == self.policy_bundle();
            let on_its_way = match state_of(&listed)? {
                StateName::Draft | StateName::ReviewReady | StateName::Approved => true,
                StateName::Active | StateName::Superseded | StateName::Retired => false,
            };
            if !same_aim || !on_its_way {
                continue;
            }
            let found = remote.find(AUTHOR, &["releases", text(&listed, "release_id")?], &[]).await?;
            let Some(release) = found else { continue };
            let (there, wanted) = (bound_in(&release), self.version_ids());
            let fits = match state_of(&release)? {
                StateName::Draft => there.is_subset(&wanted),
                StateName::ReviewReady | StateName::Approved => there == wanted,
                StateName::Active | StateName::Superseded | StateName::Retired => false,
            };
            if fits {
                say(format_args!("release {} is on its way already", text(&release, "release_id")?));
                return Ok(Some(release));
            }
        }
        Ok(None)
    }

    async fn draft(&self, remote: &Remote) -> anyhow::Result<Value> {
        let ReleaseManifest { workload, environment, target_lane, .. } = self.manifest;
        let body = json!({
            "workload_id": self.workload_id,
            "environment": environment,
            "target_lane": target_lane,
            "policy_bundle_id": self.policy_bundle(),
        });
        let release = remote.post(AUTHOR, &["releases"], &body).await?;
        say(format_args!(
            "{AUTHOR} drafted release {} of `{workload}` for `{environment}`",
            text(&release, "release_id")?
        ));
        Ok(release)
    }

    /// Takes each step that is left until the release is active.
    async fn carry_on(&self, remote: &Remote, release: Value) -> anyhow::Result<()> {
        let id = text(&release, "release_id")?.to_owned();
        let mut release = release;
        loop {
            let state = state_of(&release)?;
            release = match state {
                StateName::Draft => {
                    self.bind(remote, &id, &release).await?;
                    let moved = transition(remote, AUTHOR, &id, StateName::ReviewReady).await?;
                    say(format_args!("{AUTHOR} submitted it for review"));
                    moved
                }
                StateName::ReviewReady => {
                    let verdict = json!({
                        "outcome": "approved", "subject_kind": "release", "subject_ref": id, "note": NOTE,
                    });
                    remote.post(APPROVER, &["releases", &id, "approvals"], &verdict).await?;
                    say(format_args!("{APPROVER} approved what it binds"));
                    transition(remote, APPROVER, &id, StateName::Approved).await?
                }
                StateName::Approved => {
                    let moved = transition(remote, APPROVER, &id, StateName::Active).await?;
                    say(format_args!("{APPROVER} activated it, target lane `{}`", self.manifest.target_lane));
                    moved
                }
                StateName::Active => return Ok(()),
                StateName::Superseded | StateName::Retired => {
                    bail!("somebody else moved the release to `{}`", state.as_str())
                }
            };
        }
    }

    async fn bind(&self, remote: &Remote, id: &str, release: &Value) -> anyhow::Result<()> {
        let there = bound_in(release);
        for version in self.bound.iter().filter(|version| !there.contains(version.asset_version_id.as_str())) {
            let body = json!({ "asset_version_id": version.asset_version_id, "role": version.kind });
            remote.post(AUTHOR, &["releases", id, "bindings"], &body).await?;
            say(format_args!("{AUTHOR} bound {version}"));
        }
        Ok(())
    }
}

async fn transition(remote: &Remote, actor: &str, id: &str, to: StateName) -> anyhow::Result<Value> {
    remote.post(actor, &["releases", id, "transition"], &json!({ "to_state": to.as_str() })).await
}

fn state_of(release: &Value) -> anyhow::Result<StateName> {
    StateName::parse(text(release, "state")?).context("the release is in a state that is not known here")
}

/// The versions that a release binds.
fn bound_in(release: &Value) -> BTreeSet<&str> {
    let bindings = release.get("bindings").and_then(Value::as_array).into_iter().flatten();
    bindings.filter_map(|binding| binding.get("asset_version_id")?.as_str()).collect()
}
