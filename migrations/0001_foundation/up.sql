-- What every later migration uses: the role of the service, the clock, append-only tables, and rows that belong to the
-- whole installation.
--
-- Migrations run as the owner, which is the role of the connection that applies them. The service connects as, or
-- becomes, `fairway_service`, which cannot change the schema and cannot update or delete history.

-- Roles belong to the cluster, so another database may already have created this one.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'fairway_service') THEN
        CREATE ROLE fairway_service NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;
END
$$;

GRANT USAGE ON SCHEMA public TO fairway_service;

-- The clock for expiry, leases and soak times. Tests replace it in their own databases.
CREATE FUNCTION fairway_now() RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
RETURN now();

-- The smallest UUIDv7 of a moment. Partitions by month and pages by age compare identifiers with it.
CREATE FUNCTION fairway_uuid_floor(moment timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid;

-- Refuses changes of append-only rows for every role, the owner included. The missing rights of the service are the
-- first defence, this trigger is the second.
CREATE FUNCTION fairway_refuse_rewrite() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never changed', TG_TABLE_NAME USING ERRCODE = 'FW003';
END
$$;

-- Makes a table append-only: grants the service SELECT and INSERT, and refuses UPDATE, DELETE and TRUNCATE.
CREATE FUNCTION fairway_make_append_only(relation regclass) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION fairway_refuse_rewrite()', relation);
    EXECUTE format('CREATE TRIGGER never_truncated BEFORE TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION fairway_refuse_rewrite()', relation);
    EXECUTE format('GRANT SELECT, INSERT ON %s TO fairway_service', relation);
END
$$;

-- One row: the installation's identifier, by which its artifact store is recognized, and the key that encrypts the
-- cursors of lists. A dump of the database contains both.
CREATE TABLE installation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    installation_id uuid NOT NULL,
    cursor_key bytea NOT NULL CHECK (length(cursor_key) = 32)
);
INSERT INTO installation (installation_id, cursor_key)
VALUES (gen_random_uuid(), sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));
GRANT SELECT ON installation TO fairway_service;

-- Periodic tasks that one process runs at a time. The process that advances `due_at` runs the task.
CREATE TABLE chore (
    name text PRIMARY KEY,
    due_at timestamptz NOT NULL
);
INSERT INTO chore (name, due_at) VALUES ('sweep_artifacts', fairway_now()), ('advise_rollbacks', fairway_now());
GRANT SELECT, UPDATE ON chore TO fairway_service;

-- How long an artifact may exist without a row that names it. A request that stored one commits within seconds or
-- never.
CREATE FUNCTION fairway_orphan_age() RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN interval '1 day';
