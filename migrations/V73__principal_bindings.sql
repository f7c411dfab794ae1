-- Who is bound to a workload, and which lane serves it there. A binding without a lane leaves that open.
CREATE TABLE principal_binding (
    tenant_id uuid NOT NULL,
    workload_id uuid NOT NULL,
    principal text NOT NULL CHECK (principal ~ '^(user|group|service):'),
    principal_binding_id uuid NOT NULL,
    lane text CHECK (lane IN ('restricted', 'guided', 'standard')),
    revision bigint NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    updated_at timestamptz NOT NULL,
    updated_by text NOT NULL,
    PRIMARY KEY (tenant_id, workload_id, principal),
    FOREIGN KEY (tenant_id, workload_id) REFERENCES workload
);
-- A workload's list, newest first.
CREATE UNIQUE INDEX principal_binding_by_age ON principal_binding (tenant_id, workload_id, principal_binding_id);
-- All the lanes of a caller, read beside its roles.
CREATE INDEX principal_binding_by_principal ON principal_binding (tenant_id, principal) WHERE lane IS NOT NULL;

GRANT SELECT, INSERT, UPDATE, DELETE ON principal_binding TO fairway_service;
