-- What every process of one installation knows and nobody else: its identifier, by which an artifact store is
-- recognised as its own, and the key that cursors of lists are sealed with. A dump takes both along.
CREATE TABLE installation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    installation_id uuid NOT NULL,
    cursor_key bytea NOT NULL CHECK (length(cursor_key) = 32)
);
INSERT INTO installation (installation_id, cursor_key)
VALUES (gen_random_uuid(), sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));
GRANT SELECT ON installation TO fairway_service;

-- One index for each combination of filters, so that a page costs the same however large the table is. None of the
-- columns changes but `lifecycle_state`, and that seldom.
CREATE INDEX asset_by_kind ON asset (tenant_id, asset_kind, asset_id);
CREATE INDEX asset_by_state ON asset (tenant_id, lifecycle_state, asset_id);
CREATE INDEX asset_by_kind_state ON asset (tenant_id, asset_kind, lifecycle_state, asset_id);
CREATE INDEX asset_by_namespace_kind ON asset (tenant_id, namespace_id, asset_kind, asset_id);
CREATE INDEX asset_by_namespace_state ON asset (tenant_id, namespace_id, lifecycle_state, asset_id);
CREATE INDEX asset_by_namespace_kind_state ON asset (tenant_id, namespace_id, asset_kind, lifecycle_state, asset_id);
CREATE INDEX asset_builtin ON asset (tenant_id, asset_id) WHERE ownership_tier = 'platform_builtin';

CREATE INDEX workspace_by_namespace ON workspace (tenant_id, namespace_id, workspace_id);
CREATE INDEX workload_by_status ON workload (tenant_id, status, workload_id);
CREATE INDEX workload_by_workspace_status ON workload (tenant_id, workspace_id, status, workload_id);

-- A release's state moves with every transition, so it stands in no index: that would cost each of them.
CREATE INDEX release_by_environment ON release (tenant_id, environment, release_id);
CREATE INDEX release_by_workspace ON release (tenant_id, workspace_id, release_id);
CREATE INDEX release_by_workload_environment ON release (tenant_id, workload_id, environment, release_id);

CREATE INDEX role_binding_by_scope ON role_binding (tenant_id, scope_kind, scope_ref, role_binding_id);
