-- Two roles. Migrations run as the owner (whoever connects for them); the service works as `fairway_service`, which
-- can neither change the schema nor rewrite history. Roles belong to the cluster, so another database may have made it.
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

-- The one clock that expiry, leases and soak times go by. Tests replace it in their own databases.
CREATE FUNCTION fairway_now() RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
RETURN now();

-- Stands behind the missing rights: history stays as it was written, whoever connects.
CREATE FUNCTION fairway_refuse_rewrite() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never changed', TG_TABLE_NAME USING ERRCODE = 'FW003';
END
$$;

CREATE FUNCTION fairway_make_append_only(relation regclass) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION fairway_refuse_rewrite()', relation);
    EXECUTE format('CREATE TRIGGER never_truncated BEFORE TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION fairway_refuse_rewrite()', relation);
    EXECUTE format('GRANT SELECT, INSERT ON %s TO fairway_service', relation);
END
$$;
