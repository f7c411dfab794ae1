//! Lists of runs. Every combination of filters returns the same runs as filtering all runs in memory, at the cost of
//! one page.

use crate::{
    fixture::{Fixture, scope},
    indexes::{TURNS, assert_no_seq_scans, measure, wait_for_other_connections},
};
use fairway_domain::{
    access::{ActorRef, rights::VisibleScopes},
    execution::{
        Execution, Status,
        ports::{ExecutionFilter, ExecutionReadStore},
    },
    release::lane::Lane,
    slug::Slug,
    store::{Cursor, PageRequest, PageStart},
    tenant::TenantScope,
    time::Timestamp,
};
use fairway_postgres::Database;
use fairway_testkit::TestDatabase;
use std::{cell::Cell, collections::HashSet};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

/// SQL that adds two tenants with three workspaces each. The second and the third workspace share a namespace. The
/// third workspace has two workloads, and each other workspace has one. Each workload has two releases. An identifier
/// ends in a letter for its type (`a` workspace, `e` namespace, `b` workload, `c` release) and a number.
const FILL: &str = "
    SELECT fairway_make_partitions(3, 12);
    INSERT INTO tenant SELECT '00000000-0000-7000-8000-0000000000ff', 'abroad', 'x', true, false, '{}', 1, 1, now(),
        'user:eve';
    CREATE TABLE new_workspace AS SELECT tenant_id, lpad('a' || n, 32, '0')::uuid AS workspace_id,
            lpad('e' || least(n, 2), 32, '0')::uuid AS namespace_id, n
        FROM tenant, generate_series(1, 3) AS n;
    INSERT INTO namespace SELECT DISTINCT tenant_id, namespace_id, 'home-' || least(n, 2) FROM new_workspace;
    INSERT INTO workspace SELECT tenant_id, workspace_id, namespace_id, 'home-' || n, 'x', now(), 'user:eve' FROM new_workspace;
    INSERT INTO workload SELECT tenant_id, lpad('b' || w, 32, '0')::uuid, 'w-' || w, 'x', '', 'team:x', 'registered',
        'api', lpad('a' || least(w, 3), 32, '0')::uuid, 1, now(), 'user:eve', now()
        FROM tenant, generate_series(1, 4) AS w;
    INSERT INTO release SELECT tenant_id, lpad('c' || w || r, 32, '0')::uuid, workload_id, workspace_id, 'dev', 'all',
        'active', 'x', NULL, NULL, 1, now(), 'user:eve', now()
        FROM workload, substr(workload_id::text, 36, 1) AS w, generate_series(1, 2) AS r WHERE slug LIKE 'w-_';
    DROP TABLE new_workspace;";

/// SQL that adds `MANY` completed runs for each release, spread evenly over eleven months. For every twentieth run, it
/// also adds one run in each other status except `queued`.
const RUNS: &str = "
    CREATE TABLE new_run AS
        SELECT *, fairway_uuid_floor(at) AS execution_id FROM (
            SELECT tenant_id, workspace_id, workload_id, release_id, new_run.status, sha256('x') AS snapshot,
                now() - interval '11 months' * n / MANY - interval '1 ms' * row_number() OVER () AS at
            FROM release, generate_series(1, MANY) AS n,
                unnest(CASE WHEN n % 20 = 0 THEN ARRAY['failed', 'denied', 'cancelled', 'unknown', 'running', 'awaiting_review',
                    'completed']
                    ELSE ARRAY['completed'] END) AS new_run (status)
        ) AS new_run;";

fn numbered_id(letter: char, number: &str) -> Uuid {
    Uuid::parse_str(&format!("{:0>32}", format!("{letter}{number}"))).unwrap()
}

fn some_id<T: From<Uuid>>(letter: char, number: &str) -> Option<T> {
    Some(numbered_id(letter, number).into())
}

