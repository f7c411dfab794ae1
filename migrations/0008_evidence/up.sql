-- Evidence of executions: snapshots, artifacts with their payloads, and context lineage. Then the monthly partitions of
-- all tables of runs: which tables have them, and the functions that create and drop them.

-- The governance chain that a run started with. Runs with the same chain share one row.
CREATE TABLE evidence_snapshot (
    tenant_id uuid NOT NULL,
    digest bytea NOT NULL CHECK (length(digest) = 32),
    body text NOT NULL,
    PRIMARY KEY (tenant_id, digest)
);
SELECT fairway_make_append_only('evidence_snapshot');

-- Documents of evidence. A document contains salted digests of texts and not the texts, so it is never erased.
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

-- Texts of people and models that belong to a document of evidence. Erasing one also deletes its salt.
CREATE TABLE evidence_payload (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    artifact_id uuid NOT NULL,
    salt bytea NOT NULL CHECK (length(salt) = 16),
    body text NOT NULL,
    PRIMARY KEY (tenant_id, execution_id, artifact_id)
) PARTITION BY RANGE (execution_id);
GRANT SELECT, INSERT, DELETE ON evidence_payload TO fairway_service;

-- The sources of a run's answer: names, digests and sizes, never the text.
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
    -- NULL for trusted sources.
    untrusted_reason text,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, execution_id, lineage_id)
) PARTITION BY RANGE (execution_id);
SELECT fairway_make_append_only('context_lineage');

-- All tables with monthly partitions.
CREATE FUNCTION fairway_partitioned_families() RETURNS text[]
LANGUAGE sql IMMUTABLE
RETURN ARRAY['execution', 'execution_input', 'execution_result', 'execution_progress', 'execution_exception', 'policy_decision',
    'obligation_fulfilment', 'execution_step', 'evidence_artifact', 'evidence_payload', 'context_lineage'];

-- The tables whose partitions expire: texts of people and models.
CREATE FUNCTION fairway_payload_families() RETURNS text[]
LANGUAGE sql IMMUTABLE
RETURN ARRAY['execution_input', 'execution_result', 'execution_progress', 'evidence_payload'];

-- Creates the first missing partition and returns its name, or NULL if none is missing. Months behind serve clocks that
-- lag. The caller repeats the call, each in its own transaction: the table is locked until the transaction ends, and other
-- statements queue behind a waiting lock. Therefore the function gives up after 100 ms (55P03); the caller tries later.
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
                -- Another process may have created it during the wait.
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

-- Creates all missing partitions in one transaction and returns their number. For databases that nobody reads yet.
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

-- The end of the last month for which every table has a partition; -infinity if a table has none.
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

-- Drops the oldest expired partition of a payload table and returns its name, or NULL if there is none. The owner calls it
-- daily until it returns NULL.
--
-- A month is expired if it ended longer ago than `kept` and one day: a run of its last hours may end in the next month.
-- The previous month always remains, because a lagging clock would need its partition again.
--
-- Dropping locks the whole table briefly; other statements queue behind a waiting lock. Therefore the function gives up
-- after 100 ms (55P03). It drops one partition a call, so that the next call starts without locks. An advisory lock
-- serializes concurrent calls.
CREATE FUNCTION fairway_expire_payloads(kept interval) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE
    over text;
    month timestamp := date_trunc('month', fairway_now() AT TIME ZONE 'UTC');
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('fairway_make_partitions'));
    -- MATERIALIZED: otherwise the planner may apply `to_date` to the names of relations that are not partitions.
    WITH children AS MATERIALIZED (
        SELECT pg_class.relname AS child FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
        WHERE inhparent = ANY(fairway_payload_families()::regclass[])
    )
    SELECT child INTO over
    FROM (SELECT child, to_date(right(child, 6), 'YYYYMM')::timestamp AS start FROM children) AS months
    WHERE start < month - interval '1 month'
        AND (start + interval '1 month') AT TIME ZONE 'UTC' + interval '1 day' + kept < fairway_now()
    ORDER BY start, child LIMIT 1;
    IF over IS NOT NULL THEN
        EXECUTE format('DROP TABLE %I', over);
    END IF;
    RETURN over;
END
$$;
REVOKE ALL ON FUNCTION fairway_expire_payloads(interval) FROM PUBLIC;
