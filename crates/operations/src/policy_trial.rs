//! Trials of policies: evaluations of a policy bundle that is not stored as a version. A trial stores nothing.

use crate::{
    Failure,
    access::Operation,
    asset::Assets,
    blocking::{ProcessorWait, run_blocking},
};
use fairway_domain::{
    access::Caller,
    asset::{
        canonical::Canonical,
        content::{self, ContentRefusal},
        kind::AssetKind,
    },
    id::{AssetId, WorkspaceId},
    policy::{CompiledPolicy, DecisionExplanation, ExplanationRefusal},
};
use serde_json::Value;

impl Assets {
    /// Evaluates an unsaved policy bundle for one input, and explains the decision. The asset must be visible from
    /// `from_workspace`, or from any workspace if this argument is `None`. The bundle is accepted even if its embedded
    /// tests fail.
    ///
    /// # Errors
    /// Not found when the caller does not see the asset; refused when the asset is not a policy bundle, or the content
    /// or the input is invalid.
    pub async fn try_policy(
        &self,
        caller: &Caller,
        id: AssetId,
        from_workspace: Option<WorkspaceId>,
        content: Value,
        input: Value,
    ) -> Result<DecisionExplanation, Failure> {
        let (scope, asset) =
            self.authorize_asset_from_optional(caller, Operation::TryPolicy, id, from_workspace).await?;
        if asset.kind != AssetKind::PolicyBundle {
            return Err(Failure::invalid_field("asset_id", "wrong_asset_kind", "the asset is no policy bundle"));
        }
        run_blocking(scope, ProcessorWait::Request, move || decide(&content, &input)).await?
    }
}

fn decide(content: &Value, input: &Value) -> Result<DecisionExplanation, Failure> {
    if let Err(refusal) = content::check(AssetKind::PolicyBundle, content) {
        ignore_failed_tests(refusal)?;
    }
    Canonical::of(content)?;
    CompiledPolicy::explain(content, input).map_err(|refusal| match refusal {
        ExplanationRefusal::Bundle(problems) => ContentRefusal::Invalid(problems).into(),
        ExplanationRefusal::Input => Failure::invalid_field(
            "input",
            "invalid_policy_input",
            "the members are `environment`, `lane`, `inputs`, `actor`, `workload`, `release`, `now`, as in a test",
        ),
    })
}

/// Ignores failures of the embedded tests, because an author may use the trial to correct these tests.
fn ignore_failed_tests(refusal: ContentRefusal) -> Result<(), ContentRefusal> {
    let ContentRefusal::Invalid(mut problems) = refusal else { return Err(refusal) };
    problems.retain(|problem| problem.code != "policy_test_failed");
    if problems.is_empty() { Ok(()) } else { Err(ContentRefusal::Invalid(problems)) }
}
