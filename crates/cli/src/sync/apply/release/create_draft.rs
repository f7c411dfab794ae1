//! Creates a draft while other actors may create the same draft.
//!
//! Drafts are equal if they have the same workload, environment, lane and policy. The API has no lock for the creation
//! of drafts, and the server assigns ids before drafts become visible. Therefore each actor checks three times for
//! other equal drafts, so that at most one of them stays complete:
//!
//! 1. Before an actor creates a draft, it searches for an equal complete draft, else for the equal draft with the
//!    lowest id. The actor uses the draft that it finds.
//! 2. After an actor has created a draft, and before it binds a version, it stops if another equal draft has a lower id
//!    or is complete.
//! 3. After an actor has bound all versions, it stops if a draft with a lower id exists. If that draft is complete, the
//!    actor removes the bindings of the draft that it completed, even if another actor created that draft. The actor
//!    that completed the draft with the lowest id removes the bindings of the other drafts.
//!
//! Two drafts cannot both stay complete. If the draft with the higher id is completed after check 2 of the other
//! actor, check 3 finds the lower id. If it is completed before, check 2 stops the other actor. Decision 0083
//! discusses the alternatives.

use super::{
    super::super::{
        plan::{ReleaseStep, bound_versions, stale_plan},
        remote_state::string_or_empty,
    },
    super::CONFLICT_OUTCOME,
    ChosenVersion, has_only, is_complete, unbind,
};
use crate::{
    failure::Failure,
    http_client::{ServerClient, required_string},
    output::eprint,
    terminal_text::sanitize,
};
use fairway_domain::{
    asset::{canonical::Checksum, kind::AssetKind},
    release::StateName,
};
use serde_json::{Value, json};

/// The server, the plan step and the versions for the creation of one draft.
pub(super) struct DraftCreation<'b> {
    server: &'b ServerClient,
    step: &'b ReleaseStep,
    chosen: &'b [ChosenVersion<'b>],
    workload_id: String,
    policy: Option<&'b str>,
}

