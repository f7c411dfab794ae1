//! Creates a draft while other actors may create the same draft.
//!
//! The API has no lock that lets only one actor draft a release, and ids are assigned before drafts become visible.
//! So each actor checks twice, and of two equal drafts at most one stays complete. The actor with the higher id
//! either sees the other draft after completing its own, or completed its own before the other became visible. In
//! that case the other actor stops before it binds anything.

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
    output::eprint,
    server::{Server, required_string},
    text::sanitize,
};
use fairway_domain::{
    asset::{canonical::Checksum, kind::AssetKind},
    release::StateName,
};
use serde_json::{Value, json};
use std::cell::Cell;

/// The creation of one draft.
pub(super) struct DraftCreation<'b> {
    server: &'b Server,
    step: &'b ReleaseStep,
    chosen: &'b [ChosenVersion<'b>],
    workload_id: String,
    policy: Option<&'b str>,
    /// Whether this actor created the draft, instead of finding it.
    is_created: Cell<bool>,
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
        Ok(Self {
            server,
            step,
            chosen,
            workload_id,
            policy: policy.map(|choice| choice.asset_id),
            is_created: Cell::new(false),
        })
    }

    /// Returns the oldest release that was created since the plan with the same lane and policy, or creates a draft. A
    /// release that binds other versions is a conflict.
    pub(super) fn find_or_create(&self) -> Result<Value, Failure> {
        let (server, step) = (self.server, self.step);
        if let Some(first) = self.created_since()?.last() {
            let found = server.get(&["releases", required_string(first, "release_id")?], &[])?;
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
        let key = format!("fairway-sync-{}", Checksum::of(asked.to_string().as_bytes()).as_str());
        let made = server.post_with_key(&["releases"], &body, &key)?;
        self.is_created.set(true);
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

    /// Checks again after the draft is complete. When an earlier draft exists, empties this one; a later release
    /// reuses it.
    ///
    /// # Errors
    /// The plan is stale when an earlier draft exists.
    pub(super) fn verify_priority(&self, made: &Value) -> Result<(), Failure> {
        let id = required_string(made, "release_id")?;
        if !self.others(id)?.iter().any(|other| precedes(other, id)) {
            return Ok(());
        }
        // A found draft is emptied by the actor that created it.
        if self.is_created.get() {
            let bindings = made.get("bindings").and_then(Value::as_array).into_iter().flatten();
            let bindings: Vec<String> =
                bindings.map(|binding| string_or_empty(binding, "binding_id").to_owned()).collect();
            unbind(self.server, id, &bindings)?;
            eprint(&format!("emptied the draft {}: another actor drafts the same release", sanitize(id)));
        }
        Err(self.conflict())
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
