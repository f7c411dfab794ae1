//! Each commit happens whole or not at all.

use crate::{
    commits::{COMMITS, Commit, Lost},
    stage::{Stage, actor, scope},
};
use fairway_domain::{
    idempotency::{IdempotencyStore, KeyedOutcome, Known, Outcome, RequestKey},
    store::CommitError,
};
use std::{collections::BTreeMap, fs, path::Path};
use uuid::Uuid;

/// Number of rows and digest of all of them, for each table.
type Contents = BTreeMap<String, (i64, String)>;

async fn contents(stage: &Stage) -> Contents {
    let sql = "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition
        AND relnamespace = 'public'::regnamespace ORDER BY relname";
    let mut all = Contents::new();
    for table in stage.owner.query(sql, &[]).await.unwrap() {
        let table: String = table.get(0);
        let sql = format!(
            "SELECT count(*), coalesce(md5(string_agg(line, E'\\n' ORDER BY line)), '')
             FROM (SELECT row::text AS line FROM \"{table}\" AS row) AS lines"
        );
        let row = stage.owner.query_one(&sql, &[]).await.unwrap();
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
    KeyedOutcome { key, outcome: Outcome { status: 201, resource } }
}

/// What of a lost commit's error matters.
fn reason(error: &CommitError) -> Option<Lost> {
    match error {
        CommitError::Stale => Some(Lost::Stale),
        CommitError::Conflict(conflict) => Some(Lost::Conflict(*conflict)),
        CommitError::KeyTaken | CommitError::Store(_) => None,
    }
}

/// Loses the commit's guard in each way that it knows of. What the commit would have written is compared whole.
async fn loses_every_guard(stage: &Stage, commit: Commit) {
    let ways = commit.decide(stage).await.spoils.len();
    // That something was refused hangs on nothing: it happened.
    let refusal = commit.method == "AuditStore::commit_alone";
    assert_eq!(ways == 0, refusal, "{}: nothing is known that makes it come too late", commit.method);
    for way in 0..ways {
        let decision = commit.decide(stage).await;
        let spoil = &decision.spoils[way];
        stage.run(&spoil.sql).await;
        let before = contents(stage).await;
        let error = (decision.send)(commit.takes_key.then(|| key(Uuid::now_v7()))).await.unwrap_err();
        assert_eq!(reason(&error), Some(spoil.lost), "{} after {}: {error:?}", commit.method, spoil.sql);
        let after = contents(stage).await;
        assert_eq!(changed(&before, &after), [""; 0], "{} wrote although {}", commit.method, spoil.sql);
    }
}

/// The same commit, in time: one fact, waiting for its place.
async fn happens_whole(stage: &Stage, commit: Commit) {
    let decision = commit.decide(stage).await;
    let facts = "SELECT count(*) FROM fact JOIN fact_pending USING (tenant_id, fact_id)";
    let (before, all_before) = (stage.number(facts).await, stage.number("SELECT count(*) FROM fact").await);
    let outcome = commit.takes_key.then(|| key(Uuid::now_v7()));
    (decision.send)(outcome.clone()).await.unwrap();
    let told = i64::from(commit.tells.is_some());
    assert_eq!(stage.number(facts).await - before, told, "{}", commit.method);
    assert_eq!(stage.number("SELECT count(*) FROM fact").await - all_before, told, "{}", commit.method);
    if let Some(kind) = commit.tells {
        let sql = "SELECT kind FROM fact ORDER BY fact_id DESC LIMIT 1";
        let last: String = stage.owner.query_one(sql, &[]).await.unwrap().get(0);
        assert_eq!(last, kind.as_str(), "{}", commit.method);
    }
    if let Some(keyed) = outcome {
        let known = stage.store.look_up(scope(), &keyed.key).await.unwrap();
        assert_ne!(known, Known::No, "{} kept no key", commit.method);
        takes_no_key_twice(stage, commit, keyed).await;
    }
}

/// Another decision under a key that is taken.
async fn takes_no_key_twice(stage: &Stage, commit: Commit, keyed: KeyedOutcome) {
    let decision = commit.decide(stage).await;
    let before = contents(stage).await;
    let error = (decision.send)(Some(keyed)).await.unwrap_err();
    assert!(matches!(error, CommitError::KeyTaken), "{}: {error:?}", commit.method);
    assert_eq!(changed(&before, &contents(stage).await), [""; 0], "{} wrote under a taken key", commit.method);
}

#[tokio::test]
async fn a_commit_that_comes_too_late_changes_nothing() {
    let stage = Stage::new().await;
    for commit in COMMITS {
        loses_every_guard(&stage, commit).await;
    }
}

#[tokio::test]
async fn a_commit_in_time_tells_exactly_one_fact_and_takes_its_key_once() {
    let stage = Stage::new().await;
    for commit in COMMITS {
        happens_whole(&stage, commit).await;
    }
}

#[tokio::test]
async fn a_key_is_free_again_after_its_lifetime() {
    let stage = Stage::new().await;
    for commit in COMMITS.into_iter().filter(|commit| commit.takes_key) {
        let keyed = key(Uuid::now_v7());
        (commit.decide(&stage).await.send)(Some(keyed.clone())).await.unwrap();
        stage.database.move_clock(24 * 60 * 60 + 1).await.unwrap();
        assert_eq!(stage.store.look_up(scope(), &keyed.key).await.unwrap(), Known::No, "{}", commit.method);
        (commit.decide(&stage).await.send)(Some(keyed)).await.unwrap();
        stage.database.move_clock(0).await.unwrap();
    }
    assert_eq!(stage.store.sweep().await.unwrap(), 0);
    stage.database.move_clock(3 * 24 * 60 * 60).await.unwrap();
    let keys = COMMITS.iter().filter(|commit| commit.takes_key).count();
    assert_eq!(stage.store.sweep().await.unwrap(), u64::try_from(keys).unwrap());
}

/// The ports themselves say what there is to commit, so a new method fails here until somebody loses its guard.
#[test]
fn no_commit_of_any_port_is_forgotten() {
    let mut declared = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/domain/src"), &mut declared);
    let mut known: Vec<String> =
        COMMITS.iter().map(|commit| commit.method.split(' ').next().unwrap_or_default().to_owned()).collect();
    known.dedup();
    declared.sort();
    known.sort();
    assert_eq!(known, declared);
}

/// Methods of traits that answer with a `CommitError`.
fn collect(folder: &Path, declared: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, declared);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for part in text.split("pub trait ").skip(1) {
            let name: String = part.chars().take_while(|letter| letter.is_alphanumeric()).collect();
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
