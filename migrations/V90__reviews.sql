-- Runs whose steps are over and whose answer waits for a person. Nobody works on them, so they have no lease; whoever takes
-- a row away writes its run's end. Where the workload takes no runs any more, their time is over since ever.
CREATE TABLE execution_review (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    workload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    release_id uuid NOT NULL,
    asked_at timestamptz NOT NULL,
    lapses_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, execution_id)
);
CREATE INDEX execution_review_by_release ON execution_review (tenant_id, release_id, execution_id);
CREATE INDEX execution_review_by_workload ON execution_review (tenant_id, workload_id, execution_id);
CREATE INDEX execution_review_by_workspace ON execution_review (tenant_id, workspace_id, execution_id);
CREATE INDEX execution_review_by_lapse ON execution_review (lapses_at);
CREATE INDEX execution_review_by_age ON execution_review (asked_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON execution_review TO fairway_service;
