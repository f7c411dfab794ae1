//! The current and earlier holders of a workload's lanes.

use crate::{Failure, access::Operation, release::Releases};
use fairway_domain::{
    access::Caller,
    id::WorkloadId,
    release::lane::{Lane, LaneTenure, lane_tenures},
    slug::Slug,
};

/// Number of lane moves that a history includes.
const HISTORY_LIMIT: u32 = 100;

/// A lane with its tenures, newest first.
#[derive(Clone, Debug)]
pub struct LaneHistory {
    /// The lane.
    pub lane: Lane,
    /// The tenures of the newest hundred moves, newest first.
    pub holdings: Vec<LaneTenure>,
}

impl Releases {
    /// Every lane of a workload in an environment, the most restricted first.
    ///
    /// # Errors
    /// Not found when the caller does not see the workload's releases.
    pub async fn list_lanes(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        environment: &Slug,
    ) -> Result<Vec<LaneHistory>, Failure> {
        let (scope, _) = self.workloads.authorize_workload(caller, Operation::ListLanes, workload).await?;
        // The current holders come from the history too, so that both always agree.
        let moves = self.deployment_store.lane_history(scope, workload, environment, HISTORY_LIMIT).await?;
        Ok(Lane::ALL.map(|lane| LaneHistory { lane, holdings: lane_tenures(&moves, lane) }).into())
    }
}
