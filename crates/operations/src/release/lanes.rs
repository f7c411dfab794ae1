//! Who holds the lanes of a workload, and who did.

use crate::{Failure, Services, access::Operation};
use fairway_domain::{
    access::Caller,
    id::WorkloadId,
    release::lane::{Holding, Lane, holdings},
    slug::Slug,
};

/// Moves of each lane that are told.
const TOLD: u32 = 100;

/// One lane, and the times in which it was held, newest first.
#[derive(Clone, Debug)]
pub struct LaneHistory {
    /// The lane.
    pub lane: Lane,
    /// The times in which it was held, newest first: those of the newest hundred moves.
    pub holdings: Vec<Holding>,
}

impl Services {
    /// Every lane of a workload in an environment, the most careful first.
    ///
    /// # Errors
    /// Not found when the caller does not see the workload's releases.
    pub async fn list_lanes(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        environment: &Slug,
    ) -> Result<Vec<LaneHistory>, Failure> {
        let (scope, _) = self.enter_workload(caller, Operation::ListLanes, workload).await?;
        // Holders are read from the history, so that the two never tell different stories.
        let moves = self.stores.releases.lane_history(scope, workload, environment, TOLD).await?;
        Ok(Lane::ALL.map(|lane| LaneHistory { lane, holdings: holdings(&moves, lane) }).into())
    }
}
