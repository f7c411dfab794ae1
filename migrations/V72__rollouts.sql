-- The newest rollout of a release. Its soak is told by the database's clock.
ALTER TABLE release
    ADD COLUMN rollout_status text CHECK (rollout_status IN ('in_progress', 'completed', 'rolled_back')),
    ADD COLUMN rollout_lanes text[] CHECK (rollout_lanes <@ ARRAY['restricted', 'guided', 'standard']),
    ADD COLUMN rollout_soak_minutes integer CHECK (rollout_soak_minutes BETWEEN 0 AND 43200),
    ADD COLUMN rollout_auto_advance boolean,
    ADD COLUMN rollout_index smallint CHECK (rollout_index >= 0 AND rollout_index < cardinality(rollout_lanes)),
    ADD COLUMN rollout_since bigint,
    ADD COLUMN soak_started_at timestamptz,
    ADD COLUMN soak_ends_at timestamptz,
    -- Reasons to hold that were told of the present lane.
    ADD COLUMN rollout_holds text[] NOT NULL DEFAULT '{}',
    -- Whether its runs spoke for taking it back when somebody last looked.
    ADD COLUMN rollback_advised boolean NOT NULL DEFAULT false,
    ADD CHECK (num_nonnulls(rollout_status, rollout_lanes, rollout_soak_minutes, rollout_auto_advance, rollout_index,
        rollout_since, soak_started_at, soak_ends_at) IN (0, 8));
-- What the pilot looks through.
CREATE INDEX release_by_soak ON release (tenant_id, release_id)
    WHERE rollout_status = 'in_progress' AND rollout_auto_advance;

-- What is looked at for advice.
CREATE INDEX release_that_serves ON release (tenant_id, release_id) WHERE state = 'active';
INSERT INTO chore (name, due_at) VALUES ('advise_rollbacks', fairway_now());

-- The lanes that the rollouts of their holders are at.
ALTER TABLE deployment ADD COLUMN soaking_lanes text[] NOT NULL DEFAULT '{}';

-- The deployment's revision under which a run was let in: whether it came before or after a move of lanes needs no clock.
-- Runs of before are told apart from no rollout's.
ALTER TABLE execution ADD COLUMN deployment_revision bigint NOT NULL DEFAULT 0;
