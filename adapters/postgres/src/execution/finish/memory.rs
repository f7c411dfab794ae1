//! Conversation turns, which are written in the statement that ends their run.

use crate::{guarded_commit::Input, memory::session_to_lock};
use fairway_domain::{
    execution::FinishRecord,
    memory::{OnRevoke, Writeback},
};
use serde_json::json;

/// The CTEs that store turns. They skip a turn if its conversation was erased after the run read it, or if an access
/// contract of the turn is revoked. Session rows are locked in key order, so that concurrent batches do not deadlock.
pub(super) const INSERT_TURNS: &str = ", offered AS MATERIALIZED (
            SELECT ended.tenant_id, execution_id, workload_id, turn.owner, turn.session_id, locked_session, erasure, asset_id, said,
                answered, turn.salt, digest, clean, contracts, erased_on_revoke, max_turns, days
            FROM turn
            JOIN ended USING (execution_id)
         ),
         session AS (
            INSERT INTO memory_session AS existing (tenant_id, workload_id, owner, session_id, erasure, touched_at)
            SELECT tenant_id, workload_id, owner, locked_session, erasure, fairway_now() FROM offered
            ORDER BY tenant_id, workload_id, owner, locked_session
            ON CONFLICT (tenant_id, workload_id, owner, session_id) DO UPDATE SET touched_at = excluded.touched_at
            WHERE existing.erasure IS NOT DISTINCT FROM excluded.erasure
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
                SELECT old.row_address FROM stored_turns JOIN offered USING (tenant_id, execution_id), LATERAL (
                    (SELECT ctid AS row_address FROM memory_turn AS stored
                    WHERE offered.locked_session <> '' AND stored.tenant_id = offered.tenant_id
                        AND stored.workload_id = offered.workload_id AND stored.owner = offered.owner
                        AND stored.session_id = offered.session_id AND stored.asset_id = offered.asset_id
                    ORDER BY stored.remembered_at DESC, stored.execution_id DESC OFFSET offered.max_turns - 1 LIMIT 200)
                    UNION ALL
                    (SELECT ctid FROM memory_turn AS stored
                    WHERE offered.locked_session = '' AND stored.tenant_id = offered.tenant_id
                        AND stored.workload_id = offered.workload_id AND stored.owner = offered.owner
                        AND stored.asset_id = offered.asset_id
                    ORDER BY stored.remembered_at DESC, stored.execution_id DESC OFFSET offered.max_turns - 1 LIMIT 200)
                ) AS old
            ))
     )";

/// Adds the turns that runs write to memory.
pub(super) fn add_turn_rows<'v>(
    input: Input<'v>,
    endings: impl Iterator<Item = &'v FinishRecord> + Clone,
) -> Input<'v> {
    let turns: Vec<(&FinishRecord, &Writeback)> =
        endings.filter_map(|ending| ending.writeback.as_ref().map(|writeback| (ending, writeback))).collect();
    let writebacks = || turns.iter().map(|(_, writeback)| *writeback);
    let conversations = || writebacks().map(|writeback| &writeback.conversation);
    let configs = || writebacks().map(|writeback| &writeback.turn.memory.config);
    input
        .with_rows("turn")
        .with_column("execution_id", turns.iter().map(|(ending, _)| ending.execution_id.uuid()))
        .with_column("owner", conversations().map(|conversation| conversation.owner.to_string()))
        .with_column("session_id", conversations().map(|conversation| conversation.session.as_str()))
        .with_column(
            "locked_session",
            writebacks().map(|writeback| session_to_lock(writeback.turn.memory.config.scope, &writeback.conversation)),
        )
        .with_column("erasure", writebacks().map(|writeback| writeback.turn.last_erasure))
        .with_column("asset_id", writebacks().map(|writeback| writeback.turn.memory.asset.uuid()))
        .with_column("said", writebacks().map(|writeback| writeback.turn.question.as_str()))
        .with_column("answered", writebacks().map(|writeback| writeback.turn.response.as_str()))
        .with_column("salt", writebacks().map(|writeback| writeback.salt.as_slice()))
        .with_column("digest", writebacks().map(|writeback| writeback.digest().to_vec()))
        .with_column("clean", configs().map(|config| config.personal_data.excludes_unmasked_turns()))
        .with_column("contracts", writebacks().map(|writeback| json!(writeback.contracts)))
        .with_column("erased_on_revoke", configs().map(|config| config.on_revoke == OnRevoke::Erase))
        .with_column("max_turns", configs().map(|config| i64::from(config.max_turns)))
        .with_column("days", configs().map(|config| i32::try_from(config.retention_days).unwrap_or(i32::MAX)))
}
