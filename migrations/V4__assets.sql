CREATE TABLE asset (
    tenant_id uuid NOT NULL REFERENCES tenant,
    asset_id uuid NOT NULL,
    slug text NOT NULL,
    asset_kind text NOT NULL,
    owner_ref text NOT NULL,
    lifecycle_state text NOT NULL CHECK (lifecycle_state IN ('draft', 'active', 'retired', 'archived')),
    ownership_tier text NOT NULL CHECK (ownership_tier IN ('workspace', 'platform_builtin')),
    workspace_id uuid NOT NULL,
    namespace_id uuid NOT NULL,
    -- The highest N of labels `vN`, so that the next one is known without a search.
    last_label integer NOT NULL DEFAULT 0,
    revision bigint NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    PRIMARY KEY (tenant_id, asset_id),
    CONSTRAINT asset_slug_key UNIQUE (tenant_id, slug),
    FOREIGN KEY (tenant_id, workspace_id) REFERENCES workspace,
    FOREIGN KEY (tenant_id, namespace_id) REFERENCES namespace
) WITH (fillfactor = 80);
CREATE INDEX asset_by_namespace ON asset (tenant_id, namespace_id, asset_id);
GRANT SELECT, INSERT, UPDATE ON asset TO fairway_service;

-- `content` is the canonical text: the bytes of the artifact and of the checksum.
CREATE TABLE asset_version (
    tenant_id uuid NOT NULL,
    asset_version_id uuid NOT NULL,
    asset_id uuid NOT NULL,
    version_label text NOT NULL CHECK (version_label ~ '^[A-Za-z0-9._-]{1,64}$'),
    content text NOT NULL,
    artifact_ref text NOT NULL,
    checksum text NOT NULL CHECK (checksum ~ '^blake3:[0-9a-f]{64}$'),
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    PRIMARY KEY (tenant_id, asset_version_id),
    CONSTRAINT asset_version_label_key UNIQUE (tenant_id, asset_id, version_label),
    FOREIGN KEY (tenant_id, asset_id) REFERENCES asset
);
CREATE INDEX asset_version_by_asset ON asset_version (tenant_id, asset_id, asset_version_id);
SELECT fairway_make_append_only('asset_version');

-- The text that a version's content was parsed from, kept as given.
CREATE TABLE asset_version_source (
    tenant_id uuid NOT NULL,
    asset_version_id uuid NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (tenant_id, asset_version_id),
    FOREIGN KEY (tenant_id, asset_version_id) REFERENCES asset_version
);
SELECT fairway_make_append_only('asset_version_source');
