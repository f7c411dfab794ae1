-- The same for facts that have their place already. Only the new column is written, which nothing is hashed over; readers go
-- on meanwhile, and facts that come wait for their place.
ALTER TABLE fact_order DISABLE TRIGGER append_only;
UPDATE fact_order SET workload_id = about.workload_id
FROM (SELECT tenant_id, fact_id, fairway_workload_of_fact(body) AS workload_id FROM fact) AS about
WHERE fact_order.tenant_id = about.tenant_id AND fact_order.fact_id = about.fact_id
    AND fact_order.workload_id IS NULL AND about.workload_id IS NOT NULL;
ALTER TABLE fact_order ENABLE TRIGGER append_only;
CREATE INDEX fact_order_by_workload ON fact_order (tenant_id, workload_id, index) WHERE workload_id IS NOT NULL;
