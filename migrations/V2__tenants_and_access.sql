CREATE TABLE tenant (
    tenant_id uuid PRIMARY KEY,
    slug text NOT NULL CONSTRAINT tenant_slug_key UNIQUE,
    name text NOT NULL,
    notifications_enabled boolean NOT NULL,
    advanced_notifications_enabled boolean NOT NULL,
    public_hosts text[] NOT NULL,
    -- Raised by every change of who may do what; caches compare it.
    access_revision bigint NOT NULL DEFAULT 1,
    revision bigint NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL
) WITH (fillfactor = 50);

-- A host belongs to one tenant.
CREATE TABLE tenant_public_host (
    host text CONSTRAINT tenant_public_host_key PRIMARY KEY,
    tenant_id uuid NOT NULL REFERENCES tenant
);

CREATE TABLE namespace (
    tenant_id uuid NOT NULL REFERENCES tenant,
    namespace_id uuid NOT NULL,
    slug text NOT NULL,
    PRIMARY KEY (tenant_id, namespace_id),
    CONSTRAINT namespace_slug_key UNIQUE (tenant_id, slug)
);

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

-- Who ever held a role: a local actor that never did is a tenant administrator, one that did has what is left to it.
CREATE TABLE bound_principal (
    principal text PRIMARY KEY
);

GRANT SELECT, INSERT, UPDATE ON tenant TO fairway_service;
GRANT SELECT, INSERT, DELETE ON tenant_public_host, role_binding TO fairway_service;
GRANT SELECT, INSERT, UPDATE ON namespace TO fairway_service;
GRANT SELECT, INSERT ON workspace, bound_principal TO fairway_service;
