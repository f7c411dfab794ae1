CREATE TABLE workload (
    tenant_id uuid NOT NULL REFERENCES tenant,
    workload_id uuid NOT NULL,
    slug text NOT NULL,
    name text NOT NULL,
    description text NOT NULL,
    owner_ref text NOT NULL,
    status text NOT NULL CHECK (status IN ('registered', 'suspended', 'retired')),
    invocation_mode text NOT NULL CHECK (invocation_mode IN ('chat', 'form', 'block', 'api', 'batch', 'event')),
    workspace_id uuid NOT NULL,
    revision bigint NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, workload_id),
    CONSTRAINT workload_slug_key UNIQUE (tenant_id, slug),
    FOREIGN KEY (tenant_id, workspace_id) REFERENCES workspace
) WITH (fillfactor = 80);
CREATE INDEX workload_by_workspace ON workload (tenant_id, workspace_id, workload_id);
GRANT SELECT, INSERT, UPDATE ON workload TO fairway_service;

CREATE TABLE release (
    tenant_id uuid NOT NULL,
    release_id uuid NOT NULL,
    workload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    environment text NOT NULL,
    target_lane text NOT NULL CHECK (target_lane IN ('all', 'restricted', 'guided', 'standard')),
    state text NOT NULL CHECK (state IN ('draft', 'review_ready', 'approved', 'active', 'superseded', 'retired')),
    bindings_digest text,
    policy_bundle_id uuid,
    supersedes_release_id uuid,
    revision bigint NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, release_id),
    -- What left draft says what was reviewed.
    CHECK (state IN ('draft', 'retired') OR bindings_digest IS NOT NULL),
    FOREIGN KEY (tenant_id, workload_id) REFERENCES workload
) WITH (fillfactor = 80);
CREATE INDEX release_by_workload ON release (tenant_id, workload_id, release_id);
GRANT SELECT, INSERT, UPDATE ON release TO fairway_service;

CREATE TABLE release_binding (
    tenant_id uuid NOT NULL,
    binding_id uuid NOT NULL,
    release_id uuid NOT NULL,
    role text NOT NULL,
    asset_version_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    PRIMARY KEY (tenant_id, binding_id),
    FOREIGN KEY (tenant_id, release_id) REFERENCES release,
    FOREIGN KEY (tenant_id, asset_version_id) REFERENCES asset_version
);
CREATE INDEX release_binding_by_release ON release_binding (tenant_id, release_id);
CREATE UNIQUE INDEX release_binding_role_key ON release_binding (tenant_id, release_id, role)
    WHERE role NOT IN ('knowledge_base', 'tool_definition', 'skill', 'guardrail_config', 'memory');
GRANT SELECT, INSERT, DELETE ON release_binding TO fairway_service;

CREATE TABLE approval (
    tenant_id uuid NOT NULL,
    approval_id uuid NOT NULL,
    release_id uuid NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('approved', 'rejected', 'changes_requested')),
    subject_digest text NOT NULL,
    approved_by text NOT NULL,
    approved_at timestamptz NOT NULL,
    -- The release's revision that the verdict made: which of two verdicts is newer is no question of clocks.
    release_revision bigint NOT NULL,
    PRIMARY KEY (tenant_id, approval_id),
    CONSTRAINT approval_order UNIQUE (tenant_id, release_id, release_revision),
    FOREIGN KEY (tenant_id, release_id) REFERENCES release
);
SELECT fairway_make_append_only('approval');

-- Free text, which can be erased while the verdict stays.
CREATE TABLE approval_note (
    tenant_id uuid NOT NULL,
    approval_id uuid NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (tenant_id, approval_id)
);
GRANT SELECT, INSERT, DELETE ON approval_note TO fairway_service;

-- Who holds which lane. Whatever moves a lane updates this row first: one holder a lane, one order of locks.
CREATE TABLE deployment (
    tenant_id uuid NOT NULL,
    workload_id uuid NOT NULL,
    environment text NOT NULL,
    restricted_release_id uuid,
    guided_release_id uuid,
    standard_release_id uuid,
    revision bigint NOT NULL,
    PRIMARY KEY (tenant_id, workload_id, environment),
    FOREIGN KEY (tenant_id, workload_id) REFERENCES workload,
    FOREIGN KEY (tenant_id, restricted_release_id) REFERENCES release,
    FOREIGN KEY (tenant_id, guided_release_id) REFERENCES release,
    FOREIGN KEY (tenant_id, standard_release_id) REFERENCES release
) WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE ON deployment TO fairway_service;

CREATE TABLE deployment_history (
    tenant_id uuid NOT NULL,
    workload_id uuid NOT NULL,
    environment text NOT NULL,
    revision bigint NOT NULL,
    lane text NOT NULL CHECK (lane IN ('restricted', 'guided', 'standard')),
    from_release_id uuid,
    to_release_id uuid,
    reason text NOT NULL,
    actor text NOT NULL,
    moved_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, workload_id, environment, revision, lane)
);
SELECT fairway_make_append_only('deployment_history');
