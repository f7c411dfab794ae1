//! Lists of executions. Each combination of filters scans an index in list order, and only in the matching monthly
//! partitions.
//!
//! Most runs complete. A run with another end also has a row in `execution_exception`. An index on the status would
//! have to be updated at the end of every run. A run that has not ended is found by its queue row, its lease or its
//! review row.
//!
//! Only runs that did not complete have an error code, so a list by error code scans `execution_exception`, once
//! for each status. Environment, lane and submitter have no index: the scan reads the runs and filters them.

use super::{
    EXECUTION_COLUMNS, JOINED_REASON_CODE, NULL_OUTPUT, execution,
    usage::{computed_summaries, model_usage},
};
use crate::{
    database::Database,
    guarded_commit::Input,
    pagination::{ListQuery, PageByteLimit, SortKey, UnionArm, visible_arms, visible_workspaces_cte},
    row::Row,
};
use fairway_domain::{
    access::rights::VisibleScopes,
    execution::{
        Execution, Status,
        ports::ExecutionFilter,
        usage::{ListedExecution, RunUsageSummary},
    },
    id::ExecutionId,
    store::{Page, PageRequest, PageStart, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use std::sync::LazyLock;
use uuid::Uuid;

/// The column of a list that reads the runs of its page by key.
const ID_COLUMN: &str = "entry.execution_id AS listed_id";
const KEY: SortKey = SortKey::Id("entry.execution_id", "listed_id");

/// The columns of a list whose scan reads the runs of its page.
static SCANNED_COLUMNS: LazyLock<String> =
    LazyLock::new(|| format!("{ID_COLUMN}, {EXECUTION_COLUMNS}, {USAGE_COLUMNS}").replace("execution.", "entry."));

/// The stored usage of a run.
const USAGE_COLUMNS: &str = "execution.has_stored_usage, execution.total_tokens_in AS tokens_in, \
    execution.total_tokens_out AS tokens_out, execution.total_cost_micros AS cost_micros";

/// The table that a list scans.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScanTable {
    /// All runs.
    Runs,
    /// Runs that ended without completing.
    Exceptions,
    /// Leases of runs that have not ended.
    Leases,
    /// The queue, and the leases of runs that a worker has dequeued but not started.
    Queue,
    /// Runs that await a human review.
    Reviews,
}

/// The statuses whose runs have a row in `execution_exception`.
const EXCEPTIONS: [Status; 4] = [Status::Failed, Status::Denied, Status::Cancelled, Status::Unknown];

impl ScanTable {
    const fn of(filter: &ExecutionFilter) -> Self {
        match filter.status {
            None if filter.error_code.is_some() => Self::Exceptions,
            None | Some(Status::Completed) => Self::Runs,
            Some(Status::Failed | Status::Denied | Status::Cancelled | Status::Unknown) => Self::Exceptions,
            Some(Status::Queued) => Self::Queue,
            Some(Status::Running) => Self::Leases,
            Some(Status::AwaitingReview) => Self::Reviews,
        }
    }

    const fn table(self) -> &'static str {
        match self {
            Self::Runs => "execution",
            Self::Exceptions => "execution_exception",
            Self::Leases => "execution_lease",
            Self::Reviews => "execution_review",
            Self::Queue => {
                "(SELECT tenant_id, execution_id FROM execution_queue \
                 UNION ALL SELECT tenant_id, execution_id FROM execution_lease)"
            }
        }
    }

    /// Whether the list is append-only, so that a listed run never leaves it.
    fn is_append_only(self, status: Option<Status>) -> bool {
        match self {
            Self::Runs => status.is_none_or(Status::is_final),
            // Without a status filter, the list includes runs with an unknown outcome, whose rows are removed when
            // they are resolved.
            Self::Exceptions => status.is_some_and(Status::is_final),
            Self::Leases | Self::Queue | Self::Reviews => false,
        }
    }

    /// Whether all rows of the table have the requested status, so that no condition is needed.
    const fn has_single_status(self) -> bool {
        match self {
            Self::Reviews => true,
            Self::Runs | Self::Exceptions | Self::Leases | Self::Queue => false,
        }
    }

    /// The alias of the table that has the columns workspace, workload, release and status of the run.
    const fn run_alias(self) -> &'static str {
        match self {
            Self::Runs | Self::Exceptions | Self::Reviews => "entry",
            Self::Leases | Self::Queue => "run",
        }
    }

    /// The alias of the table that has the run's environment, lane, submitter and error code.
    const fn detail_alias(self) -> &'static str {
        match self {
            Self::Runs => "entry",
            Self::Exceptions | Self::Reviews | Self::Leases | Self::Queue => "run",
        }
    }

    /// The statuses that need a union arm each: those of a list of exceptions without a status filter. Empty for every
    /// other list.
    fn scanned_statuses(self, filter: &ExecutionFilter) -> &'static [Status] {
        if self == Self::Exceptions && filter.status.is_none() { &EXCEPTIONS } else { &[] }
    }
}

