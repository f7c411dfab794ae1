-- Tenants with their namespaces, workspaces and environments, and the roles that principals hold in them.
--
-- `tenant_id` is the first column of every primary key and of almost every index, so that the rows of one tenant are
-- found without reading those of another.

CREATE TABLE tenant (
    tenant_id uuid PRIMARY KEY,
    slug text NOT NULL CONSTRAINT tenant_slug_key UNIQUE,
    name text NOT NULL,
    notifications_enabled boolean NOT NULL,
    advanced_notifications_enabled boolean NOT NULL,
    public_hosts text[] NOT NULL,
    -- Incremented by every change of roles and bindings. Servers compare it to validate their cached rights.
    access_revision bigint NOT NULL DEFAULT 1,
    revision bigint NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL
) WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE ON tenant TO fairway_service;

-- A host belongs to one tenant.
CREATE TABLE tenant_public_host (
    host text CONSTRAINT tenant_public_host_key PRIMARY KEY,
    tenant_id uuid NOT NULL REFERENCES tenant
);
GRANT SELECT, INSERT, DELETE ON tenant_public_host TO fairway_service;

CREATE TABLE namespace (
    tenant_id uuid NOT NULL REFERENCES tenant,
    namespace_id uuid NOT NULL,
    slug text NOT NULL,
    PRIMARY KEY (tenant_id, namespace_id),
    CONSTRAINT namespace_slug_key UNIQUE (tenant_id, slug)
);
GRANT SELECT, INSERT, UPDATE ON namespace TO fairway_service;

CREATE TABLE workspace (
    tenant_id uuid NOT NULL REFERENCES tenant,
    workspace_id uuid NOT NULL,
    namespace_id uuid NOT NULL,
    slug text NOT NULL CHECK (length(slug) <= 43),
    name text NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    PRIMARY KEY (tenant_id, workspace_id),
    CONSTRAINT workspace_slug_key UNIQUE (tenant_id, slug),
    FOREIGN KEY (tenant_id, namespace_id) REFERENCES namespace
);
CREATE INDEX workspace_by_namespace ON workspace (tenant_id, namespace_id, workspace_id);
GRANT SELECT, INSERT ON workspace TO fairway_service;

-- The rules that an environment of a workspace sets for its releases. Without a row, the server's defaults apply.
CREATE TABLE environment_settings (
    tenant_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    environment text NOT NULL,
    min_approvals smallint NOT NULL CHECK (min_approvals BETWEEN 1 AND 10),
    allow_self_approval boolean NOT NULL,
    pin_documents boolean NOT NULL,
    revision bigint NOT NULL,
    updated_at timestamptz NOT NULL,
    updated_by text NOT NULL,
    PRIMARY KEY (tenant_id, workspace_id, environment),
    FOREIGN KEY (tenant_id, workspace_id) REFERENCES workspace
);
GRANT SELECT, INSERT, UPDATE ON environment_settings TO fairway_service;

CREATE TABLE role_binding (
    tenant_id uuid NOT NULL REFERENCES tenant,
    role_binding_id uuid NOT NULL,
    principal text NOT NULL,
    role text NOT NULL,
    scope_kind text NOT NULL CHECK (scope_kind IN ('platform', 'tenant', 'namespace', 'workspace', 'workload')),
    scope_ref uuid,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    PRIMARY KEY (tenant_id, role_binding_id),
    CHECK ((scope_kind = 'platform') = (scope_ref IS NULL)),
    CONSTRAINT role_binding_once UNIQUE NULLS NOT DISTINCT (tenant_id, principal, role, scope_kind, scope_ref)
);
CREATE INDEX role_binding_by_principal ON role_binding (principal, tenant_id);
CREATE INDEX role_binding_by_scope ON role_binding (tenant_id, scope_kind, scope_ref, role_binding_id);
GRANT SELECT, INSERT, DELETE ON role_binding TO fairway_service;

-- Principals that ever held a role. In `local` mode an actor without a row is a tenant administrator; an actor with a
-- row has only the roles that are still bound to it.
CREATE TABLE bound_principal (
    principal text PRIMARY KEY
);
GRANT SELECT, INSERT ON bound_principal TO fairway_service;
