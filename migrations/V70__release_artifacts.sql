-- Documents that stand behind moves of releases. A document may hold what a person wrote, so it can go while the fact,
-- which has its checksum, stays.
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
