//! Current and earlier holders of a workload's lanes.

use crate::{Failure, access::Operation, release::Releases};
use fairway_domain::{
    access::Caller,
    id::WorkloadId,
    release::lane::{Lane, LaneTenure, lane_tenures},
    slug::Slug,
};

/// Maximum number of lane reassignments that a history includes.
const HISTORY_LIMIT: u32 = 100;

/// A lane with its tenures, newest first. A tenure is the period in which one release held the lane.
#[derive(Clone, Debug)]
pub struct LaneHistory {
    /// The lane whose holders are listed.
    pub lane: Lane,
    /// The tenures from the newest [`HISTORY_LIMIT`] reassignments, newest first.
    pub tenures: Vec<LaneTenure>,
}

impl Releases {
    /// Lists every lane of a workload in an environment, the most restricted first.
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
        // The current holders are derived from the same read of the history, so that they agree with it.
        let history = self.deployment_store.lane_history(scope, workload, environment, HISTORY_LIMIT).await?;
        Ok(Lane::ALL.map(|lane| LaneHistory { lane, tenures: lane_tenures(&history, lane) }).into())
    }
}
