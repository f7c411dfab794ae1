-- Work that one process of all does now and then. Who moves the row on does it.
CREATE TABLE chore (
    name text PRIMARY KEY,
    due_at timestamptz NOT NULL
);
INSERT INTO chore (name, due_at) VALUES ('sweep_artifacts', fairway_now());
GRANT SELECT, UPDATE ON chore TO fairway_service;

-- How long an artifact may lie without a row: a request that stored it commits within seconds or never.
CREATE FUNCTION fairway_orphan_age() RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN interval '1 day';

-- Paths in the store name no tenant, so rows are looked for by the version alone.
CREATE INDEX asset_version_by_id ON asset_version (asset_version_id);
