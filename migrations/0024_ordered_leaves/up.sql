-- The leaf hash of each sequenced fact, copied by the sequencer, which reads the fact's row anyway. The tree builder reads the
-- leaves of a log in their order instead of each fact by its key, and a fact that is edited before the tree covers it no
-- longer fits. Null for facts that were sequenced before.

ALTER TABLE fact_order ADD COLUMN leaf_hash bytea;

-- As in 0021_categorized_facts, with the hash.
CREATE OR REPLACE FUNCTION fairway_sequence(log uuid, batch integer) RETURNS bigint
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
    INSERT INTO fact_order (tenant_id, index, fact_id, workspace_id, workload_id, subject_id, is_categorized, leaf_hash)
    SELECT log, head + row_number() OVER (ORDER BY taken.fact_id) - 1, taken.fact_id, about.workspace_id,
        about.workload_id, about.subject_id, coalesce(about.is_categorized, false), about.leaf_hash
    FROM taken LEFT JOIN LATERAL (
        SELECT fact.workspace_id, fact.leaf_hash, named.workload_id, named.subject_id,
            position('"categories":'::bytea IN fact.body) > 0 AS is_categorized
        FROM fact, fairway_scope_of_fact(fact.body) AS named
        WHERE fact.tenant_id = log AND fact.fact_id = taken.fact_id OFFSET 0
    ) AS about ON true;
    GET DIAGNOSTICS placed = ROW_COUNT;
    UPDATE fact_log SET size = head + placed WHERE tenant_id = log AND placed > 0;
    RETURN placed;
END
$$;
