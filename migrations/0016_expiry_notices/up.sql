-- Notices that the credentials of connections expire, and the way from a workload to its use case.

-- One row for each expiry time and number of days, so that each notice is given once. The rows outlive a deleted connection.
CREATE TABLE connection_expiry_notice (
    tenant_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    expires_at timestamptz NOT NULL,
    days integer NOT NULL CHECK (days IN (14, 3, 0)),
    noticed_at timestamptz NOT NULL,
    CONSTRAINT connection_expiry_notice_once PRIMARY KEY (tenant_id, connection_id, expires_at, days)
);
SELECT fairway_make_append_only('connection_expiry_notice');

CREATE INDEX connection_by_expiry ON connection (expires_at) WHERE expires_at IS NOT NULL AND status = 'active';

CREATE UNIQUE INDEX use_case_by_workload ON use_case (tenant_id, workload_id) WHERE workload_id IS NOT NULL;
