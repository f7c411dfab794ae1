-- The end of a guarded commit, in one function: a call within a call starts an executor of its own, and every change of
-- the product pays for it.
CREATE OR REPLACE FUNCTION fairway_commit(
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
