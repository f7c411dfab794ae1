-- A sequencer of a young server plans this once, while the tables are empty, and the plan for a join was then one that read
-- all of a tenant's facts for each fact that it placed. Rows are named so that no plan can do that: those that wait by where they lie,
-- which is safe because the log's row is locked and nobody else takes them away, and each fact by its key.
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
    INSERT INTO fact_order (tenant_id, index, fact_id, workspace_id)
    SELECT log, head + row_number() OVER (ORDER BY fact_id) - 1, fact_id,
        (SELECT workspace_id FROM fact WHERE fact.tenant_id = log AND fact.fact_id = taken.fact_id)
    FROM taken;
    GET DIAGNOSTICS placed = ROW_COUNT;
    UPDATE fact_log SET size = head + placed WHERE tenant_id = log AND placed > 0;
    RETURN placed;
END
$$;
