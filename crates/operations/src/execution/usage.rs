//! Usage reports: totals of ended runs, with their tokens and cost.

use crate::{
    Failure, FieldProblem, Stores,
    access::{Operation, ScopeResolver},
    commit_context::CommitContext,
    services::{CommonOperations, SharedState},
};
use fairway_domain::{
    access::Caller,
    execution::usage::{
        MAX_RANGE, MAX_ROWS, TimeRange, TooManyReportRows, UsageFilter, UsageGrouping, UsageReport, UsageStore,
    },
    id::{WorkloadId, WorkspaceId},
    slug::Slug,
    time::Timestamp,
};
use std::{sync::Arc, time::Duration};

/// Range of a report whose query has no start time.
const DEFAULT_RANGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Maximum number of counts that the report reads for one day; both rows and duration buckets count.
const MAX_COUNTS: u32 = 10_000;

/// Query for a usage report.
#[derive(Clone, Debug, Default)]
pub struct UsageQuery {
    /// Only runs of this workload.
    pub workload_id: Option<WorkloadId>,
    /// Only runs of workloads in this workspace.
    pub workspace_id: Option<WorkspaceId>,
    /// Only runs in this environment.
    pub environment: Option<Slug>,
    /// Only runs that started at this time or later; default: 30 days before `until`.
    pub since: Option<Timestamp>,
    /// Only runs that started before this time; default: now.
    pub until: Option<Timestamp>,
    /// The properties by which the report groups runs into rows.
    pub grouping: UsageGrouping,
}

/// Creates usage reports from the counts of ended runs.
pub struct UsageReports {
    context: CommitContext,
    usage_store: Arc<dyn UsageStore>,
    scope_resolver: Arc<ScopeResolver>,
}

impl UsageReports {
    pub(crate) fn new(stores: &Stores, shared: &SharedState, common: &CommonOperations) -> Self {
        Self {
            context: shared.context.clone(),
            usage_store: Arc::clone(&stores.usage),
            scope_resolver: Arc::clone(&common.scope_resolver),
        }
    }

    /// Returns the totals of the ended runs that the caller may view. Each day is read by one statement.
    ///
    /// # Errors
    /// Forbidden when the caller may view no runs; not found for a workspace that the caller does not see; an invalid
    /// field for a range beyond [`MAX_RANGE`] or more than [`MAX_ROWS`] rows.
    pub async fn read_usage(&self, caller: &Caller, query: UsageQuery) -> Result<UsageReport, Failure> {
        let authorized = self.scope_resolver.authorize_list_of(caller, Operation::ReadUsage, query.workspace_id);
        let (scope, visible_scopes) = authorized.await?;
        let until = query.until.unwrap_or_else(|| self.context.clock.now());
        let range = TimeRange { since: query.since.unwrap_or_else(|| until.minus(DEFAULT_RANGE)), until };
        if range.since.duration_until(range.until) > MAX_RANGE {
            return Err(invalid("since", "range_too_long", "a report covers at most 92 days"));
        }
        let filter = UsageFilter {
            workload: query.workload_id,
            workspace: query.workspace_id,
            environment: query.environment,
            visible_scopes,
        };
        let mut report = UsageReport::default();
        for day in range.split_by_day() {
            let counts = self.usage_store.count_usage(scope, &filter, day, query.grouping, MAX_COUNTS).await?;
            if counts.len() >= usize::try_from(MAX_COUNTS).unwrap_or(usize::MAX) {
                return Err(too_many_rows());
            }
            for count in counts {
                report.add(count).map_err(|TooManyReportRows| too_many_rows())?;
            }
        }
        Ok(report)
    }
}

const fn invalid(path: &'static str, code: &'static str, message: &'static str) -> Failure {
    Failure::InvalidField(FieldProblem { path, code, message })
}

const fn too_many_rows() -> Failure {
    const { assert!(MAX_ROWS == 1_000, "the message states the limit") };
    invalid("group_by", "too_many_rows", "the report has more than 1000 rows; group by less, or name a workload")
}
