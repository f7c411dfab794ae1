-- What happened to one lane, newest first, however much happened to the others.
CREATE INDEX deployment_history_by_lane ON deployment_history (tenant_id, workload_id, environment, lane, revision);
