-- Chat memory: what was said in conversations and answered. It is text of people and models, so it lies in a table of its
-- own and can be erased; what runs say of it is digests.

-- A turn is the run that it was, so no run is remembered twice. `bytes` is the length of both texts. `clean` says that
-- personal data was masked or is not there. `contracts` are the access contracts that it was kept under, each with
-- its tenant in front: contracts of many tenants have the same names.
CREATE TABLE memory_turn (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    workload_id uuid NOT NULL,
    asset_id uuid NOT NULL,
    owner text NOT NULL,
    session_id text NOT NULL CHECK (session_id ~ '^[A-Za-z0-9_-][A-Za-z0-9._:@+=~-]{0,127}$'),
    said text NOT NULL,
    answered text NOT NULL,
    bytes integer NOT NULL CHECK (bytes BETWEEN 0 AND 32768),
    salt bytea NOT NULL,
    digest bytea NOT NULL CHECK (length(digest) = 32),
    clean boolean NOT NULL,
    contracts text[] NOT NULL,
    erased_on_revoke boolean NOT NULL,
    remembered_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, execution_id)
);
-- A conversation, and all of one owner's, latest first.
CREATE INDEX memory_turn_by_session
    ON memory_turn (tenant_id, workload_id, owner, session_id, remembered_at, execution_id);
CREATE INDEX memory_turn_by_owner
    ON memory_turn (tenant_id, workload_id, owner, asset_id, remembered_at, execution_id);
CREATE INDEX memory_turn_by_end ON memory_turn (expires_at);
-- Those that go with a contract.
CREATE INDEX memory_turn_by_contract ON memory_turn USING gin (contracts) WITH (fastupdate = off) WHERE erased_on_revoke;
CREATE INDEX access_contract_revoked ON access_contract (tenant_id, contract_id) WHERE revoked;
GRANT SELECT, INSERT, DELETE ON memory_turn TO fairway_service;

-- What writes to a conversation and what erases it meet in its row: of two at once one waits for the other and sees what it
-- did. `erasure` is the fact of the last erasure; a run writes only if that is still the one that it knew of. The row of the
-- session '' stands for all sessions of its owner.
CREATE TABLE memory_session (
    tenant_id uuid NOT NULL,
    workload_id uuid NOT NULL,
    owner text NOT NULL,
    session_id text NOT NULL,
    erasure uuid,
    touched_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, workload_id, owner, session_id)
) WITH (fillfactor = 50);
CREATE INDEX memory_session_by_age ON memory_session (touched_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON memory_session TO fairway_service;

-- Erases a conversation and answers with how many turns it had. The rows come first, the one of all sessions in front, as
-- ends of runs take them: what is written behind this one's back is there before the turns are looked for, or never.
CREATE FUNCTION fairway_erase_session(a_tenant uuid, a_workload uuid, an_owner text, a_session text, an_erasure uuid)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    erased bigint;
BEGIN
    INSERT INTO memory_session (tenant_id, workload_id, owner, session_id, erasure, touched_at)
    VALUES (a_tenant, a_workload, an_owner, '', an_erasure, fairway_now()),
        (a_tenant, a_workload, an_owner, a_session, an_erasure, fairway_now())
    ON CONFLICT (tenant_id, workload_id, owner, session_id) DO UPDATE
    SET erasure = excluded.erasure, touched_at = excluded.touched_at;
    -- What nobody may read any more goes too, and was not counted.
    SELECT count(*) INTO erased FROM memory_turn
    WHERE tenant_id = a_tenant AND workload_id = a_workload AND owner = an_owner AND session_id = a_session
        AND expires_at > fairway_now();
    DELETE FROM memory_turn
    WHERE tenant_id = a_tenant AND workload_id = a_workload AND owner = an_owner AND session_id = a_session;
    RETURN erased;
END
$$;

-- What stands for a contract in `memory_turn.contracts`.
CREATE FUNCTION fairway_contract_mark(a_tenant uuid, a_contract text) RETURNS text
LANGUAGE sql IMMUTABLE RETURN a_tenant::text || '/' || a_contract;

-- With a contract go the turns that were to go with it, whoever says that it is over: a version or a person. A revocation
-- must not fail for how many there are, so of very many the sweeper takes the rest. How many turns a contract has is not
-- known when this is planned; without the setting few of a large table would be looked for from its beginning.
CREATE FUNCTION fairway_forget_contract() RETURNS trigger
LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    DELETE FROM memory_turn WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM memory_turn
        WHERE erased_on_revoke AND contracts @> ARRAY[fairway_contract_mark(NEW.tenant_id, NEW.contract_id)]
        LIMIT 5000));
    RETURN NULL;
END
$$;
CREATE TRIGGER memory_goes_with_contract AFTER UPDATE OF revoked ON access_contract
    FOR EACH ROW WHEN (NEW.revoked AND NOT OLD.revoked) EXECUTE FUNCTION fairway_forget_contract();

-- Forgets so many turns whose contract is over, and answers how many there were: those that were written while it ended,
-- and those that were too many to go with it.
CREATE FUNCTION fairway_forget_revoked(most bigint) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    forgotten bigint;
BEGIN
    DELETE FROM memory_turn WHERE ctid = ANY (ARRAY(
        SELECT turn.place FROM access_contract AS contract, LATERAL (
            SELECT ctid AS place FROM memory_turn
            WHERE erased_on_revoke
                AND contracts @> ARRAY[fairway_contract_mark(contract.tenant_id, contract.contract_id)]
            LIMIT most
        ) AS turn
        WHERE contract.revoked
        LIMIT most));
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END
$$;
