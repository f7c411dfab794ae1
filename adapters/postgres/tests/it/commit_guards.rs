//! Each commit is atomic: if its guard fails, it writes nothing.

use crate::{
    commit_cases::{COMMITS, CommitMethod, Rejection},
    fixture::{Fixture, actor, fresh, new_asset, new_release, new_workload, scope, stamp},
};
use fairway_domain::{
    asset::{Asset, NewAsset, kind::AssetKind, ports::AssetStore},
    idempotency::{IdempotencyStore, KeyState, KeyedOutcome, RequestKey, StoredOutcome},
    release::{NewRelease, Release, ports::ReleaseStore},
    store::{CommitError, StoreError, StoreFault},
    tenant::{Tenant, TenantStore},
    workload::{NewWorkload, Workload, ports::WorkloadStore},
};
use std::{collections::BTreeMap, fs, path::Path};
use uuid::Uuid;

/// The number of rows and a digest of their content, by table name.
type Contents = BTreeMap<String, (i64, String)>;

async fn contents(fixture: &Fixture) -> Contents {
    let sql = "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition
        AND relnamespace = 'public'::regnamespace ORDER BY relname";
    let mut all = Contents::new();
    for table in fixture.owner.query(sql, &[]).await.unwrap() {
        let table: String = table.get(0);
        let sql = format!(
            "SELECT count(*), coalesce(md5(string_agg(line, E'\\n' ORDER BY line)), '')
             FROM (SELECT row::text AS line FROM \"{table}\" AS row) AS lines"
        );
        let row = fixture.owner.query_one(&sql, &[]).await.unwrap();
        all.insert(table, (row.get(0), row.get(1)));
    }
    all
}

fn changed<'a>(before: &'a Contents, after: &'a Contents) -> Vec<&'a str> {
    after.iter().filter(|(table, now)| before.get(*table) != Some(now)).map(|(table, _)| table.as_str()).collect()
}

pub(crate) fn key(resource: Uuid) -> KeyedOutcome {
    let key = RequestKey {
        key: Uuid::now_v7().to_string(),
        caller: actor(),
        route: "POST /v1/things".to_owned(),
        body_digest: [3; 32],
    };
    KeyedOutcome { key, outcome: StoredOutcome { status: 201, resource } }
}

/// The kind of rejection that an error means; `None` for other errors.
fn rejection_of(error: &CommitError) -> Option<Rejection> {
    match error {
        CommitError::Stale => Some(Rejection::Stale),
        CommitError::Conflict(conflict) => Some(Rejection::Conflict(*conflict)),
        CommitError::DuplicateKey | CommitError::Store(_) => None,
    }
}

/// For each way to invalidate the commit's guard: asserts that the commit fails and that no table changes.
async fn assert_each_invalidation_rejects(fixture: &Fixture, commit: CommitMethod) {
    let invalidation_count = commit.decide(fixture).await.invalidations.len();
    // These commits have no guard, because no stored state can invalidate them: `commit_fact` records a refusal of an
    // earlier request, every inbox can be marked as read, and an erasure can be requested for any subject.
    let unguarded = ["AuditStore::commit_fact", "InboxStore::commit_all_read", "ErasureStore::commit_request"];
    let unguarded = unguarded.contains(&commit.method);
    assert_eq!(
        invalidation_count == 0,
        unguarded,
        "{}: no statement is defined that invalidates its guard",
        commit.method
    );
    for index in 0..invalidation_count {
        let decision = commit.decide(fixture).await;
        let invalidation = &decision.invalidations[index];
        fixture.run(&invalidation.sql).await;
        let before = contents(fixture).await;
        let error = (decision.send)(commit.takes_key.then(|| key(Uuid::now_v7()))).await.unwrap_err();
        assert_eq!(
            rejection_of(&error),
            Some(invalidation.rejection),
            "{} after {}: {error:?}",
            commit.method,
            invalidation.sql
        );
        let after = contents(fixture).await;
        assert_eq!(changed(&before, &after), [""; 0], "{} wrote after {}", commit.method, invalidation.sql);
    }
}

/// Asserts that the valid commit writes exactly one fact, which is pending.
async fn assert_commit_is_complete(fixture: &Fixture, commit: CommitMethod) {
    let decision = commit.decide(fixture).await;
    let facts = "SELECT count(*) FROM fact JOIN fact_pending USING (tenant_id, fact_id)";
    let (before, all_before) =
        (fixture.query_number(facts).await, fixture.query_number("SELECT count(*) FROM fact").await);
    let outcome = commit.takes_key.then(|| key(Uuid::now_v7()));
    (decision.send)(outcome.clone()).await.unwrap();
    let expected_facts = i64::from(commit.fact_kind.is_some());
    assert_eq!(fixture.query_number(facts).await - before, expected_facts, "{}", commit.method);
    assert_eq!(
        fixture.query_number("SELECT count(*) FROM fact").await - all_before,
        expected_facts,
        "{}",
        commit.method
    );
    if let Some(kind) = commit.fact_kind {
        let sql = "SELECT kind FROM fact ORDER BY fact_id DESC LIMIT 1";
        let last: String = fixture.owner.query_one(sql, &[]).await.unwrap().get(0);
        assert_eq!(last, kind.as_str(), "{}", commit.method);
    }
    if let Some(keyed) = outcome {
        let key_state = fixture.store.key_state(scope(), &keyed.key).await.unwrap();
        assert_ne!(key_state, KeyState::Unknown, "{} stored no idempotency key", commit.method);
        assert_used_key_rejects(fixture, commit, keyed).await;
    }
}

/// Asserts that another decision with an already used key is rejected.
async fn assert_used_key_rejects(fixture: &Fixture, commit: CommitMethod, keyed: KeyedOutcome) {
    let decision = commit.decide(fixture).await;
    let before = contents(fixture).await;
    let error = (decision.send)(Some(keyed)).await.unwrap_err();
    assert!(matches!(error, CommitError::DuplicateKey), "{}: {error:?}", commit.method);
    assert_eq!(changed(&before, &contents(fixture).await), [""; 0], "{} wrote under a used key", commit.method);
}

#[tokio::test]
async fn rejected_commits_change_nothing() {
    let fixture = Fixture::new().await;
    for commit in COMMITS {
        assert_each_invalidation_rejects(&fixture, commit).await;
    }
}

#[tokio::test]
async fn valid_commits_write_one_fact_and_use_their_key_once() {
    let fixture = Fixture::new().await;
    for commit in COMMITS {
        assert_commit_is_complete(&fixture, commit).await;
    }
}

#[tokio::test]
async fn idempotency_keys_are_reusable_after_their_lifetime() {
    let fixture = Fixture::new().await;
    for commit in COMMITS.into_iter().filter(|commit| commit.takes_key) {
        let keyed = key(Uuid::now_v7());
        (commit.decide(&fixture).await.send)(Some(keyed.clone())).await.unwrap();
        fixture.database.set_clock_offset(24 * 60 * 60 + 1).await.unwrap();
        assert_eq!(fixture.store.key_state(scope(), &keyed.key).await.unwrap(), KeyState::Unknown, "{}", commit.method);
        (commit.decide(&fixture).await.send)(Some(keyed)).await.unwrap();
        fixture.database.set_clock_offset(0).await.unwrap();
    }
    assert_eq!(fixture.store.delete_expired().await.unwrap(), 0);
    fixture.database.set_clock_offset(3 * 24 * 60 * 60).await.unwrap();
    let keys = COMMITS.iter().filter(|commit| commit.takes_key).count();
    assert_eq!(fixture.store.delete_expired().await.unwrap(), u64::try_from(keys).unwrap());
}

/// A decision that creates an aggregate has no previous revision to compare. It must therefore never replace an
/// existing row, not even one with an equal revision.
#[tokio::test]
async fn creations_replace_no_row() {
    fn is_inconsistent(committed: Result<(), CommitError>) -> bool {
        matches!(committed, Err(CommitError::Store(StoreError { fault: StoreFault::Inconsistent, .. })))
    }
    let fixture = Fixture::new().await;
    let (store, workload, asset) =
        (&*fixture.store, fixture.workload().await, fixture.asset(AssetKind::PolicyBundle).await);
    let release = fixture.draft(&workload).await;
    let draft_again = || {
        let ids = NewRelease { release_id: release.release_id, ..new_release(&workload) };
        Release::draft(ids, &stamp())
    };
    let new = NewWorkload { workload_id: workload.workload_id, ..new_workload() };
    let same_workload = Workload::create(new, &stamp()).unwrap();
    let new = NewAsset { asset_id: asset.asset_id, ..new_asset(AssetKind::PolicyBundle) };
    let same_asset = Asset::create(new, &stamp());
    let same_tenant = Tenant::create(scope().tenant(), "other", "Other", &stamp()).unwrap();
    let before = contents(&fixture).await;
    assert!(is_inconsistent(WorkloadStore::commit_change(store, scope(), same_workload).await));
    assert!(is_inconsistent(AssetStore::commit_lifecycle(store, scope(), same_asset, None).await));
    assert!(is_inconsistent(TenantStore::commit_settings(store, scope(), same_tenant).await));
    let keyed = key(Uuid::now_v7());
    assert!(is_inconsistent(ReleaseStore::commit_transition(store, scope(), draft_again(), Some(&keyed)).await));
    // Two concurrent transitions form a batch.
    let batch = tokio::join!(
        ReleaseStore::commit_transition(store, scope(), draft_again(), None),
        ReleaseStore::commit_transition(store, scope(), draft_again(), None),
    );
    assert!(is_inconsistent(batch.0) && is_inconsistent(batch.1));
    assert!(is_inconsistent(ReleaseStore::commit_binding_removal(store, scope(), draft_again(), fresh()).await));
    assert_eq!(changed(&before, &contents(&fixture).await), [""; 0]);
}

/// Compares the list with the methods of the ports. A new commit method makes this test fail until the list contains
/// it.
#[test]
fn lists_every_commit_method_of_the_ports() {
    let mut declared = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/domain/src"), &mut declared);
    let mut listed: Vec<String> =
        COMMITS.iter().map(|commit| commit.method.split(' ').next().unwrap_or_default().to_owned()).collect();
    listed.dedup();
    declared.sort();
    listed.sort();
    assert_eq!(listed, declared);
}

/// Collects the names of all trait methods that return a `CommitError`.
fn collect(folder: &Path, declared: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, declared);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for part in text.split("pub trait ").skip(1) {
            let name: String = part.chars().take_while(|character| character.is_alphanumeric()).collect();
            let body = part.split("\n}").next().unwrap_or_default();
            for method in body.split("async fn ").skip(1) {
                let signature = method.split(';').next().unwrap_or_default();
                if signature.contains("CommitError") {
                    let method = signature.split('(').next().unwrap_or_default();
                    declared.push(format!("{name}::{method}"));
                }
            }
        }
    }
}
