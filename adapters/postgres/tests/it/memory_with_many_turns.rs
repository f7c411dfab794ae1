//! Conversation memory of an owner with a very large number of turns.

use crate::{
    commit_cases::memory::{conversation_key, ending_with_turn},
    fixture::{Fixture, acceptance, open_store, scope},
    indexes::{TURNS, assert_no_seq_scans, read_counts},
};
use fairway_domain::{
    execution::{Acceptance, ports::RunStore},
    id::AssetId,
    memory::{
        ConversationKey, MemoryScope, PersonalDataPolicy,
        ports::{MemoryStore, RecallQuery},
    },
    release::Release,
    workload::Workload,
};
use fairway_testkit::TestDatabase;
use uuid::Uuid;

const ASSET: Uuid = Uuid::from_u128(7);
/// Maximum number of blocks that a statement reads for each row that it finds or writes. A scan of all turns of the
/// owner reads hundreds.
const MAX_BLOCKS_PER_ROW: i64 = 10;

/// Inserts `turns` turns of the actor in the workload. The last three parameters are SQL expressions for session,
/// contract and expiry.
async fn fill(fixture: &Fixture, workload: &Workload, turns: u32, session: &str, contract: &str, expires_in: &str) {
    let workload = workload.workload_id.uuid();
    let sql = format!(
        "INSERT INTO memory_turn SELECT tenant_id, gen_random_uuid(), workload_id, '{ASSET}', '{owner}', {session}, 'a', 'b', 2,
            'x', sha256('x'), true, ARRAY[{contract}], true, now() - n * interval '1 ms', now() + interval '{expires_in}'
         FROM workload, generate_series(1, {turns}) AS n WHERE workload_id = '{workload}'",
        owner = crate::fixture::actor(),
    );
    fixture.owner.batch_execute(&sql).await.unwrap();
}

async fn next_run(fixture: &Fixture, workload: &Workload, release: &Release) -> Acceptance {
    let deployed_release = fixture.current_release(release).await;
    let revisions = fixture.expected_revisions(workload, &deployed_release).await;
    let run = acceptance(&deployed_release);
    fixture.store.accept(scope(), &run, revisions, None).await.unwrap();
    run
}

#[tokio::test]
async fn no_statement_scans_all_turns_of_an_owner() {
    let fixture = Fixture::over(TestDatabase::create().await.unwrap(), 1).await;
    let (workload, deployed_release) = fixture.active().await;
    fill(&fixture, &workload, 20_000, "'other-' || n", "'another/contract-' || n", "1 day").await;
    fill(&fixture, &workload, 150, "'s'", "'another/contract'", "1 day").await;
    fixture.owner.batch_execute("ANALYZE").await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..2 * TURNS {
        runs.push(next_run(&fixture, &workload, &deployed_release.release).await);
    }
    fixture.owner.batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
    fixture.owner.batch_execute("SELECT pg_stat_reset()").await.unwrap();
    let store = open_store(&fixture.database.url_for_owner(), 1);
    let conversation: ConversationKey = conversation_key(workload.workload_id, "s");
    for (number, run) in runs.iter().enumerate() {
        let is_session = number < TURNS;
        let memory_scope = if is_session { MemoryScope::Session } else { MemoryScope::User };
        let query = RecallQuery {
            asset: AssetId::from(ASSET),
            scope: memory_scope,
            limit: 10,
            max_age_days: 1,
            personal_data: PersonalDataPolicy::Mask,
        };
        assert_eq!(store.recall(scope(), &conversation, &query).await.unwrap().turns.len(), 10);
        store.list_turns(scope(), &conversation).await.unwrap();
        let mut ending = ending_with_turn(run, "s");
        let turn = &mut ending.writeback.as_mut().unwrap().turn.memory;
        (turn.asset, turn.config.scope) = (AssetId::from(ASSET), memory_scope);
        store.finish(scope(), &ending).await.unwrap();
    }
    drop(store);
    let (_database, counts) = read_counts(fixture.into_database()).await;
    assert_no_seq_scans(&counts);
    // The end of a run deletes a bounded number of turns, so most of them remain.
    let turns = &counts["memory_turn"];
    assert!(turns.blocks <= 40 * 1_000, "too many blocks were read: {turns:?}");
    assert!(turns.blocks_per_access() <= MAX_BLOCKS_PER_ROW, "too many blocks were read for each row: {turns:?}");
}

#[tokio::test]
async fn revocation_and_expiry_delete_any_number_of_turns() {
    let fixture = Fixture::over(TestDatabase::create().await.unwrap(), 1).await;
    let (workload, deployed_release) = fixture.active().await;
    let asset = deployed_release.release.bindings[0].asset_id;
    let sql = format!(
        "INSERT INTO access_contract SELECT tenant_id, 'handbook', asset_id, false FROM asset WHERE asset_id = '{asset}'"
    );
    fixture.owner.batch_execute(&sql).await.unwrap();
    let contract_mark = "fairway_contract_mark(tenant_id, 'handbook')";
    fill(&fixture, &workload, 6_000, "'mine-' || n", contract_mark, "1 day").await;
    fill(&fixture, &workload, 3_000, "'theirs-' || n", "'another/handbook'", "1 day").await;
    fill(&fixture, &workload, 2_500, "'over-' || n", "'another/handbook'", "-1 day").await;
    fixture.owner.batch_execute("ANALYZE").await.unwrap();
    fixture.owner.batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
    fixture.owner.batch_execute("SELECT pg_stat_reset()").await.unwrap();
    // The trigger of the revocation deletes a bounded number of turns. `delete_expired` deletes the others.
    fixture.owner.batch_execute("UPDATE access_contract SET revoked = true").await.unwrap();
    assert_eq!(fixture.store.delete_expired().await.unwrap(), 1_000 + 2_500);
    assert_eq!(fixture.store.delete_expired().await.unwrap(), 0);
    let (database, counts) = read_counts(fixture.into_database()).await;
    assert_no_seq_scans(&counts);
    let remaining_sql = "SELECT count(*), count(*) FILTER (WHERE session_id LIKE 'theirs-%') FROM memory_turn";
    let row = database.connect_as_owner().await.unwrap().query_one(remaining_sql, &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (3_000, 3_000));
}

/// A turn that is rejected must not cause the deletion of other turns.
#[tokio::test]
async fn rejected_turn_evicts_no_other_turn() {
    let fixture = Fixture::new().await;
    let (workload, deployed_release) = fixture.active().await;
    let asset = deployed_release.release.bindings[0].asset_id;
    fill(&fixture, &workload, 10, "'s'", "'another/handbook'", "1 day").await;
    let end = async || {
        let run = next_run(&fixture, &workload, &deployed_release.release).await;
        let mut ending = ending_with_turn(&run, "s");
        ending.writeback.as_mut().unwrap().turn.memory.asset = AssetId::from(ASSET);
        fixture.store.finish(scope(), &ending).await.unwrap();
        let sql = "SELECT count(*) FILTER (WHERE said = 'a'), count(*) FROM memory_turn";
        let row = fixture.owner.query_one(sql, &[]).await.unwrap();
        (row.get::<_, i64>(0), row.get::<_, i64>(1))
    };
    assert_eq!(end().await, (9, 10), "the new turn evicts the oldest");
    let sql = format!(
        "INSERT INTO access_contract SELECT tenant_id, 'handbook', asset_id, true FROM asset WHERE asset_id = '{asset}'"
    );
    fixture.owner.batch_execute(&sql).await.unwrap();
    assert_eq!(end().await, (9, 10), "a turn under a revoked contract is not written");
}
