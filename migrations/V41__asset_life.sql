-- Free text, which can be erased while the version stays.
CREATE TABLE asset_version_note (
    tenant_id uuid NOT NULL,
    asset_version_id uuid NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (tenant_id, asset_version_id),
    FOREIGN KEY (tenant_id, asset_version_id) REFERENCES asset_version
);
GRANT SELECT, INSERT, DELETE ON asset_version_note TO fairway_service;

-- An asset shown to somebody who would not see it.
CREATE TABLE asset_grant (
    tenant_id uuid NOT NULL,
    grant_id uuid NOT NULL,
    asset_id uuid NOT NULL,
    principal text,
    grantee_workspace_id uuid,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    PRIMARY KEY (tenant_id, grant_id),
    CHECK (num_nonnulls(principal, grantee_workspace_id) = 1),
    CONSTRAINT asset_grant_once UNIQUE NULLS NOT DISTINCT (tenant_id, asset_id, principal, grantee_workspace_id),
    FOREIGN KEY (tenant_id, asset_id) REFERENCES asset,
    FOREIGN KEY (tenant_id, grantee_workspace_id) REFERENCES workspace
);
CREATE INDEX asset_grant_by_asset ON asset_grant (tenant_id, asset_id, grant_id);
CREATE INDEX asset_grant_by_principal ON asset_grant (tenant_id, principal, asset_id);
CREATE INDEX asset_grant_by_workspace ON asset_grant (tenant_id, grantee_workspace_id, asset_id);
GRANT SELECT, INSERT, DELETE ON asset_grant TO fairway_service;

CREATE INDEX release_binding_by_version ON release_binding (tenant_id, asset_version_id, release_id);

-- Archives an asset unless a release that is not over binds a version of it. False when the asset moved.
--
-- A binding is committed with the asset's row locked in share mode. So the update below waits for those under way, and
-- the question after it, a statement of its own with a snapshot of its own, sees them; later ones wait for the update
-- and find the asset archived. One statement with both would ask with the snapshot from before its wait.
CREATE FUNCTION fairway_archive_asset(a_tenant uuid, a_asset uuid, a_seen bigint, a_revision bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE asset SET lifecycle_state = 'archived', revision = a_revision
    WHERE tenant_id = a_tenant AND asset_id = a_asset AND revision = a_seen AND lifecycle_state <> 'archived';
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF EXISTS (
        SELECT FROM asset_version
        JOIN release_binding USING (tenant_id, asset_version_id)
        JOIN release USING (tenant_id, release_id)
        WHERE tenant_id = a_tenant AND asset_id = a_asset
            AND release.state IN ('draft', 'review_ready', 'approved', 'active')
    ) THEN
        RAISE EXCEPTION 'a release binds a version of the asset' USING ERRCODE = 'FW004';
    END IF;
    RETURN true;
END
$$;
