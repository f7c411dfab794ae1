-- Connections with their health, use cases, and access requests.

-- A named external system of a workspace. `secret_bindings` maps names to secret references; values are stored nowhere.
CREATE TABLE connection (
    tenant_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    name text NOT NULL,
    connector_kind text NOT NULL CHECK (connector_kind IN ('http', 'postgres', 's3', 'smtp', 'other')),
    endpoint text,
    secret_bindings jsonb NOT NULL CHECK (jsonb_typeof(secret_bindings) = 'object'),
    expires_at timestamptz,
    status text NOT NULL CHECK (status IN ('active', 'disabled')),
    health text NOT NULL CHECK (health IN ('unchecked', 'healthy', 'unhealthy', 'not_checkable')),
    health_code text,
    checked_at timestamptz,
    revision bigint NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, connection_id),
    CONSTRAINT connection_name_key UNIQUE (tenant_id, workspace_id, name),
    FOREIGN KEY (tenant_id, workspace_id) REFERENCES workspace (tenant_id, workspace_id)
);
CREATE INDEX connection_by_workspace ON connection (tenant_id, workspace_id, connection_id);
GRANT SELECT, INSERT, UPDATE, DELETE ON connection TO fairway_service;

-- The results of the checks of connections. They outlive a deleted connection.
CREATE TABLE connection_check (
    tenant_id uuid NOT NULL,
    connection_check_id uuid NOT NULL,
    connection_id uuid NOT NULL,
    health text NOT NULL CHECK (health IN ('healthy', 'unhealthy', 'not_checkable')),
    health_code text,
    checked_at timestamptz NOT NULL,
    checked_by text NOT NULL,
    PRIMARY KEY (tenant_id, connection_check_id)
);
CREATE INDEX connection_check_by_connection
    ON connection_check (tenant_id, connection_id, connection_check_id);
SELECT fairway_make_append_only('connection_check');

-- `bundle` is the plan as canonical JSON. `pieces` maps the pieces that a publication made or reused to their assets.
CREATE TABLE use_case (
    tenant_id uuid NOT NULL,
    use_case_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    status text NOT NULL CHECK (status IN ('draft', 'pending_access', 'active', 'archived')),
    name text NOT NULL,
    summary text NOT NULL,
    source_description text NOT NULL,
    bundle jsonb NOT NULL CHECK (jsonb_typeof(bundle) = 'object'),
    connections text[] NOT NULL,
    pieces jsonb,
    supersedes uuid,
    superseded_by uuid,
    workload_id uuid,
    release_id uuid,
    revision bigint NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, use_case_id),
    CONSTRAINT use_case_successor_key UNIQUE (tenant_id, supersedes),
    CHECK (superseded_by IS NULL OR status = 'archived'),
    CHECK ((workload_id IS NULL) = (release_id IS NULL)),
    FOREIGN KEY (tenant_id, workspace_id) REFERENCES workspace (tenant_id, workspace_id)
);
CREATE INDEX use_case_by_workspace ON use_case (tenant_id, workspace_id, use_case_id);
CREATE INDEX use_case_by_status ON use_case (tenant_id, workspace_id, status, use_case_id);
GRANT SELECT, INSERT, UPDATE ON use_case TO fairway_service;

-- The keys of refinements. A key belongs to the use case that it was first used with, and never expires.
CREATE TABLE use_case_refinement (
    tenant_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    refinement_key text NOT NULL,
    predecessor_id uuid NOT NULL,
    successor_id uuid NOT NULL,
    body_digest bytea NOT NULL CHECK (length(body_digest) = 32),
    CONSTRAINT use_case_refinement_once PRIMARY KEY (tenant_id, workspace_id, refinement_key)
);
SELECT fairway_make_append_only('use_case_refinement');

CREATE TABLE access_request (
    tenant_id uuid NOT NULL,
    access_request_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    use_case_id uuid NOT NULL,
    connection_name text NOT NULL,
    status text NOT NULL CHECK (status IN ('pending', 'granted', 'denied', 'withdrawn')),
    connection_id uuid,
    reason text,
    requested_by text NOT NULL,
    created_at timestamptz NOT NULL,
    decided_by text,
    decided_at timestamptz,
    revision bigint NOT NULL,
    PRIMARY KEY (tenant_id, access_request_id),
    CHECK ((status = 'granted') = (connection_id IS NOT NULL)),
    CHECK ((status = 'pending') = (decided_by IS NULL)),
    CHECK ((decided_by IS NULL) = (decided_at IS NULL)),
    FOREIGN KEY (tenant_id, use_case_id) REFERENCES use_case (tenant_id, use_case_id)
);
CREATE INDEX access_request_by_workspace ON access_request (tenant_id, workspace_id, access_request_id);
CREATE INDEX access_request_by_status ON access_request (tenant_id, workspace_id, status, access_request_id);
CREATE INDEX access_request_by_use_case ON access_request (tenant_id, use_case_id, access_request_id);
GRANT SELECT, INSERT, UPDATE ON access_request TO fairway_service;
