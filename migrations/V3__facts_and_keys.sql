-- The bytes are what was hashed, and the only copy of what they say.
CREATE TABLE fact (
    tenant_id uuid NOT NULL,
    fact_id uuid NOT NULL,
    workspace_id uuid,
    kind text NOT NULL,
    body bytea NOT NULL,
    leaf_hash bytea NOT NULL CHECK (length(leaf_hash) = 32),
    PRIMARY KEY (tenant_id, fact_id)
);
SELECT fairway_make_append_only('fact');

-- Facts that have no place in their log yet.
CREATE TABLE fact_pending (
    tenant_id uuid NOT NULL,
    fact_id uuid NOT NULL,
    PRIMARY KEY (tenant_id, fact_id)
);
GRANT SELECT, INSERT, DELETE ON fact_pending TO fairway_service;

CREATE TABLE fact_order (
    tenant_id uuid NOT NULL,
    index bigint NOT NULL CHECK (index >= 0),
    fact_id uuid NOT NULL,
    workspace_id uuid,
    PRIMARY KEY (tenant_id, index),
    CONSTRAINT fact_order_once UNIQUE (tenant_id, fact_id)
);
CREATE INDEX fact_order_by_workspace ON fact_order (tenant_id, workspace_id, index);
SELECT fairway_make_append_only('fact_order');

-- One log a tenant. Its row is the lock that sequencers take and the fence that a late one fails at: it holds the
-- index that comes next.
CREATE TABLE fact_log (
    tenant_id uuid PRIMARY KEY,
    size bigint NOT NULL CHECK (size >= 0)
) WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE ON fact_log TO fairway_service;

-- Places a batch of one log's facts. Returns how many; none when another sequencer is at it.
CREATE FUNCTION fairway_sequence(log uuid, batch integer) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    head bigint;
    placed bigint;
BEGIN
    SELECT size INTO head FROM fact_log WHERE tenant_id = log FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    WITH taken AS (
        DELETE FROM fact_pending
        WHERE tenant_id = log AND fact_id IN (
            SELECT fact_id FROM fact_pending WHERE tenant_id = log ORDER BY fact_id LIMIT batch
        )
        RETURNING fact_id
    )
    INSERT INTO fact_order (tenant_id, index, fact_id, workspace_id)
    SELECT log, head + row_number() OVER (ORDER BY fact_id) - 1, fact_id, fact.workspace_id
    FROM taken JOIN fact USING (fact_id)
    WHERE fact.tenant_id = log;
    GET DIAGNOSTICS placed = ROW_COUNT;
    UPDATE fact_log SET size = head + placed WHERE tenant_id = log AND placed > 0;
    RETURN placed;
END
$$;

-- Keys of requests whose effect is committed. `status` is null where the resource itself says how it went.
CREATE TABLE idempotency_key (
    tenant_id uuid NOT NULL,
    caller text NOT NULL,
    route text NOT NULL,
    key text NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    body_digest bytea NOT NULL CHECK (length(body_digest) = 32),
    status smallint,
    resource uuid NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, caller, route, key)
);
CREATE INDEX idempotency_key_by_age ON idempotency_key (created_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_key TO fairway_service;

CREATE FUNCTION fairway_key_lifetime() RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN interval '24 hours';

-- Claims a key for an effect. False when a kept outcome stands in the way.
CREATE FUNCTION fairway_claim_key(
    a_tenant uuid, a_caller text, a_route text, a_key text, a_digest bytea, a_status smallint, a_resource uuid
) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO idempotency_key AS known (tenant_id, caller, route, key, body_digest, status, resource, created_at)
    VALUES (a_tenant, a_caller, a_route, a_key, a_digest, a_status, a_resource, fairway_now())
    ON CONFLICT (tenant_id, caller, route, key) DO UPDATE
    SET body_digest = excluded.body_digest, status = excluded.status,
        resource = excluded.resource, created_at = excluded.created_at
    WHERE known.created_at < fairway_now() - fairway_key_lifetime();
    RETURN FOUND;
END
$$;

CREATE FUNCTION fairway_record_fact(
    a_tenant uuid, a_fact uuid, a_workspace uuid, a_kind text, a_body bytea, a_leaf bytea
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO fact (tenant_id, fact_id, workspace_id, kind, body, leaf_hash)
    VALUES (a_tenant, a_fact, a_workspace, a_kind, a_body, a_leaf);
    INSERT INTO fact_pending (tenant_id, fact_id) VALUES (a_tenant, a_fact);
END
$$;

-- The end of every guarded commit, called once by the statement that holds the guard: no guard, no commit; a key that
-- is taken, no commit; else the fact and the key stand beside the rows, or nothing does.
CREATE FUNCTION fairway_commit(
    held boolean,
    a_tenant uuid, a_fact uuid, a_workspace uuid, a_kind text, a_body bytea, a_leaf bytea,
    a_caller text, a_route text, a_key text, a_digest bytea, a_status smallint, a_resource uuid
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF held IS NOT TRUE THEN
        RAISE EXCEPTION 'the row moved since the decision' USING ERRCODE = 'FW001';
    END IF;
    IF a_key IS NOT NULL
        AND NOT fairway_claim_key(a_tenant, a_caller, a_route, a_key, a_digest, a_status, a_resource) THEN
        RAISE EXCEPTION 'the idempotency key is taken' USING ERRCODE = 'FW002';
    END IF;
    PERFORM fairway_record_fact(a_tenant, a_fact, a_workspace, a_kind, a_body, a_leaf);
END
$$;