/// The join that reads the run of an entry by its key. `OFFSET 0` is an optimization fence: without it, PostgreSQL
/// may scan all runs for the join.
const RUN_OF_ENTRY: &str = ", LATERAL (
    SELECT workspace_id, workload_id, release_id, status, environment, lane, submitter, error_code FROM execution
    WHERE execution.tenant_id = entry.tenant_id AND execution.execution_id = entry.execution_id OFFSET 0) AS run";

/// A row of a list, before the usage of runs without stored usage is computed.
struct ListRow {
    listed: ListedExecution,
    has_stored_usage: bool,
}

pub(super) async fn list(
    database: &Database,
    scope: TenantScope,
    filter: &ExecutionFilter,
    page: PageRequest,
) -> Result<Page<ListedExecution>, StoreError> {
    let page = database.fetch_partitioned_page(list_query(scope, filter, page.start), page, list_row).await?;
    let without_usage: Vec<ExecutionId> = page
        .rows
        .iter()
        .filter(|row| !row.has_stored_usage && has_evidence(&row.listed.execution))
        .map(|row| row.listed.execution.execution_id)
        .collect();
    let mut computed = computed_summaries(database, scope, &without_usage).await?;
    Ok(page.map(|ListRow { mut listed, .. }| {
        if let Some(summary) = computed.remove(&listed.execution.execution_id) {
            listed.summary = summary;
        }
        listed
    }))
}

/// Whether the evidence of the run is stored. It is stored before a human review, and otherwise with the end of the run.
fn has_evidence(run: &Execution) -> bool {
    run.finished_at.is_some() || run.status == Status::AwaitingReview
}

fn list_row(row: &Row) -> Result<ListRow, StoreError> {
    let summary = RunUsageSummary { workload_slug: row.column("workload_slug")?, usage: model_usage(row)? };
    Ok(ListRow {
        listed: ListedExecution { execution: execution(row)?, summary },
        has_stored_usage: row.column::<Option<bool>>("has_stored_usage")?.unwrap_or_default(),
    })
}

fn list_query(scope: TenantScope, filter: &ExecutionFilter, start: PageStart) -> ListQuery {
    let scan = ScanTable::of(filter);
    let run_alias = scan.run_alias();
    let mut values = Input::of_params(scope);
    let mut conditions = vec!["entry.tenant_id = {tenant_id}".to_owned()];
    if let Some(since) = filter.since {
        conditions.push(format!("entry.execution_id >= {}", values.bind("since", smallest_uuid_v7_at(since))));
    }
    if let Some(until) = filter.until {
        conditions.push(format!("entry.execution_id < {}", values.bind("until", smallest_uuid_v7_at(until))));
    }
    if let Some(status) = filter.status.filter(|_| !scan.has_single_status()) {
        conditions.push(format!("{run_alias}.status = {}", values.bind("status", status.as_str())));
    }
    let details = detail_conditions(filter, scan.detail_alias(), &mut values);
    let mut from = format!("FROM {} AS entry", scan.table());
    if run_alias == "run" || (!details.is_empty() && scan.detail_alias() == "run") {
        from.push_str(RUN_OF_ENTRY);
    }
    conditions.extend(details);
    let (with, arms) = visible_list_arms(filter, &from, run_alias, conditions, &mut values);
    let arms = by_status(arms, scan.scanned_statuses(filter), &mut values);
    // One scan in list order reads the runs themselves. Skipped rows, and rows that PostgreSQL sorts to merge several
    // arms, are identifiers only.
    let scans_runs = scan == ScanTable::Runs && arms.len() == 1 && !matches!(start, PageStart::Skip(1..));
    let (columns, detail, run) = if scans_runs {
        (SCANNED_COLUMNS.as_str(), detail_of_scanned_run(), "page")
    } else {
        (ID_COLUMN, detail_by_key(), "detail")
    };
    let post_join = format!(
        "JOIN LATERAL ({detail} OFFSET 0) AS detail ON true
         JOIN LATERAL (SELECT slug AS workload_slug FROM workload
            WHERE tenant_id = {{tenant_id}} AND workload.workload_id = {run}.workload_id OFFSET 0) AS workload ON true"
    );
    let is_append_only = scan.is_append_only(filter.status);
    ListQuery {
        with,
        columns,
        key: KEY,
        post_join: Some(post_join),
        byte_limit: PageByteLimit::Small,
        arms,
        values,
        is_append_only,
        stored_count: None,
    }
}