/// Fills the database with `runs_per_release` completed runs for each release, and the runs that [`RUNS`] adds to them.
async fn fill(database: &TestDatabase, runs_per_release: u32) {
    let owner = database.connect_as_owner().await.unwrap();
    owner.batch_execute(FILL).await.unwrap();
    let runs_sql = RUNS.replace("MANY", &runs_per_release.to_string());
    owner.batch_execute(&runs_sql).await.unwrap();
    owner
        .batch_execute(
            "INSERT INTO execution (tenant_id, execution_id, workload_id, workspace_id, release_id, environment, lane,
                    submitter, error_code, error_message, snapshot, input_digest, status, outcome, started_at, finished_at)
                SELECT tenant_id, execution_id, workload_id, workspace_id, release_id,
                    CASE WHEN md5(execution_id::text) < '8' THEN 'dev' ELSE 'production' END, 'standard',
                    CASE WHEN right(md5(execution_id::text), 1) < '8' THEN 'user:eve' ELSE 'user:ada' END,
                    CASE status WHEN 'failed' THEN 'interrupted' WHEN 'cancelled' THEN 'cancelled' END,
                    CASE WHEN status IN ('failed', 'cancelled') THEN 'x' END,
                    snapshot, '\\x00', status,
                    CASE status WHEN 'running' THEN NULL WHEN 'awaiting_review' THEN NULL WHEN 'completed' THEN 'success' WHEN 'failed' THEN 'failure'
                        ELSE status END,
                    at, CASE WHEN status NOT IN ('running', 'awaiting_review') THEN at END
                FROM new_run;
             INSERT INTO execution_exception
                SELECT tenant_id, status, execution_id, workload_id, workspace_id, release_id FROM new_run
                WHERE status NOT IN ('running', 'awaiting_review', 'completed');
             INSERT INTO execution_lease SELECT tenant_id, execution_id, gen_random_uuid(), interval '30 s',
                now() + interval '1 day', now() + interval '1 day' FROM new_run WHERE status = 'running';
             INSERT INTO execution_review SELECT tenant_id, execution_id, workload_id, workspace_id, release_id, now(),
                now() + interval '1 day' FROM new_run WHERE status = 'awaiting_review';
             INSERT INTO policy_decision SELECT tenant_id, execution_id, gen_random_uuid(), 'allow', 'usual', '{}', '{}',
                at FROM new_run;
             DROP TABLE new_run;",
        )
        .await
        .unwrap();
    owner.batch_execute("VACUUM ANALYZE").await.unwrap();
}

/// All different sets of visible scopes: everything, one workspace, a namespace of two workspaces, single workloads,
/// an overlapping combination, and nothing.
fn visible_scope_cases() -> Vec<Option<VisibleScopes>> {
    let workspaces = vec![numbered_id('a', "1").into()];
    let workloads = vec![numbered_id('b', "1").into(), numbered_id('b', "3").into(), numbered_id('b', "3").into()];
    let namespaces = vec![numbered_id('e', "2").into()];
    vec![
        None,
        Some(VisibleScopes { workspaces: workspaces.clone(), ..VisibleScopes::default() }),
        Some(VisibleScopes { namespaces, ..VisibleScopes::default() }),
        Some(VisibleScopes { workloads: workloads.clone(), ..VisibleScopes::default() }),
        Some(VisibleScopes { workspaces, workloads, ..VisibleScopes::default() }),
        Some(VisibleScopes::default()),
    ]
}

/// All combinations of filters. Of each kind of status, one is used.
fn filters(now: OffsetDateTime) -> Vec<ExecutionFilter> {
    let months = |count: i64| Some(Timestamp::new(now - Duration::days(count * 30)));
    let ids = [
        (None, None),
        (some_id('b', "1"), None),
        (some_id('b', "4"), None),
        (None, some_id('c', "11")),
        (None, some_id('c', "32")),
        (some_id('b', "1"), some_id('c', "11")),
        (some_id('b', "1"), some_id('c', "32")),
    ];
    let statuses = [
        None,
        Some(Status::Completed),
        Some(Status::Failed),
        Some(Status::Running),
        Some(Status::AwaitingReview),
        Some(Status::Queued),
    ];
    let mut filters = Vec::new();
    for visible_scopes in visible_scope_cases() {
        for (workload, release) in ids {
            for status in statuses {
                for (since, until) in [(None, None), (months(6), months(3))] {
                    let visible_scopes = visible_scopes.clone();
                    filters.push(ExecutionFilter {
                        workload,
                        release,
                        status,
                        since,
                        until,
                        visible_scopes,
                        ..ExecutionFilter::default()
                    });
                }
            }
        }
    }
    filters
}

/// The filter with additional conditions on columns that have no index.
fn with_details(filter: &ExecutionFilter) -> Vec<ExecutionFilter> {
    let environment = Some(Slug::parse("dev").unwrap());
    let submitter = Some(ActorRef::parse("user:ada").unwrap());
    let error_code = |code: &str| Some(code.to_owned());
    vec![
        ExecutionFilter { environment: environment.clone(), submitter: submitter.clone(), ..filter.clone() },
        ExecutionFilter { lane: Some(Lane::Guided), ..filter.clone() },
        ExecutionFilter { lane: Some(Lane::Standard), submitter, ..filter.clone() },
        ExecutionFilter { error_code: error_code("interrupted"), ..filter.clone() },
        ExecutionFilter { error_code: error_code("cancelled"), environment, ..filter.clone() },
    ]
}

