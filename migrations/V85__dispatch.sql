-- Runs that wait for a worker, each tenant's in the order in which they came. Whoever takes a row away works on its run,
-- under a lease.
CREATE TABLE execution_queue (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    PRIMARY KEY (tenant_id, execution_id)
);
-- UPDATE is what it takes to lock rows.
GRANT SELECT, INSERT, UPDATE, DELETE ON execution_queue TO fairway_service;

-- How often the run went on elsewhere because its worker fell silent, and who asked that it be stopped.
ALTER TABLE execution_lease
    ADD COLUMN takeovers smallint NOT NULL DEFAULT 0,
    ADD COLUMN cancelled_by text;

-- Who sent it, as far as the run's own row does not say: what is needed to go on with it in another process. It goes with
-- what was sent.
ALTER TABLE execution_input ADD COLUMN sender text;

-- The service that sent the run for its submitter, where one did.
ALTER TABLE execution ADD COLUMN delegate text;

-- How far a run came: what providers answered, so that nobody asks them twice, and what happened until then, in order.
CREATE TABLE execution_progress (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    position smallint NOT NULL,
    answer text,
    events text NOT NULL,
    PRIMARY KEY (tenant_id, execution_id, position)
) PARTITION BY RANGE (execution_id);
GRANT SELECT, INSERT, DELETE ON execution_progress TO fairway_service;

CREATE OR REPLACE FUNCTION fairway_partitioned_families() RETURNS text[]
LANGUAGE sql IMMUTABLE
RETURN ARRAY['execution', 'execution_input', 'execution_result', 'execution_progress', 'execution_exception', 'policy_decision',
    'obligation_fulfilment', 'execution_step', 'evidence_artifact', 'evidence_payload', 'context_lineage'];

CREATE OR REPLACE FUNCTION fairway_payload_families() RETURNS text[]
LANGUAGE sql IMMUTABLE
RETURN ARRAY['execution_input', 'execution_result', 'execution_progress', 'evidence_payload'];

-- Months that the other families have already.
DO $$
DECLARE
    behind integer;
BEGIN
    SELECT max((extract(year FROM age) * 12 + extract(month FROM age))::integer) INTO behind
    FROM (SELECT age(date_trunc('month', fairway_now() AT TIME ZONE 'UTC'), to_date(right(child.relname, 6) || '01', 'YYYYMMDD')) AS age
        FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid WHERE inhparent = 'execution_input'::regclass) AS months;
    IF behind IS NOT NULL THEN
        PERFORM fairway_make_partitions(0, greatest(behind, 1));
    END IF;
END $$;
