-- What went into the answer of a run: names, digests and lengths of what was read, never the text itself.
CREATE TABLE context_lineage (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    lineage_id uuid NOT NULL,
    origin text NOT NULL CHECK (origin IN
        ('user_input', 'prompt_template', 'knowledge_base', 'memory', 'tool_result', 'system')),
    influence_role text NOT NULL CHECK (influence_role IN ('instruction', 'evidence', 'input', 'example')),
    action_class text NOT NULL CHECK (action_class IN ('read', 'generate', 'tool_call', 'write')),
    ref text NOT NULL,
    digest bytea NOT NULL CHECK (length(digest) = 32),
    size_bytes bigint NOT NULL CHECK (size_bytes >= 0),
    -- Why it is not trusted; what is trusted has no reason.
    untrusted_reason text,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, execution_id, lineage_id)
) PARTITION BY RANGE (execution_id);
SELECT fairway_make_append_only('context_lineage');

-- Which obligations of its policy a run fulfilled, and when. One without a row here was not.
CREATE TABLE obligation_fulfilment (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    obligation text NOT NULL,
    fulfilled_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, execution_id, obligation)
) PARTITION BY RANGE (execution_id);
SELECT fairway_make_append_only('obligation_fulfilment');

-- What people and models said, where a document of evidence keeps it. The document has its salted digest and stays.
CREATE TABLE evidence_payload (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    artifact_id uuid NOT NULL,
    salt bytea NOT NULL CHECK (length(salt) = 16),
    body text NOT NULL,
    PRIMARY KEY (tenant_id, execution_id, artifact_id)
) PARTITION BY RANGE (execution_id);
GRANT SELECT, INSERT, DELETE ON evidence_payload TO fairway_service;

-- Runs that ended otherwise than with an answer, so that the few are found among the many. An index of runs by status
-- would move with every end of a run, and the update that ends it would not stay on its page.
CREATE TABLE execution_exception (
    tenant_id uuid NOT NULL,
    status text NOT NULL CHECK (status IN ('failed', 'denied', 'cancelled', 'unknown')),
    execution_id uuid NOT NULL,
    workload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    release_id uuid NOT NULL,
    PRIMARY KEY (tenant_id, status, execution_id)
) PARTITION BY RANGE (execution_id);
CREATE INDEX execution_exception_by_release ON execution_exception (tenant_id, release_id, status, execution_id);
CREATE INDEX execution_exception_by_workload ON execution_exception (tenant_id, workload_id, status, execution_id);
CREATE INDEX execution_exception_by_workspace ON execution_exception (tenant_id, workspace_id, status, execution_id);
GRANT SELECT, INSERT ON execution_exception TO fairway_service;

-- The digest of the answer stays when the answer goes.
ALTER TABLE execution ADD COLUMN output_digest bytea CHECK (length(output_digest) = 32);

-- Lists of runs. The primary key is made last again: see V7.
CREATE INDEX execution_by_workload ON execution (tenant_id, workload_id, execution_id);
CREATE INDEX execution_by_workspace ON execution (tenant_id, workspace_id, execution_id);
ALTER TABLE execution DROP CONSTRAINT execution_pkey, ADD PRIMARY KEY (tenant_id, execution_id);

CREATE OR REPLACE FUNCTION fairway_partitioned_families() RETURNS text[]
LANGUAGE sql IMMUTABLE
RETURN ARRAY['execution', 'execution_input', 'execution_result', 'execution_exception', 'policy_decision',
    'obligation_fulfilment', 'execution_step', 'evidence_artifact', 'evidence_payload', 'context_lineage'];

-- Those whose months go when their time is over: what people and models said.
CREATE FUNCTION fairway_payload_families() RETURNS text[]
LANGUAGE sql IMMUTABLE
RETURN ARRAY['execution_input', 'execution_result', 'evidence_payload'];

-- Makes the first month that is missing of a family, and answers with its name; null when none is. Months behind are for
-- clocks that lag. To be asked again until it says so, each time in a transaction of its own: a family that gets a month is
-- closed to everybody else until the end of it, and whoever comes while this waits for its readers waits behind it. So it
-- gives up soon (55P03) and is asked again later.
CREATE FUNCTION fairway_make_partition(months_ahead integer, months_behind integer) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE
    family text;
    partition text;
    start timestamptz;
BEGIN
    FOREACH family IN ARRAY fairway_partitioned_families() LOOP
        FOR ahead IN -months_behind..months_ahead LOOP
            start := (date_trunc('month', fairway_now() AT TIME ZONE 'UTC') + make_interval(months => ahead)) AT TIME ZONE 'UTC';
            partition := family || to_char(start AT TIME ZONE 'UTC', '"_"YYYYMM');
            IF to_regclass(partition) IS NULL THEN
                PERFORM pg_advisory_xact_lock(hashtext('fairway_make_partitions'));
                -- Somebody else may have made it while this waited.
                CONTINUE WHEN to_regclass(partition) IS NOT NULL;
                EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)', partition, family,
                    fairway_uuid_floor(start),
                    fairway_uuid_floor((start AT TIME ZONE 'UTC' + interval '1 month') AT TIME ZONE 'UTC'));
                IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = family::regclass AND tgname = 'never_truncated') THEN
                    EXECUTE format('CREATE TRIGGER never_truncated BEFORE TRUNCATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION fairway_refuse_rewrite()', partition);
                END IF;
                IF family = 'execution' THEN
                    EXECUTE format('ALTER TABLE %I SET (fillfactor = 70)', partition);
                END IF;
                RETURN partition;
            END IF;
        END LOOP;
    END LOOP;
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION fairway_make_partition(integer, integer) FROM PUBLIC;

-- All of them at once, where nobody reads yet.
DROP FUNCTION fairway_make_partitions(integer);
CREATE FUNCTION fairway_make_partitions(months_ahead integer, months_behind integer DEFAULT 1) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    made integer := 0;
BEGIN
    WHILE fairway_make_partition(months_ahead, months_behind) IS NOT NULL LOOP
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;
REVOKE ALL ON FUNCTION fairway_make_partitions(integer, integer) FROM PUBLIC;

-- Runs of before: their months, and those that ended without an answer.
DO $$
DECLARE
    behind integer;
BEGIN
    SELECT max((extract(year FROM age) * 12 + extract(month FROM age))::integer) INTO behind
    FROM (SELECT age(date_trunc('month', fairway_now() AT TIME ZONE 'UTC'), to_date(right(child.relname, 6) || '01', 'YYYYMMDD')) AS age
        FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid WHERE inhparent = 'execution'::regclass) AS months;
    IF behind IS NOT NULL THEN
        PERFORM fairway_make_partitions(0, greatest(behind, 1));
    END IF;
END $$;
INSERT INTO execution_exception (tenant_id, status, execution_id, workload_id, workspace_id, release_id)
SELECT tenant_id, status, execution_id, workload_id, workspace_id, release_id FROM execution WHERE status IN ('failed', 'denied', 'cancelled', 'unknown');
