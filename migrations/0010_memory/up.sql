-- Chat memory: the turns of conversations, and their erasure. Turns are texts of people and models, so they are erasable;
-- evidence of runs contains only their digests.

-- A turn has the identifier of its run, so a run is stored at most once. `bytes` is the length of both texts. `clean` means
-- that personal data was masked or is absent. `contracts` are the access contracts that the turn was stored under, each
-- with its tenant in front, because contracts of several tenants have the same names.
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
-- One conversation, and all conversations of one owner, latest first.
CREATE INDEX memory_turn_by_session
    ON memory_turn (tenant_id, workload_id, owner, session_id, remembered_at, execution_id);
CREATE INDEX memory_turn_by_owner
    ON memory_turn (tenant_id, workload_id, owner, asset_id, remembered_at, execution_id);
CREATE INDEX memory_turn_by_end ON memory_turn (expires_at);
-- The turns that a revoked contract erases.
CREATE INDEX memory_turn_by_contract ON memory_turn USING gin (contracts) WITH (fastupdate = off) WHERE erased_on_revoke;
GRANT SELECT, INSERT, DELETE ON memory_turn TO fairway_service;

-- The row of a conversation serializes its writers and its erasure. `erasure` is the fact of the last erasure; a run stores
-- its turn only if that is still the erasure that the run started with. The row of the session '' covers all sessions of
-- its owner.
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

-- Erases a conversation and returns the number of its turns. It locks the rows first, '' before the session, in the order
-- that ends of runs use. A concurrent writer either committed before the deletion reads, or stores nothing.
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
    -- Expired turns are deleted too, but not counted.
    SELECT count(*) INTO erased FROM memory_turn
    WHERE tenant_id = a_tenant AND workload_id = a_workload AND owner = an_owner AND session_id = a_session
        AND expires_at > fairway_now();
    DELETE FROM memory_turn
    WHERE tenant_id = a_tenant AND workload_id = a_workload AND owner = an_owner AND session_id = a_session;
    RETURN erased;
END
$$;

-- The form of a contract in `memory_turn.contracts`.
CREATE FUNCTION fairway_contract_mark(a_tenant uuid, a_contract text) RETURNS text
LANGUAGE sql IMMUTABLE RETURN a_tenant::text || '/' || a_contract;

-- A revocation erases the turns of its contract, whether a version or a person revokes it. It erases at most 5000, so that
-- its duration is bounded; `fairway_forget_revoked` erases the others. Without the setting, a generic plan scans the table.
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

-- Erases up to `max_turns` turns of revoked contracts and returns their number: turns stored during a revocation, and
-- turns beyond the limit of `fairway_forget_contract`.
CREATE FUNCTION fairway_forget_revoked(max_turns bigint) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    forgotten bigint;
BEGIN
    DELETE FROM memory_turn WHERE ctid = ANY (ARRAY(
        SELECT turn.place FROM access_contract AS contract, LATERAL (
            SELECT ctid AS place FROM memory_turn
            WHERE erased_on_revoke
                AND contracts @> ARRAY[fairway_contract_mark(contract.tenant_id, contract.contract_id)]
            LIMIT max_turns
        ) AS turn
        WHERE contract.revoked
        LIMIT max_turns));
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END
$$;
