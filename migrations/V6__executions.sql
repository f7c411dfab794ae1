-- The governance chain as runs found it: one row for all the runs that share it.
CREATE TABLE evidence_snapshot (
    tenant_id uuid NOT NULL,
    digest bytea NOT NULL CHECK (length(digest) = 32),
    body text NOT NULL,
    PRIMARY KEY (tenant_id, digest)
);
SELECT fairway_make_append_only('evidence_snapshot');

-- The families below are cut by month of the execution's UUIDv7, so that old payloads leave by dropping a partition.
-- No index holds a column that the end of a run changes: that update stays on its page.
CREATE TABLE execution (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    workload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    release_id uuid NOT NULL,
    environment text NOT NULL,
    lane text NOT NULL,
    submitter text NOT NULL,
    snapshot bytea NOT NULL,
    input_digest bytea NOT NULL,
    status text NOT NULL CHECK (status IN
        ('queued', 'running', 'awaiting_review', 'completed', 'failed', 'denied', 'cancelled', 'unknown')),
    outcome text CHECK (outcome IN ('success', 'failure', 'denied', 'cancelled', 'timeout', 'unknown')),
    error_code text,
    error_message text,
    error_offset bigint,
    started_at timestamptz NOT NULL,
    finished_at timestamptz,
    PRIMARY KEY (tenant_id, execution_id),
    CHECK ((outcome IS NULL) = (finished_at IS NULL))
) PARTITION BY RANGE (execution_id);
CREATE INDEX execution_by_release ON execution (tenant_id, release_id, execution_id);
GRANT SELECT, INSERT, UPDATE ON execution TO fairway_service;

-- Runs that somebody works on. The token is the fence: only who holds it ends the run, and ending takes the row away.
CREATE TABLE execution_lease (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    token uuid NOT NULL,
    lease_for interval NOT NULL,
    lapses_at timestamptz NOT NULL,
    deadline_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, execution_id)
) WITH (fillfactor = 50);
CREATE INDEX execution_lease_by_lapse ON execution_lease (lapses_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON execution_lease TO fairway_service;

-- Payloads, erasable: the salt goes with the bytes, and the digests elsewhere then say nothing.
CREATE TABLE execution_input (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    salt bytea NOT NULL CHECK (length(salt) = 16),
    body text NOT NULL,
    PRIMARY KEY (tenant_id, execution_id)
) PARTITION BY RANGE (execution_id);
GRANT SELECT, INSERT, DELETE ON execution_input TO fairway_service;

CREATE TABLE execution_result (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    salt bytea NOT NULL CHECK (length(salt) = 16),
    body text NOT NULL,
    PRIMARY KEY (tenant_id, execution_id)
) PARTITION BY RANGE (execution_id);
GRANT SELECT, INSERT, DELETE ON execution_result TO fairway_service;

-- The first decision is the one that let the run in; later ones are taken on the way.
CREATE TABLE policy_decision (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    decision_id uuid NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('allow', 'deny', 'allow_with_obligations')),
    reason_code text NOT NULL,
    obligations text[] NOT NULL,
    rules text[] NOT NULL,
    evaluated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, execution_id, decision_id)
) PARTITION BY RANGE (execution_id);
SELECT fairway_make_append_only('policy_decision');

CREATE TABLE execution_step (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    position smallint NOT NULL,
    step_id text NOT NULL,
    step_type text NOT NULL,
    failure text,
    duration_us bigint NOT NULL,
    PRIMARY KEY (tenant_id, execution_id, position)
) PARTITION BY RANGE (execution_id);
SELECT fairway_make_append_only('execution_step');

CREATE TABLE evidence_artifact (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    artifact_id uuid NOT NULL,
    artifact_kind text NOT NULL,
    storage_ref text NOT NULL,
    body text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, execution_id, artifact_id)
) PARTITION BY RANGE (execution_id);
SELECT fairway_make_append_only('evidence_artifact');

-- The smallest UUIDv7 of a moment.
CREATE FUNCTION fairway_uuid_floor(moment timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid;

CREATE FUNCTION fairway_partitioned_families() RETURNS text[]
LANGUAGE sql IMMUTABLE
RETURN ARRAY['execution', 'execution_input', 'execution_result', 'policy_decision', 'execution_step', 'evidence_artifact'];

-- Makes the partitions of last month (a clock may lag), this month and some months ahead. Run by the owner at start
-- and daily; what exists already is left alone.
CREATE FUNCTION fairway_make_partitions(months_ahead integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    family text;
    partition text;
    start timestamptz;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('fairway_make_partitions'));
    FOREACH family IN ARRAY fairway_partitioned_families() LOOP
        FOR ahead IN -1..months_ahead LOOP
            start := (date_trunc('month', fairway_now() AT TIME ZONE 'UTC') + make_interval(months => ahead)) AT TIME ZONE 'UTC';
            partition := family || to_char(start AT TIME ZONE 'UTC', '"_"YYYYMM');
            IF to_regclass(partition) IS NULL THEN
                EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)', partition, family,
                    fairway_uuid_floor(start),
                    fairway_uuid_floor((start AT TIME ZONE 'UTC' + interval '1 month') AT TIME ZONE 'UTC'));
                IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = family::regclass AND tgname = 'never_truncated') THEN
                    EXECUTE format('CREATE TRIGGER never_truncated BEFORE TRUNCATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION fairway_refuse_rewrite()', partition);
                END IF;
                IF family = 'execution' THEN
                    EXECUTE format('ALTER TABLE %I SET (fillfactor = 70)', partition);
                END IF;
                made := made + 1;
            END IF;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$;
REVOKE ALL ON FUNCTION fairway_make_partitions(integer) FROM PUBLIC;

-- How long new executions still find a partition: the shortest of the families, one without any being the shortest.
CREATE FUNCTION fairway_partitions_until() RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT min(coalesce(last_start, '-infinity')) + interval '1 month' FROM (
        SELECT family, max(to_timestamp(right(child.relname, 6) || '01', 'YYYYMMDD')) AS last_start
        FROM unnest(fairway_partitioned_families()) AS family
        LEFT JOIN pg_inherits ON inhparent = family::regclass
        LEFT JOIN pg_class AS child ON child.oid = inhrelid
        GROUP BY family
    ) AS families
$$;
