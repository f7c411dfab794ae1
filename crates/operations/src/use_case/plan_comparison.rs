//! Comparison of a use case with its predecessor, that is, the draft that it refines.

use super::{UseCases, connection_access};
use crate::{Failure, access::Operation};
use fairway_domain::{
    access::Caller,
    id::{UseCaseId, WorkspaceId},
    use_case::{
        gaps::ConnectionAccess,
        plan_diff::{PlanChanges, plan_changes},
    },
};

/// Result of the comparison of a use case with its predecessor.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanComparison {
    /// The draft that the use case refines, if any.
    pub predecessor_id: Option<UseCaseId>,
    /// The differences between the two plans; empty without a predecessor, and for a caller that may not see the
    /// bundle.
    pub changes: PlanChanges,
    /// Whether the differences are empty because the caller may not see the bundle.
    pub redacted: bool,
}

impl UseCases {
    /// Compares the plan of a use case with that of its predecessor. A caller that may not read connections receives
    /// a redacted, empty comparison.
    ///
    /// # Errors
    /// Not found when the caller does not see the assets of that workspace.
    pub async fn compare_with_predecessor(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        id: UseCaseId,
    ) -> Result<PlanComparison, Failure> {
        let (scope, position, use_case) =
            self.authorize_use_case(caller, Operation::ReadUseCaseChanges, workspace, id).await?;
        let predecessor_id = use_case.supersedes;
        let redacted = connection_access(caller, &position) == ConnectionAccess::Hidden;
        let changes = match predecessor_id {
            Some(predecessor) if !redacted => {
                let stored = self.use_case_store.find(scope, predecessor).await?;
                let predecessor_use_case =
                    stored.ok_or(Failure::Inconsistent("the predecessor of a use case is missing"))?;
                plan_changes(&predecessor_use_case.plan, &use_case.plan)
            }
            Some(_) | None => PlanChanges::default(),
        };
        Ok(PlanComparison { predecessor_id, changes, redacted })
    }
}
