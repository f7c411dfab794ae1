-- The Merkle tree over each tenant's audit log. Full tiles are in the artifact store; the row is the state from which the
-- next facts are appended.

-- `edge` holds the partial tiles, lowest level first, as concatenated hashes. `checkpoint` is the published signed note,
-- which may cover fewer facts than the tree; `signed_by` names the keys that signed it. A missing row is an empty tree.
CREATE TABLE log_tree (
    tenant_id uuid PRIMARY KEY,
    size bigint NOT NULL CHECK (size >= 0),
    edge bytea[] NOT NULL,
    checkpoint text,
    signed_by text
);
-- Hashes do not compress.
ALTER TABLE log_tree ALTER COLUMN edge SET STORAGE EXTERNAL;
GRANT SELECT, INSERT, UPDATE ON log_tree TO fairway_service;

-- The subject of each sequenced fact, copied from its bytes, so that the evidence of a run or a release finds its facts.
ALTER TABLE fact_order ADD COLUMN subject_id uuid;
CREATE INDEX fact_order_by_subject ON fact_order (tenant_id, subject_id, index) WHERE subject_id IS NOT NULL;

-- The workload and the subject that a fact is about, or nulls. A fact that cannot be parsed must not stop the facts
-- behind it.
CREATE FUNCTION fairway_scope_of_fact(body bytea, OUT workload_id uuid, OUT subject_id uuid)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    entry json;
BEGIN
    -- Not in the declaration, which the handler below does not cover.
    entry := convert_from(body, 'UTF8')::json;
    subject_id := (entry #>> '{subject,id}')::uuid;
    workload_id := (CASE
        WHEN entry #>> '{subject,kind}' = 'workload' THEN entry #>> '{subject,id}'
        WHEN entry #>> '{detail,scope_kind}' = 'workload' THEN entry #>> '{detail,scope_ref}'
        ELSE entry #>> '{detail,workload_id}'
    END)::uuid;
EXCEPTION
    WHEN data_exception THEN NULL;
END
$$;

-- As in 0003_audit_log, with the subject.
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
    INSERT INTO fact_order (tenant_id, index, fact_id, workspace_id, workload_id, subject_id)
    SELECT log, head + row_number() OVER (ORDER BY taken.fact_id) - 1, taken.fact_id, about.workspace_id,
        about.workload_id, about.subject_id
    FROM taken LEFT JOIN LATERAL (
        SELECT fact.workspace_id, named.workload_id, named.subject_id
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
UPDATE fact_order SET subject_id = (fairway_scope_of_fact(fact.body)).subject_id
FROM fact WHERE fact.tenant_id = fact_order.tenant_id AND fact.fact_id = fact_order.fact_id;
ALTER TABLE fact_order ENABLE TRIGGER append_only;
