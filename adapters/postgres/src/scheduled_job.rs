//! Scheduled jobs: one process carries out each due job.

use crate::{
    database::Database,
    schema::chore,
    sql_functions::{database_now, time_ahead},
};
use diesel::{ExpressionMethods as _, QueryDsl as _};
use fairway_domain::store::StoreError;
use std::time::Duration;

impl Database {
    /// Claims a job that is due, and makes it due again after `interval`. Returns whether this process carries it out.
    pub(crate) async fn claim_scheduled_job(&self, name: &'static str, interval: Duration) -> Result<bool, StoreError> {
        let claim = || {
            diesel::update(chore::table.find(name).filter(chore::due_at.le(database_now())))
                .set(chore::due_at.eq(time_ahead(interval)))
        };
        Ok(self.execute("claim of a scheduled job", claim).await? > 0)
    }
}