/// Reads the run of a listed identifier.
fn detail_by_key() -> String {
    format!(
        "SELECT {EXECUTION_COLUMNS}, {NULL_OUTPUT}, {JOINED_REASON_CODE}, {USAGE_COLUMNS} FROM execution
         WHERE execution.tenant_id = {{tenant_id}} AND execution.execution_id = listed_id"
    )
}

/// Adds the reason codes to the runs of a page that the scan has read.
fn detail_of_scanned_run() -> String {
    format!(
        "SELECT {NULL_OUTPUT}, {JOINED_REASON_CODE}
         FROM (SELECT {{tenant_id}} AS tenant_id, listed_id AS execution_id) AS execution"
    )
}

/// The conditions of the filters that have no index.
fn detail_conditions(filter: &ExecutionFilter, alias: &str, values: &mut Input<'static>) -> Vec<String> {
    let ExecutionFilter { environment, lane, error_code, submitter, .. } = filter;
    let texts = [
        ("environment", environment.as_ref().map(ToString::to_string)),
        ("lane", lane.map(|lane| lane.as_str().to_owned())),
        ("error_code", error_code.clone()),
        ("submitter", submitter.as_ref().map(ToString::to_string)),
    ];
    let requested = texts.into_iter().filter_map(|(column, text)| Some((column, text?)));
    requested.map(|(column, text)| format!("{alias}.{column} = {}", values.bind(column, text))).collect()
}

/// Repeats the arms for each status, because the index orders only entries of the same status.
fn by_status(arms: Vec<UnionArm>, statuses: &[Status], values: &mut Input<'static>) -> Vec<UnionArm> {
    if statuses.is_empty() {
        return arms;
    }
    let conditions: Vec<String> = statuses
        .iter()
        .map(|status| format!("entry.status = {}", values.bind(status.as_str(), status.as_str())))
        .collect();
    let of_status = |condition: &String| {
        let with_status = |arm: &UnionArm| UnionArm {
            from: arm.from.clone(),
            conditions: arm.conditions.iter().chain([condition]).cloned().collect(),
            lateral: arm.lateral.clone(),
        };
        arms.iter().map(with_status).collect::<Vec<_>>()
    };
    conditions.iter().flat_map(of_status).collect()
}

/// The `WITH` clause and the union arms for the filters and the caller's visible scopes. With a release or workload
/// filter, the caller sees either all of the runs or none. One subquery decides this, because a check on each run
/// would scan all runs for a caller that sees none.
pub(super) fn visible_list_arms(
    filter: &ExecutionFilter,
    from: &str,
    run_alias: &str,
    mut conditions: Vec<String>,
    values: &mut Input<'static>,
) -> (String, Vec<UnionArm>) {
    let id_filter = match (filter.release, filter.workload) {
        (Some(release), _) => Some(("release", "release_id", release.uuid())),
        (None, Some(workload)) => Some(("workload", "workload_id", workload.uuid())),
        (None, None) => None,
    };
    let single_arm = |with, conditions| (with, vec![UnionArm { from: from.to_owned(), conditions, lateral: None }]);
    let Some((table, column, id)) = id_filter else {
        return match &filter.visible_scopes {
            None => single_arm(String::new(), conditions),
            Some(visible_scopes) if run_alias == ScanTable::Runs.run_alias() => {
                visible_arms(visible_scopes, from, "entry.workspace_id", "entry.workload_id", &conditions, values)
            }
            Some(visible_scopes) => {
                let with = visible_workspaces_cte(visible_scopes, values);
                conditions.push(visible_condition(visible_scopes, run_alias, values));
                single_arm(with, conditions)
            }
        };
    };
    let id = values.bind(column, id);
    conditions.push(format!("{run_alias}.{column} = {id}"));
    let mut table_conditions = vec!["tenant_id = {tenant_id}".to_owned(), format!("{column} = {id}")];
    if let Some(workload) = filter.workload.filter(|_| filter.release.is_some()) {
        table_conditions.push(format!("workload_id = {}", values.bind("workload_id", workload.uuid())));
    }
    let with = filter.visible_scopes.as_ref().map(|visible_scopes| {
        let with = visible_workspaces_cte(visible_scopes, values);
        table_conditions.push(visible_condition(visible_scopes, table, values));
        with
    });
    if table_conditions.len() > 2 {
        conditions.push(format!("EXISTS (SELECT FROM {table} WHERE {})", table_conditions.join(" AND ")));
    }
    single_arm(with.unwrap_or_default(), conditions)
}