/// A combination of two filters on columns without an index. About half of the runs match.
fn two_filters() -> ExecutionFilter {
    let environment = Some(Slug::parse("dev").unwrap());
    ExecutionFilter { environment, lane: Some(Lane::Standard), ..ExecutionFilter::default() }
}

/// The cursor of a page whose runs started ten months ago. Nine tenths of all runs are newer.
fn cursor_of_old_run() -> Cursor {
    let at = OffsetDateTime::now_utc() - Duration::days(300);
    let millis = u64::try_from(at.unix_timestamp()).unwrap() * 1_000;
    uuid::Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid().into()
}

/// Whether the filter matches a run. This is evaluated in memory, independently of SQL.
fn matches(filter: &ExecutionFilter, run: &Execution) -> bool {
    // The second and the third workspace of [`FILL`] are in the same namespace.
    let namespace = if run.workspace_id == numbered_id('a', "1").into() { "1" } else { "2" };
    let at = run.started_at;
    let is_visible = filter.visible_scopes.as_ref().is_none_or(|visible_scopes| {
        visible_scopes.workspaces.contains(&run.workspace_id)
            || visible_scopes.workloads.contains(&run.workload_id)
            || visible_scopes.namespaces.contains(&numbered_id('e', namespace).into())
    });
    is_visible
        && filter.workload.is_none_or(|id| id == run.workload_id)
        && filter.release.is_none_or(|id| id == run.release_id)
        && filter.status.is_none_or(|status| status == run.status)
        && filter.environment.as_ref().is_none_or(|environment| *environment == run.environment)
        && filter.lane.is_none_or(|lane| lane == run.lane)
        && filter.submitter.as_ref().is_none_or(|submitter| *submitter == run.submitter)
        && filter.error_code.as_ref().is_none_or(|code| run.error.as_ref().is_some_and(|error| error.code == *code))
        && filter.since.is_none_or(|since| since <= at)
        && filter.until.is_none_or(|until| at < until)
}

/// All rows of a list, read page by page, and the total of the list.
async fn read_all_pages(
    store: &Database,
    scope: TenantScope,
    filter: &ExecutionFilter,
    limit: u32,
) -> (Vec<Execution>, u64) {
    let (mut rows, mut start) = (Vec::new(), PageStart::Skip(0));
    loop {
        let page = ExecutionReadStore::list(store, scope, filter, PageRequest { limit, start }).await.unwrap();
        rows.extend(page.rows.into_iter().map(|listed| listed.execution));
        match page.next {
            Some(cursor) => start = PageStart::After(cursor),
            None => return (rows, page.total),
        }
    }
}

#[tokio::test]
async fn every_filter_combination_returns_exactly_its_runs() {
    let database = TestDatabase::create().await.unwrap();
    fill(&database, 20).await;
    let fixture = Fixture::over(database, 1).await;
    let (all, total) = read_all_pages(&fixture.store, scope(), &ExecutionFilter::default(), 200).await;
    assert_eq!((all.len(), total), (208, 208), "eight releases with 26 runs each");
    assert!(all.windows(2).all(|pair| pair[0].execution_id > pair[1].execution_id), "newest first");
    assert!(all.iter().all(|run| run.output.is_none() && run.reason_code == "usual"));
    let mut lists_with_rows = 0;
    let filters = filters(OffsetDateTime::now_utc());
    let detailed: Vec<ExecutionFilter> = filters.iter().step_by(5).flat_map(with_details).collect();
    for filter in filters.into_iter().chain(detailed) {
        let expected: Vec<&Execution> = all.iter().filter(|run| matches(&filter, run)).collect();
        let (found, total) = read_all_pages(&fixture.store, scope(), &filter, 90).await;
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{filter:?}");
        assert_eq!(total, u64::try_from(expected.len()).unwrap(), "{filter:?}");
        let middle_page = PageRequest { limit: 2, start: PageStart::Skip(3) };
        let middle_page = ExecutionReadStore::list(&*fixture.store, scope(), &filter, middle_page).await.unwrap().rows;
        assert_eq!(
            middle_page.iter().map(|listed| &listed.execution).collect::<Vec<_>>(),
            expected.iter().skip(3).take(2).copied().collect::<Vec<_>>()
        );
        lists_with_rows += usize::from(!expected.is_empty());
    }
    assert!(lists_with_rows > 100, "only {lists_with_rows} lists had rows");
    // The other tenant has its own runs, of workloads and releases with the same identifiers.
    let other_tenant = TenantScope::for_background_task(Uuid::from_u128(0x7000_8000_0000_0000_00ff).into());
    let (other_runs, _) = read_all_pages(&fixture.store, other_tenant, &ExecutionFilter::default(), 200).await;
    assert_eq!(other_runs.len(), 208);
    let own_ids: HashSet<_> = all.iter().map(|run| run.execution_id).collect();
    assert!(other_runs.iter().all(|run| !own_ids.contains(&run.execution_id)));
}

