-- Facts, their order in each tenant's audit log, idempotency keys, and the function that ends every guarded commit.

-- `body` holds the bytes that `leaf_hash` was computed from. It is the only copy of the fact.
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

-- Facts that have no index in the log yet.
CREATE TABLE fact_pending (
    tenant_id uuid NOT NULL,
    fact_id uuid NOT NULL,
    PRIMARY KEY (tenant_id, fact_id)
);
GRANT SELECT, INSERT, DELETE ON fact_pending TO fairway_service;

-- The log: the index of each fact. `workload_id` is copied from the fact's bytes, so that an auditor of one workload
-- reads its facts in order.
CREATE TABLE fact_order (
    tenant_id uuid NOT NULL,
    index bigint NOT NULL CHECK (index >= 0),
    fact_id uuid NOT NULL,
    workspace_id uuid,
    workload_id uuid,
    PRIMARY KEY (tenant_id, index),
    CONSTRAINT fact_order_once UNIQUE (tenant_id, fact_id)
);
CREATE INDEX fact_order_by_workspace ON fact_order (tenant_id, workspace_id, index);
CREATE INDEX fact_order_by_workload ON fact_order (tenant_id, workload_id, index) WHERE workload_id IS NOT NULL;
SELECT fairway_make_append_only('fact_order');

-- One row for each log, with the next index. A sequencer locks the row, so that one sequencer at a time extends a log.
CREATE TABLE fact_log (
    tenant_id uuid PRIMARY KEY,
    size bigint NOT NULL CHECK (size >= 0)
) WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE ON fact_log TO fairway_service;

-- The workload that a fact is about, or null. A fact that cannot be parsed must not stop the facts behind it.
CREATE FUNCTION fairway_workload_of_fact(body bytea) RETURNS uuid
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    entry json;
BEGIN
    -- Not in the declaration, which the handler below does not cover.
    entry := convert_from(body, 'UTF8')::json;
    RETURN CASE
        WHEN entry #>> '{subject,kind}' = 'workload' THEN entry #>> '{subject,id}'
        WHEN entry #>> '{detail,scope_kind}' = 'workload' THEN entry #>> '{detail,scope_ref}'
        ELSE entry #>> '{detail,workload_id}'
    END::uuid;
EXCEPTION
    WHEN data_exception THEN RETURN NULL;
END
$$;

-- Gives up to `batch` pending facts of one log their index and returns their number; 0 if another sequencer holds the
-- log.
--
-- A sequencer plans this once, possibly while the tables are empty. So no plan may depend on statistics: pending rows
-- are deleted by `ctid`, which is safe under the lock of the log's row, and OFFSET 0 makes the planner read each fact
-- by its key instead of joining all facts of the tenant.
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
        WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM fact_pending WHERE tenant_id = log ORDER BY fact_id LIMIT batch
        ))
        RETURNING fact_id
    )
    INSERT INTO fact_order (tenant_id, index, fact_id, workspace_id, workload_id)
    SELECT log, head + row_number() OVER (ORDER BY taken.fact_id) - 1, taken.fact_id, about.workspace_id, about.workload_id
    FROM taken LEFT JOIN LATERAL (
        SELECT fact.workspace_id, fairway_workload_of_fact(fact.body) AS workload_id
        FROM fact WHERE fact.tenant_id = log AND fact.fact_id = taken.fact_id OFFSET 0
    ) AS about ON true;
    GET DIAGNOSTICS placed = ROW_COUNT;
    UPDATE fact_log SET size = head + placed WHERE tenant_id = log AND placed > 0;
    RETURN placed;
END
$$;

-- Idempotency keys. A row without `leased_until` is the outcome of a committed request; `status` is null where the
-- resource tells the outcome. A row with `leased_until` is a reservation: the request works outside the database
-- before its commit, and `resource` is the identifier that the commit will create.
CREATE TABLE idempotency_key (
    tenant_id uuid NOT NULL,
    caller text NOT NULL,
    route text NOT NULL,
    key text NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    body_digest bytea NOT NULL CHECK (length(body_digest) = 32),
    status smallint,
    resource uuid NOT NULL,
    created_at timestamptz NOT NULL,
    leased_until timestamptz,
    PRIMARY KEY (tenant_id, caller, route, key)
);
CREATE INDEX idempotency_key_by_age ON idempotency_key (created_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_key TO fairway_service;

CREATE FUNCTION fairway_key_lifetime() RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN interval '24 hours';

-- Reserves a key, or extends the caller's own reservation. False if an outcome or another request's lease exists.
CREATE FUNCTION fairway_reserve_key(
    a_tenant uuid, a_caller text, a_route text, a_key text, a_digest bytea, a_resource uuid, a_lease interval
) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO idempotency_key AS known
        (tenant_id, caller, route, key, body_digest, resource, created_at, leased_until)
    VALUES (a_tenant, a_caller, a_route, a_key, a_digest, a_resource, fairway_now(), fairway_now() + a_lease)
    ON CONFLICT (tenant_id, caller, route, key) DO UPDATE
    SET body_digest = excluded.body_digest, status = NULL, resource = excluded.resource,
        created_at = excluded.created_at, leased_until = excluded.leased_until
    WHERE known.created_at < fairway_now() - fairway_key_lifetime()
        OR known.leased_until <= fairway_now()
        OR (known.leased_until IS NOT NULL AND known.resource = excluded.resource);
    RETURN FOUND;
END
$$;

-- Claims a key for a commit, which completes a reservation for the same resource. False if an outcome or another
-- request's lease exists.
CREATE FUNCTION fairway_claim_key(
    a_tenant uuid, a_caller text, a_route text, a_key text, a_digest bytea, a_status smallint, a_resource uuid
) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO idempotency_key AS known (tenant_id, caller, route, key, body_digest, status, resource, created_at)
    VALUES (a_tenant, a_caller, a_route, a_key, a_digest, a_status, a_resource, fairway_now())
    ON CONFLICT (tenant_id, caller, route, key) DO UPDATE
    SET body_digest = excluded.body_digest, status = excluded.status, resource = excluded.resource,
        created_at = excluded.created_at, leased_until = NULL
    WHERE known.created_at < fairway_now() - fairway_key_lifetime()
        OR known.leased_until <= fairway_now()
        OR (known.leased_until IS NOT NULL AND known.resource = excluded.resource);
    RETURN FOUND;
END
$$;

-- Ends a guarded commit. The statement that changed the guarded row calls it once: it raises FW001 if the guard did not
-- match, FW002 if the key is taken, and otherwise inserts the fact. The insert is not a function of its own, because a
-- nested call starts another executor, which costs every commit.
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
    INSERT INTO fact (tenant_id, fact_id, workspace_id, kind, body, leaf_hash)
    VALUES (a_tenant, a_fact, a_workspace, a_kind, a_body, a_leaf);
    INSERT INTO fact_pending (tenant_id, fact_id) VALUES (a_tenant, a_fact);
END
$$;
