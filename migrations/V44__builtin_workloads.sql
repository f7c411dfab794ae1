ALTER TABLE workload ADD COLUMN management_source text CHECK (management_source IN ('workspace_builtin'));

-- The assistants of workspaces that are there already. Should somebody have given its name to a workload, that one
-- keeps it and the workspace goes without.
INSERT INTO workload (tenant_id, workload_id, slug, name, description, owner_ref, status, invocation_mode,
    workspace_id, revision, created_at, created_by, updated_at, management_source)
SELECT tenant_id,
    (substr(fairway_uuid_floor(fairway_now())::text, 1, 14) || '7' || substr(gen_random_uuid()::text, 16))::uuid,
    'knowledge-assistant-' || slug, 'Knowledge assistant ' || replace(slug, '-', ' '), '', 'team:' || slug,
    'registered', 'chat', workspace_id, 1, fairway_now(), 'system:bootstrap', fairway_now(), 'workspace_builtin'
FROM workspace
ON CONFLICT DO NOTHING;