impl<'b> DraftCreation<'b> {
    pub(super) fn new(
        server: &'b ServerClient,
        step: &'b ReleaseStep,
        chosen: &'b [ChosenVersion<'b>],
    ) -> Result<Self, Failure> {
        let workload = crate::workload::find_workload(server, &step.workload)?;
        let policy = chosen.iter().rfind(|choice| choice.role == AssetKind::PolicyBundle.as_str());
        let workload_id = required_string(&workload, "workload_id")?.to_owned();
        Ok(Self { server, step, chosen, workload_id, policy: policy.map(|choice| choice.asset_id) })
    }

    /// Searches the releases with the same lane and policy that were created since the plan. Returns a complete
    /// release, else the oldest release, else a new draft. A release that binds other versions is a conflict.
    pub(super) fn find_or_create(&self) -> Result<Value, Failure> {
        let (server, step) = (self.server, self.step);
        let mut earlier = Vec::new();
        for listed in self.created_since()?.iter().rev() {
            earlier.push(server.get(&["releases", required_string(listed, "release_id")?], &[])?);
        }
        let complete = earlier.iter().position(|found| is_complete(&bound_versions(found), self.chosen));
        if let Some(found) = earlier.into_iter().nth(complete.unwrap_or_default()) {
            return if has_only(&bound_versions(&found), self.chosen) { Ok(found) } else { Err(self.conflict()) };
        }
        let body = json!({
            "workload_id": self.workload_id,
            "environment": step.environment,
            "target_lane": step.target_lane,
            "policy_bundle_id": self.policy,
        });
        // Two attempts of one actor from the same state use the same idempotency key, and receive the same draft.
        let versions: Vec<&str> = self.chosen.iter().map(|choice| choice.version).collect();
        let key_parts = json!({ "draft": body, "after": step.newest, "versions": versions });
        let key = format!("fairway-sync-{}", Checksum::blake3_of(key_parts.to_string().as_bytes()).as_str());
        let draft = server.post_with_key(&["releases"], &body, &key)?;
        let id = required_string(&draft, "release_id")?;
        eprint(&format!("drafted release {id} of {} for {}", step.workload, step.environment));
        // Other actors have other idempotency keys, so they may have created equal drafts. A draft that is already
        // complete has priority regardless of its id.
        for other in self.others(id)? {
            if precedes(&other, id) || self.is_complete(&other)? {
                return Err(self.conflict());
            }
        }
        Ok(draft)
    }

    /// Performs check 3, after all versions are bound. Of equal drafts, the complete draft with the lowest id stays.
    /// The drafts without bindings are reused by later releases.
    ///
    /// # Errors
    /// When a draft with a lower id exists, because the plan is then stale.
    pub(super) fn verify_priority(&self, draft: &Value) -> Result<(), Failure> {
        let id = required_string(draft, "release_id")?;
        let (earlier, later): (Vec<Value>, Vec<Value>) =
            self.others(id)?.into_iter().partition(|other| precedes(other, id));
        if earlier.is_empty() {
            if is_complete(&bound_versions(draft), self.chosen) {
                later.iter().try_for_each(|other| self.empty(other))?;
            }
            return Ok(());
        }
        for other in &earlier {
            if self.is_complete(other)? {
                self.empty(draft)?;
                break;
            }
        }
        Err(self.conflict())
    }

    /// Removes all bindings of a draft that binds only versions of this step.
    fn empty(&self, listed: &Value) -> Result<(), Failure> {
        let id = required_string(listed, "release_id")?;
        let found = self.server.get(&["releases", id], &[])?;
        if !has_only(&bound_versions(&found), self.chosen) {
            return Ok(());
        }
        let bindings = found.get("bindings").and_then(Value::as_array).into_iter().flatten();
        let bindings: Vec<String> = bindings.map(|binding| string_or_empty(binding, "binding_id").to_owned()).collect();
        if bindings.is_empty() {
            return Ok(());
        }
        match unbind(self.server, id, &bindings) {
            // Another actor has submitted the draft.
            Err(refused) if refused.is_refusal("release_not_editable") => return Err(self.conflict()),
            result => result?,
        }
        eprint(&format!("emptied the draft {}: another actor drafts the same release", sanitize(id)));
        Ok(())
    }

    /// Releases with the same lane and policy that were created since the plan and are not retired, newest first.
    fn created_since(&self) -> Result<Vec<Value>, Failure> {
        let query = [("workload_id", self.workload_id.as_str()), ("environment", self.step.environment.as_str())];
        let releases = self.server.list(&["releases"], &query)?.into_iter();
        let newer =
            releases.take_while(|listed| self.step.newest.as_deref() != Some(string_or_empty(listed, "release_id")));
        let is_same_target = |found: &Value| {
            string_or_empty(found, "target_lane") == self.step.target_lane
                && found.get("policy_bundle_id").and_then(Value::as_str) == self.policy
                && string_or_empty(found, "state") != StateName::Retired.as_str()
        };
        Ok(newer.filter(is_same_target).collect())
    }

    fn others(&self, id: &str) -> Result<Vec<Value>, Failure> {
        let mut others = self.created_since()?;
        others.retain(|other| string_or_empty(other, "release_id") != id);
        Ok(others)
    }

    fn is_complete(&self, listed: &Value) -> Result<bool, Failure> {
        let found = self.server.get(&["releases", required_string(listed, "release_id")?], &[])?;
        Ok(is_complete(&bound_versions(&found), self.chosen))
    }

    fn conflict(&self) -> Failure {
        let (workload, environment) = (sanitize(&self.step.workload), sanitize(&self.step.environment));
        stale_plan(&format!("the releases of {workload} for {environment}"), CONFLICT_OUTCOME)
    }
}

/// Whether a release has priority over the release with this id. All actors compare ids as text, so all agree.
fn precedes(listed: &Value, id: &str) -> bool {
    string_or_empty(listed, "release_id") < id
}
