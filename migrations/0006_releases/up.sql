-- Releases with their bindings, approvals and rollouts, and deployments: which release holds which lane.

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
    -- The newest rollout. Its soak time is measured with the database's clock.
    rollout_status text CHECK (rollout_status IN ('in_progress', 'completed', 'rolled_back')),
    rollout_lanes text[] CHECK (rollout_lanes <@ ARRAY['restricted', 'guided', 'standard']),
    rollout_soak_minutes integer CHECK (rollout_soak_minutes BETWEEN 0 AND 43200),
    rollout_auto_advance boolean,
    rollout_index smallint CHECK (rollout_index >= 0 AND rollout_index < cardinality(rollout_lanes)),
    rollout_since bigint,
    soak_started_at timestamptz,
    soak_ends_at timestamptz,
    -- Reasons to hold that were recorded for the current lane.
    rollout_holds text[] NOT NULL DEFAULT '{}',
    -- Whether the last evaluation of the release's runs recommended a rollback.
    rollback_advised boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant_id, release_id),
    -- A release that left draft has the digest of what was reviewed.
    CHECK (state IN ('draft', 'retired') OR bindings_digest IS NOT NULL),
    CHECK (num_nonnulls(rollout_status, rollout_lanes, rollout_soak_minutes, rollout_auto_advance, rollout_index,
        rollout_since, soak_started_at, soak_ends_at) IN (0, 8)),
    FOREIGN KEY (tenant_id, workload_id) REFERENCES workload
) WITH (fillfactor = 80);
-- No list index contains `state`, because every transition changes it and would update the index.
CREATE INDEX release_by_workload ON release (tenant_id, workload_id, release_id);
CREATE INDEX release_by_environment ON release (tenant_id, environment, release_id);
CREATE INDEX release_by_workspace ON release (tenant_id, workspace_id, release_id);
CREATE INDEX release_by_workload_environment ON release (tenant_id, workload_id, environment, release_id);
-- The rollouts that the rollout pilot may advance.
CREATE INDEX release_by_soak ON release (tenant_id, release_id)
    WHERE rollout_status = 'in_progress' AND rollout_auto_advance;
-- The releases whose runs are evaluated for rollback recommendations.
CREATE INDEX release_that_serves ON release (tenant_id, release_id) WHERE state = 'active';
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
CREATE INDEX release_binding_by_version ON release_binding (tenant_id, asset_version_id, release_id);
CREATE UNIQUE INDEX release_binding_role_key ON release_binding (tenant_id, release_id, role)
    WHERE role NOT IN ('knowledge_base', 'tool_definition', 'skill', 'guardrail_config', 'memory');
GRANT SELECT, INSERT, DELETE ON release_binding TO fairway_service;

-- The targets of the references in a release's contents, frozen when the release leaves draft. Rows of an earlier
-- digest show what was reviewed then; the release uses the rows of its current digest.
CREATE TABLE release_reference (
    tenant_id uuid NOT NULL,
    release_id uuid NOT NULL,
    bindings_digest text NOT NULL,
    -- The version whose content has the reference.
    from_version_id uuid NOT NULL,
    slug text NOT NULL,
    -- Empty if the reference names no version.
    label text NOT NULL,
    to_version_id uuid NOT NULL,
    PRIMARY KEY (tenant_id, release_id, bindings_digest, from_version_id, slug, label),
    FOREIGN KEY (tenant_id, release_id) REFERENCES release,
    FOREIGN KEY (tenant_id, from_version_id) REFERENCES asset_version,
    FOREIGN KEY (tenant_id, to_version_id) REFERENCES asset_version
);
SELECT fairway_make_append_only('release_reference');

CREATE TABLE approval (
    tenant_id uuid NOT NULL,
    approval_id uuid NOT NULL,
    release_id uuid NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('approved', 'rejected', 'changes_requested')),
    subject_digest text NOT NULL,
    approved_by text NOT NULL,
    approved_at timestamptz NOT NULL,
    -- The revision of the release that the approval created. It orders approvals independently of clocks.
    release_revision bigint NOT NULL,
    -- The database's time of the approval. Rules about an approval's age use this column.
    recorded_at timestamptz NOT NULL DEFAULT fairway_now(),
    PRIMARY KEY (tenant_id, approval_id),
    CONSTRAINT approval_order UNIQUE (tenant_id, release_id, release_revision),
    FOREIGN KEY (tenant_id, release_id) REFERENCES release
);
SELECT fairway_make_append_only('approval');

-- Free text in a table of its own, so that it can be erased while the approval remains.
CREATE TABLE approval_note (
    tenant_id uuid NOT NULL,
    approval_id uuid NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (tenant_id, approval_id)
);
GRANT SELECT, INSERT, DELETE ON approval_note TO fairway_service;

-- Documents that explain transitions of releases. A document may contain what a person wrote, so it is erasable; the
-- fact that has its checksum remains.
CREATE TABLE release_artifact (
    tenant_id uuid NOT NULL,
    release_id uuid NOT NULL,
    artifact_id uuid NOT NULL,
    artifact_kind text NOT NULL,
    content text NOT NULL,
    checksum text NOT NULL CHECK (checksum ~ '^blake3:[0-9a-f]{64}$'),
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    PRIMARY KEY (tenant_id, release_id, artifact_id),
    FOREIGN KEY (tenant_id, release_id) REFERENCES release
);
GRANT SELECT, INSERT, DELETE ON release_artifact TO fairway_service;

-- The release that holds each lane of a workload in an environment. Every statement that moves a lane updates this row
-- first, which gives a lane one holder and all such statements one order of locks.
CREATE TABLE deployment (
    tenant_id uuid NOT NULL,
    workload_id uuid NOT NULL,
    environment text NOT NULL,
    restricted_release_id uuid,
    guided_release_id uuid,
    standard_release_id uuid,
    revision bigint NOT NULL,
    -- The lanes that the rollouts of their holders have reached.
    soaking_lanes text[] NOT NULL DEFAULT '{}',
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
-- The history of one lane, newest first, independent of the number of moves of the other lanes.
CREATE INDEX deployment_history_by_lane ON deployment_history (tenant_id, workload_id, environment, lane, revision);
SELECT fairway_make_append_only('deployment_history');

-- Archives an asset unless a release in use binds a version of it (FW004). False if the asset's revision changed.
--
-- A binding is committed with the asset's row locked in share mode. So the update waits for bindings in progress, and
-- the query behind it, a statement with its own snapshot, sees them; later bindings wait for the update and find the
-- asset archived. A single statement would read with the snapshot from before its wait.
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