/// Maximum number of blocks that are read for a page of a selective list and its total: twenty rows with their
/// decisions, each found through an index.
const MAX_BLOCKS_PER_PAGE: i64 = 600;

#[tokio::test]
async fn no_filter_combination_scans_a_whole_partition() {
    let database = TestDatabase::create().await.unwrap();
    fill(&database, 4_000).await;
    let filters = filters(OffsetDateTime::now_utc());
    // Each filter is executed only once, because lists of partitioned tables use generic plans from the first execution
    // on.
    let round = Cell::new(0);
    let (mut database, counts) = measure(database, async |_, store| {
        for filter in filters.iter().skip(round.replace(round.get() + 1)).step_by(TURNS) {
            let first = ExecutionReadStore::list(store, scope(), filter, PageRequest::first(20)).await.unwrap();
            if let Some(next) = first.next {
                let page = PageRequest { limit: 20, start: PageStart::After(next) };
                ExecutionReadStore::list(store, scope(), filter, page).await.unwrap();
            }
        }
    })
    .await;
    assert!(counts.keys().filter(|table| table.starts_with("execution_20")).count() >= 11, "{counts:?}");
    assert_no_seq_scans(&counts);

    // A later page costs as much as the first page, also with filters on columns without an index.
    let mut blocks_of = Vec::new();
    for start in [PageStart::Skip(0), PageStart::After(cursor_of_old_run())] {
        let (returned_database, counts) = measure(database, async |_, store| {
            let page = PageRequest { limit: 20, start };
            let page = ExecutionReadStore::list(store, scope(), &two_filters(), page).await.unwrap();
            assert_eq!(page.rows.len(), 20);
        })
        .await;
        database = returned_database;
        blocks_of.push(counts.values().map(|count| count.blocks).sum::<i64>());
    }
    assert!(blocks_of[1] * 10 <= blocks_of[0] * 13, "blocks of the first and of a later page: {blocks_of:?}");

    // Rare runs are found without scanning the frequent ones.
    let month = |count: i64| Some(Timestamp::new(OffsetDateTime::now_utc() - Duration::days(count)));
    let (unknown_id, other_release) = (Uuid::now_v7(), Some(numbered_id('c', "42").into()));
    let other_workspace =
        Some(VisibleScopes { workspaces: vec![numbered_id('a', "2").into()], ..VisibleScopes::default() });
    let default_filter = ExecutionFilter::default;
    for filter in [
        ExecutionFilter { since: month(2), ..default_filter() },
        ExecutionFilter { until: month(325), ..default_filter() },
        ExecutionFilter { since: month(101), until: month(100), status: Some(Status::Completed), ..default_filter() },
        ExecutionFilter { since: month(60), until: month(40), status: Some(Status::Failed), ..default_filter() },
        ExecutionFilter { since: month(40), until: month(30), workload: some_id('b', "2"), ..default_filter() },
        ExecutionFilter { release: Some(unknown_id.into()), ..default_filter() },
        ExecutionFilter { workload: Some(unknown_id.into()), ..default_filter() },
        // The release belongs to a workload other than the filtered one, or the caller may not see it.
        ExecutionFilter { release: other_release, workload: some_id('b', "1"), ..default_filter() },
        ExecutionFilter { release: other_release, visible_scopes: other_workspace.clone(), ..default_filter() },
        ExecutionFilter { workload: some_id('b', "1"), visible_scopes: other_workspace, ..default_filter() },
        ExecutionFilter { visible_scopes: Some(VisibleScopes::default()), ..default_filter() },
    ] {
        wait_for_other_connections(&database).await.batch_execute("VACUUM ANALYZE execution").await.unwrap();
        let (returned_database, counts) = measure(database, async |_, store| {
            ExecutionReadStore::list(store, scope(), &filter, PageRequest::first(20)).await.unwrap();
        })
        .await;
        database = returned_database;
        let blocks: i64 = counts.values().map(|count| count.blocks).sum();
        let blocks_per_round = blocks / i64::try_from(TURNS).unwrap();
        assert!(
            blocks_per_round <= MAX_BLOCKS_PER_PAGE,
            "{blocks_per_round} blocks were read for {filter:?}: {counts:?}"
        );
    }
}
