-- Which workload a fact is about, so that an auditor of one workload reads its events in order. Facts say so in their bytes.
ALTER TABLE fact_order ADD COLUMN workload_id uuid;

CREATE FUNCTION fairway_workload_of_fact(body bytea) RETURNS uuid
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    entry json;
BEGIN
    -- Not in the declaration: the handler below does not cover that.
    entry := convert_from(body, 'UTF8')::json;
    RETURN CASE
        WHEN entry #>> '{subject,kind}' = 'workload' THEN entry #>> '{subject,id}'
        WHEN entry #>> '{detail,scope_kind}' = 'workload' THEN entry #>> '{detail,scope_ref}'
        ELSE entry #>> '{detail,workload_id}'
    END::uuid;
EXCEPTION
    -- A fact that nobody can read must not hold up those behind it.
    WHEN data_exception THEN RETURN NULL;
END
$$;

-- As before (V82), with the workload of each fact. Each fact is read by its key once: the fence (OFFSET) keeps the planner from
-- a join that reads all facts of the tenant.
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
