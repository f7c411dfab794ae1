//! Conversation turns, which are written in the statement that ends their run.

use crate::{guarded_commit::Input, memory::session_to_lock};
use fairway_domain::{
    execution::FinishRecord,
    memory::{OnRevoke, Writeback},
};
use serde_json::json;

/// The CTEs that store turns. A turn is stored only if its conversation was not erased since the run read it, and
/// if no access contract of the turn is revoked. Session rows are locked in key order, so that concurrent batches
/// do not deadlock.
pub(super) const INSERT_TURNS: &str = ", offered AS MATERIALIZED (
            SELECT ended.tenant_id, execution_id, workload_id, turn.owner, turn.session_id, locked_session, erasure, asset_id, said,
                answered, turn.salt, digest, clean, contracts, erased_on_revoke, max_turns, days
            FROM turn
            JOIN ended USING (execution_id)
         ),
         session AS (
            INSERT INTO memory_session AS held (tenant_id, workload_id, owner, session_id, erasure, touched_at)
            SELECT tenant_id, workload_id, owner, locked_session, erasure, fairway_now() FROM offered
            ORDER BY tenant_id, workload_id, owner, locked_session
            ON CONFLICT (tenant_id, workload_id, owner, session_id) DO UPDATE SET touched_at = excluded.touched_at
            WHERE held.erasure IS NOT DISTINCT FROM excluded.erasure
            RETURNING tenant_id, workload_id, owner, session_id AS locked_session
         ),
         stored_turns AS (
            INSERT INTO memory_turn (tenant_id, execution_id, workload_id, asset_id, owner, session_id, said, answered,
                bytes, salt, digest, clean, contracts, erased_on_revoke, remembered_at, expires_at)
            SELECT tenant_id, execution_id, workload_id, asset_id, owner, session_id, said, answered,
                octet_length(said) + octet_length(answered), salt, digest, clean,
                ARRAY(SELECT fairway_contract_mark(tenant_id, contract) FROM jsonb_array_elements_text(contracts) AS contract),
                erased_on_revoke, fairway_now(),
                fairway_now() + make_interval(days => days)
            FROM offered JOIN session USING (tenant_id, workload_id, owner, locked_session)
            WHERE NOT EXISTS (
                SELECT FROM access_contract AS contract
                WHERE contract.tenant_id = offered.tenant_id AND contract.revoked
                    AND contract.contract_id IN (SELECT jsonb_array_elements_text(contracts)))
            ON CONFLICT DO NOTHING
            RETURNING tenant_id, execution_id
         ),
         trimmed AS (
            DELETE FROM memory_turn WHERE ctid = ANY (ARRAY(
                SELECT old.place FROM stored_turns JOIN offered USING (tenant_id, execution_id), LATERAL (
                    (SELECT ctid AS place FROM memory_turn AS kept
                    WHERE offered.locked_session <> '' AND kept.tenant_id = offered.tenant_id
                        AND kept.workload_id = offered.workload_id AND kept.owner = offered.owner
                        AND kept.session_id = offered.session_id AND kept.asset_id = offered.asset_id
                    ORDER BY kept.remembered_at DESC, kept.execution_id DESC OFFSET offered.max_turns - 1 LIMIT 200)
                    UNION ALL
                    (SELECT ctid FROM memory_turn AS kept
                    WHERE offered.locked_session = '' AND kept.tenant_id = offered.tenant_id
                        AND kept.workload_id = offered.workload_id AND kept.owner = offered.owner
                        AND kept.asset_id = offered.asset_id
                    ORDER BY kept.remembered_at DESC, kept.execution_id DESC OFFSET offered.max_turns - 1 LIMIT 200)
                ) AS old
            ))
     )";

/// Adds the turns that runs write to memory.
pub(super) fn add_turn_rows<'v>(
    input: Input<'v>,
    endings: impl Iterator<Item = &'v FinishRecord> + Clone,
) -> Input<'v> {
    let turns: Vec<(&FinishRecord, &Writeback)> =
        endings.filter_map(|ending| ending.writeback.as_ref().map(|written| (ending, written))).collect();
    let written = || turns.iter().map(|(_, written)| *written);
    let conversations = || written().map(|written| &written.conversation);
    let rules = || written().map(|written| &written.turn.memory.config);
    input
        .with_rows("turn")
        .with_all("execution_id", turns.iter().map(|(ending, _)| ending.execution_id.uuid()).collect())
        .with_all("owner", conversations().map(|place| place.owner.to_string()).collect())
        .with_all("session_id", conversations().map(|place| place.session.as_str()).collect())
        .with_all(
            "locked_session",
            written().map(|written| session_to_lock(written.turn.memory.config.scope, &written.conversation)).collect(),
        )
        .with_all("erasure", written().map(|written| written.turn.last_erasure).collect())
        .with_all("asset_id", written().map(|written| written.turn.memory.asset.uuid()).collect())
        .with_all("said", written().map(|written| written.turn.question.as_str()).collect())
        .with_all("answered", written().map(|written| written.turn.response.as_str()).collect())
        .with_all("salt", written().map(|written| written.salt.as_slice()).collect())
        .with_all("digest", written().map(|written| written.digest().to_vec()).collect())
        .with_all("clean", rules().map(|rules| rules.personal_data.requires_masked_turns()).collect())
        .with_all("contracts", written().map(|written| json!(written.contracts)).collect())
        .with_all("erased_on_revoke", rules().map(|rules| rules.on_revoke == OnRevoke::Erase).collect())
        .with_all("max_turns", rules().map(|rules| i64::from(rules.max_turns)).collect())
        .with_all("days", rules().map(|rules| i32::try_from(rules.retention_days).unwrap_or(i32::MAX)).collect())
}
