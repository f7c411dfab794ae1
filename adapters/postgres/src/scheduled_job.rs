//! Scheduled jobs: exactly one process executes each due job.

use crate::{
    clock_and_length_functions::{database_now, time_ahead},
    database::Database,
    schema::chore,
};
use diesel::{ExpressionMethods as _, QueryDsl as _};
use fairway_domain::store::StoreError;
use std::time::Duration;

impl Database {
    /// Claims a job if it is due, and schedules it again after `interval`. Returns whether this process must
    /// execute it.
    pub(crate) async fn claim_scheduled_job(&self, name: &'static str, interval: Duration) -> Result<bool, StoreError> {
        let claim = || {
            diesel::update(chore::table.find(name).filter(chore::due_at.le(database_now())))
                .set(chore::due_at.eq(time_ahead(interval)))
        };
        Ok(self.execute("claim of a scheduled job", claim).await? > 0)
    }
}
