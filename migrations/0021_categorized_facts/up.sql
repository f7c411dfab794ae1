-- Whether a sequenced fact carries categories of notifications, so that the projector reads no other fact. Most facts are of
-- runs that concern nobody.

ALTER TABLE fact_order ADD COLUMN is_categorized boolean NOT NULL DEFAULT false;
CREATE INDEX fact_order_categorized ON fact_order (tenant_id, index) WHERE is_categorized;

-- As in 0013_transparency_log, with the categories. The bytes are compared, because only facts with categories have the member.
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
    INSERT INTO fact_order (tenant_id, index, fact_id, workspace_id, workload_id, subject_id, is_categorized)
    SELECT log, head + row_number() OVER (ORDER BY taken.fact_id) - 1, taken.fact_id, about.workspace_id,
        about.workload_id, about.subject_id, coalesce(about.is_categorized, false)
    FROM taken LEFT JOIN LATERAL (
        SELECT fact.workspace_id, named.workload_id, named.subject_id,
            position('"categories":'::bytea IN fact.body) > 0 AS is_categorized
        FROM fact, fairway_scope_of_fact(fact.body) AS named
        WHERE fact.tenant_id = log AND fact.fact_id = taken.fact_id OFFSET 0
    ) AS about ON true;
    GET DIAGNOSTICS placed = ROW_COUNT;
    UPDATE fact_log SET size = head + placed WHERE tenant_id = log AND placed > 0;
    RETURN placed;
END
$$;

-- The facts that were sequenced before. Their order does not change.
ALTER TABLE fact_order DISABLE TRIGGER append_only;
UPDATE fact_order SET is_categorized = true
FROM fact
WHERE fact.tenant_id = fact_order.tenant_id AND fact.fact_id = fact_order.fact_id
    AND position('"categories":'::bytea IN fact.body) > 0;
ALTER TABLE fact_order ENABLE TRIGGER append_only;