fn visible_condition(visible_scopes: &VisibleScopes, table: &str, values: &mut Input<'static>) -> String {
    let workloads: Vec<Uuid> = visible_scopes.workloads.iter().map(|id| id.uuid()).collect();
    let workloads = values.bind_list("visible_workloads", workloads);
    format!(
        "({table}.workspace_id IN (SELECT visible_id FROM visible_workspace) OR {table}.workload_id = ANY({workloads}))"
    )
}

/// The smallest UUIDv7 with this time, equal to the SQL function `fairway_uuid_floor`. Times before 1970 map to the
/// nil UUID.
pub(super) fn smallest_uuid_v7_at(timestamp: Timestamp) -> Uuid {
    let millis = u128::try_from(timestamp.micros().div_euclid(1_000)).unwrap_or(0);
    Uuid::from_u128(millis << 80)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairway_domain::tenant::DEFAULT_TENANT_ID;

    fn arms_sql(filter: &ExecutionFilter) -> String {
        let query = list_query(TenantScope::for_background_task(DEFAULT_TENANT_ID.into()), filter, PageStart::Skip(0));
        let arms = query.arms.iter().map(|arm| {
            let from = arm.from.split_whitespace().collect::<Vec<_>>().join(" ");
            format!("{from} WHERE {} EACH {:?}", arm.conditions.join(" AND "), arm.lateral)
        });
        arms.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn one_scan_without_skipped_rows_reads_the_runs() {
        let columns = |filter: &ExecutionFilter, start| {
            list_query(TenantScope::for_background_task(DEFAULT_TENANT_ID.into()), filter, start).columns
        };
        let all = ExecutionFilter::default();
        assert!(columns(&all, PageStart::Skip(0)).contains("entry.started_at"));
        assert!(columns(&all, PageStart::After(Uuid::nil().into())).contains("entry.total_tokens_in AS tokens_in"));
        assert_eq!(columns(&all, PageStart::Skip(1)), ID_COLUMN);
        let failed = ExecutionFilter { status: Some(Status::Failed), ..ExecutionFilter::default() };
        let visible = ExecutionFilter { visible_scopes: Some(VisibleScopes::default()), ..ExecutionFilter::default() };
        for filter in [failed, visible] {
            assert_eq!(columns(&filter, PageStart::Skip(0)), ID_COLUMN);
        }
    }

    #[test]
    fn scans_the_table_that_holds_each_status() {
        for status in Status::ALL {
            let filter = ExecutionFilter { status: Some(status), ..ExecutionFilter::default() };
            let (text, table) = (arms_sql(&filter), ScanTable::of(&filter));
            assert!(text.starts_with(&format!("FROM {} AS entry", table.table())), "{text}");
            assert_eq!(text.contains("status = "), !table.has_single_status(), "{text}");
        }
        assert_eq!(
            arms_sql(&ExecutionFilter::default()),
            "FROM execution AS entry WHERE entry.tenant_id = {tenant_id} EACH None"
        );
    }

    #[test]
    fn scans_exceptions_of_each_status_for_an_error_code() {
        let filter = ExecutionFilter { error_code: Some("interrupted".to_owned()), ..ExecutionFilter::default() };
        let text = arms_sql(&filter);
        let arms: Vec<&str> = text.lines().collect();
        assert_eq!(arms.len(), EXCEPTIONS.len(), "{text}");
        for arm in arms {
            assert!(arm.starts_with("FROM execution_exception AS entry, LATERAL"), "{arm}");
            assert!(arm.contains("run.error_code = ") && arm.contains("entry.status = "), "{arm}");
        }
        let failed = ExecutionFilter { status: Some(Status::Failed), ..filter };
        assert_eq!(arms_sql(&failed).lines().count(), 1);
    }

    #[test]
    fn maps_a_time_to_the_smallest_uuid_of_its_millisecond() {
        let at = |nanos| Timestamp::new(time::OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap());
        assert_eq!(smallest_uuid_v7_at(at(0)), Uuid::nil());
        assert_eq!(smallest_uuid_v7_at(at(-1_000_000_000)), Uuid::nil(), "times before 1970 map to the nil UUID");
        let timestamp_nanos = 1_780_000_000_123_999_000;
        let uuid_of_millisecond = uuid::Builder::from_unix_timestamp_millis(1_780_000_000_123, &[0; 10]).into_uuid();
        assert!(smallest_uuid_v7_at(at(timestamp_nanos)) < uuid_of_millisecond);
        let uuid_of_previous_millisecond =
            uuid::Builder::from_unix_timestamp_millis(1_780_000_000_122, &[0xff; 10]).into_uuid();
        assert!(uuid_of_previous_millisecond < smallest_uuid_v7_at(at(timestamp_nanos)));
    }
}
