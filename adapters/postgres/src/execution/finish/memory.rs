//! Turns of conversations, written with the ends of their runs.

use crate::{database::Param, memory::locked_session};
use fairway_domain::memory::{OnRevoke, Writeback};
use serde_json::{Value, json};
use uuid::Uuid;

/// Writes a turn only if its conversation was not erased since the run read it, and no access contract that applies to
/// it is revoked. Session rows are locked in one order, so that concurrent batches do not deadlock.
macro_rules! insert_turns {
    () => {
        "offered AS MATERIALIZED (
            SELECT ended.tenant_id, execution_id, workload_id, turn.owner, turn.session_id, meeting, erasure, asset_id, said,
                answered, turn.salt, digest, clean, contracts, erased_on_revoke, most, days
            FROM unnest($60::uuid[], $61::text[], $62::text[], $63::text[], $64::uuid[], $65::uuid[], $66::text[], $67::text[],
                $68::bytea[], $69::bytea[], $70::bool[], $71::jsonb[], $72::bool[], $73::bigint[], $74::int[])
                AS turn (execution_id, owner, session_id, meeting, erasure, asset_id, said, answered, salt, digest, clean,
                contracts, erased_on_revoke, most, days)
            JOIN ended USING (execution_id)
         ),
         met AS (
            INSERT INTO memory_session AS held (tenant_id, workload_id, owner, session_id, erasure, touched_at)
            SELECT tenant_id, workload_id, owner, meeting, erasure, fairway_now() FROM offered
            ORDER BY tenant_id, workload_id, owner, meeting
            ON CONFLICT (tenant_id, workload_id, owner, session_id) DO UPDATE SET touched_at = excluded.touched_at
            WHERE held.erasure IS NOT DISTINCT FROM excluded.erasure
            RETURNING tenant_id, workload_id, owner, session_id AS meeting
         ),
         turns AS (
            INSERT INTO memory_turn (tenant_id, execution_id, workload_id, asset_id, owner, session_id, said, answered,
                bytes, salt, digest, clean, contracts, erased_on_revoke, remembered_at, expires_at)
            SELECT tenant_id, execution_id, workload_id, asset_id, owner, session_id, said, answered,
                octet_length(said) + octet_length(answered), salt, digest, clean,
                ARRAY(SELECT fairway_contract_mark(tenant_id, contract) FROM jsonb_array_elements_text(contracts) AS contract),
                erased_on_revoke, fairway_now(),
                fairway_now() + make_interval(days => days)
            FROM offered JOIN met USING (tenant_id, workload_id, owner, meeting)
            WHERE NOT EXISTS (
                SELECT FROM access_contract AS contract
                WHERE contract.tenant_id = offered.tenant_id AND contract.revoked
                    AND contract.contract_id IN (SELECT jsonb_array_elements_text(contracts)))
            ON CONFLICT DO NOTHING
            RETURNING tenant_id, execution_id
         ),
         trimmed AS (
            DELETE FROM memory_turn WHERE ctid = ANY (ARRAY(
                SELECT old.place FROM turns JOIN offered USING (tenant_id, execution_id), LATERAL (
                    (SELECT ctid AS place FROM memory_turn AS kept
                    WHERE offered.meeting <> '' AND kept.tenant_id = offered.tenant_id
                        AND kept.workload_id = offered.workload_id AND kept.owner = offered.owner
                        AND kept.session_id = offered.session_id AND kept.asset_id = offered.asset_id
                    ORDER BY kept.remembered_at DESC, kept.execution_id DESC OFFSET offered.most - 1 LIMIT 200)
                    UNION ALL
                    (SELECT ctid FROM memory_turn AS kept
                    WHERE offered.meeting = '' AND kept.tenant_id = offered.tenant_id
                        AND kept.workload_id = offered.workload_id AND kept.owner = offered.owner
                        AND kept.asset_id = offered.asset_id
                    ORDER BY kept.remembered_at DESC, kept.execution_id DESC OFFSET offered.most - 1 LIMIT 200)
                ) AS old
            ))
         ),"
    };
}
pub(super) use insert_turns;

/// The turns of a batch, one vector for each column.
#[derive(Default)]
pub(super) struct TurnColumns<'a> {
    executions: Vec<Uuid>,
    owners: Vec<String>,
    sessions: Vec<&'a str>,
    locked_sessions: Vec<&'a str>,
    erasures: Vec<Option<Uuid>>,
    assets: Vec<Uuid>,
    said: Vec<&'a str>,
    answered: Vec<&'a str>,
    salts: Vec<&'a [u8]>,
    digests: Vec<Vec<u8>>,
    clean: Vec<bool>,
    contracts: Vec<Value>,
    erased_on_revoke: Vec<bool>,
    max_turns: Vec<i64>,
    days: Vec<i32>,
}

impl<'a> TurnColumns<'a> {
    pub(super) fn push(&mut self, of: Uuid, written: &'a Writeback) {
        let Writeback { conversation: place, turn, salt, contracts } = written;
        let rules = &turn.memory.config;
        self.executions.push(of);
        self.owners.push(place.owner.to_string());
        self.sessions.push(place.session.as_str());
        self.locked_sessions.push(locked_session(rules.scope, place));
        self.erasures.push(turn.last_erasure);
        self.assets.push(turn.memory.asset.uuid());
        self.said.push(&turn.question);
        self.answered.push(&turn.response);
        self.salts.push(salt);
        self.digests.push(written.digest().to_vec());
        self.clean.push(rules.personal_data.requires_masked_turns());
        self.contracts.push(json!(contracts));
        self.erased_on_revoke.push(rules.on_revoke == OnRevoke::Erase);
        self.max_turns.push(i64::from(rules.max_turns));
        self.days.push(i32::try_from(rules.retention_days).unwrap_or(i32::MAX));
    }

    pub(super) fn params(&self) -> [Param<'_>; 15] {
        [
            &self.executions,
            &self.owners,
            &self.sessions,
            &self.locked_sessions,
            &self.erasures,
            &self.assets,
            &self.said,
            &self.answered,
            &self.salts,
            &self.digests,
            &self.clean,
            &self.contracts,
            &self.erased_on_revoke,
            &self.max_turns,
            &self.days,
        ]
    }
}
