//! Trials of policies: the decision of a bundle before it is a version. Nothing is stored.

use crate::{
    Failure,
    access::Operation,
    asset::Assets,
    blocking::{WorkDeadline, run_blocking},
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
    /// Decides for one input by a bundle that is not stored as a version of the asset, and explains the decision. The
    /// asset is seen from `from`, or from any workspace that the caller sees it from.
    ///
    /// # Errors
    /// Not found when the caller does not see the asset; also when the asset is no policy bundle, the input is invalid,
    /// or a version with the content would be refused for another reason than its failed tests.
    pub async fn try_policy(
        &self,
        caller: &Caller,
        id: AssetId,
        from: Option<WorkspaceId>,
        content: Value,
        input: Value,
    ) -> Result<DecisionExplanation, Failure> {
        let (scope, asset) = self.asset_from_optional(caller, Operation::TryPolicy, id, from).await?;
        if asset.kind != AssetKind::PolicyBundle {
            return Err(Failure::invalid_field("asset_id", "wrong_asset_kind", "the asset is no policy bundle"));
        }
        run_blocking(scope, WorkDeadline::Request, move || decide(&content, &input)).await?
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

/// An author tries a bundle in order to mend its tests.
fn ignore_failed_tests(refusal: ContentRefusal) -> Result<(), ContentRefusal> {
    let ContentRefusal::Invalid(mut problems) = refusal else { return Err(refusal) };
    problems.retain(|problem| problem.code != "policy_test_failed");
    if problems.is_empty() { Ok(()) } else { Err(ContentRefusal::Invalid(problems)) }
}
