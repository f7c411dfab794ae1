//! Creates a draft while other actors may create the same draft.
//!
//! The API has no lock that lets only one actor draft a release, and ids are assigned before drafts become visible.
//! So each actor checks three times, and of equal drafts at most one stays complete:
//!
//! 1. Before it creates a draft, it looks for a complete one, or else the one with the lowest id, and uses that.
//! 2. After it created a draft and before it binds anything, it stops if an earlier draft or a complete one exists.
//! 3. After it bound all versions, it stops if an earlier draft exists, and empties its own if the earlier one is
//!    complete. The actor that completed the earliest draft empties the later ones.
//!
//! An actor that completes a later draft after check 2 of the earlier one sees the earlier one in check 3. One that
//! completed it before makes the earlier actor stop in check 2. Decision 0083 discusses the alternatives.

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
    http_client::{Server, required_string},
    output::eprint,
    terminal_text::sanitize,
};
use fairway_domain::{
    asset::{canonical::Checksum, kind::AssetKind},
    release::StateName,
};
use serde_json::{Value, json};

/// The creation of one draft.
pub(super) struct DraftCreation<'b> {
    server: &'b Server,
    step: &'b ReleaseStep,
    chosen: &'b [ChosenVersion<'b>],
    workload_id: String,
    policy: Option<&'b str>,
}

impl<'b> DraftCreation<'b> {
    pub(super) fn new(
        server: &'b Server,
        step: &'b ReleaseStep,
        chosen: &'b [ChosenVersion<'b>],
    ) -> Result<Self, Failure> {
        let workload = crate::workload::find_workload(server, &step.workload)?;
        let policy = chosen.iter().rfind(|choice| choice.role == AssetKind::PolicyBundle.as_str());
        let workload_id = required_string(&workload, "workload_id")?.to_owned();
        Ok(Self { server, step, chosen, workload_id, policy: policy.map(|choice| choice.asset_id) })
    }

    /// Returns a complete release that was created since the plan with the same lane and policy, or else the oldest one,
    /// or else creates a draft. A release that binds other versions is a conflict.
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
        // Two attempts of one actor from the same state use the same key, and get the same draft.
        let versions: Vec<&str> = self.chosen.iter().map(|choice| choice.version).collect();
        let asked = json!({ "draft": body, "after": step.newest, "versions": versions });
        let key = format!("fairway-sync-{}", Checksum::blake3_of(asked.to_string().as_bytes()).as_str());
        let made = server.post_with_key(&["releases"], &body, &key)?;
        let id = required_string(&made, "release_id")?;
        eprint(&format!("drafted release {id} of {} for {}", step.workload, step.environment));
        // Another actor's idempotency keys differ. A draft that was complete before this one became visible wins,
        // whatever its id.
        for other in self.others(id)? {
            if precedes(&other, id) || self.is_complete(&other)? {
                return Err(self.conflict());
            }
        }
        Ok(made)
    }

    /// Checks again after all versions are bound. Of equal drafts, the earliest complete one stays; a later release
    /// reuses the emptied ones.
    ///
    /// # Errors
    /// The plan is stale when an earlier draft exists.
    pub(super) fn verify_priority(&self, made: &Value) -> Result<(), Failure> {
        let id = required_string(made, "release_id")?;
        let (earlier, later): (Vec<Value>, Vec<Value>) =
            self.others(id)?.into_iter().partition(|other| precedes(other, id));
        if earlier.is_empty() {
            if is_complete(&bound_versions(made), self.chosen) {
                later.iter().try_for_each(|other| self.empty(other))?;
            }
            return Ok(());
        }
        for other in &earlier {
            if self.is_complete(other)? {
                self.empty(made)?;
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
            // Another actor submitted it.
            Err(refused) if refused.is_refusal("release_not_editable") => return Err(self.conflict()),
            removed => removed?,
        }
        eprint(&format!("emptied the draft {}: another actor drafts the same release", sanitize(id)));
        Ok(())
    }

    /// Unretired equal releases that were created since the plan, newest first.
    fn created_since(&self) -> Result<Vec<Value>, Failure> {
        let query = [("workload_id", self.workload_id.as_str()), ("environment", self.step.environment.as_str())];
        let all = self.server.list(&["releases"], &query)?.into_iter();
        let since = all.take_while(|listed| self.step.newest.as_deref() != Some(string_or_empty(listed, "release_id")));
        let is_of_the_kind = |found: &Value| {
            string_or_empty(found, "target_lane") == self.step.target_lane
                && found.get("policy_bundle_id").and_then(Value::as_str) == self.policy
                && string_or_empty(found, "state") != StateName::Retired.as_str()
        };
        Ok(since.filter(is_of_the_kind).collect())
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

/// Whether a release has priority over this id. Ids compare as text, so all actors agree.
fn precedes(listed: &Value, id: &str) -> bool {
    string_or_empty(listed, "release_id") < id
}
