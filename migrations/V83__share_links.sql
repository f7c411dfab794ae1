-- Links that open a workload to whoever holds their token. Of the token there is a hash alone: it has 256 random bits, so
-- the hash tells nothing of it.
CREATE TABLE share_link (
    tenant_id uuid NOT NULL,
    share_link_id uuid NOT NULL,
    workload_id uuid NOT NULL,
    token_hash bytea NOT NULL CHECK (length(token_hash) = 32),
    label text,
    lane text CHECK (lane IN ('restricted', 'guided', 'standard')),
    max_uses integer NOT NULL CHECK (max_uses BETWEEN 1 AND 10000),
    use_count integer NOT NULL DEFAULT 0 CHECK (use_count BETWEEN 0 AND max_uses),
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz,
    revoked_by text,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    PRIMARY KEY (tenant_id, share_link_id),
    CONSTRAINT share_link_token_key UNIQUE (tenant_id, token_hash),
    CHECK ((revoked_at IS NULL) = (revoked_by IS NULL)),
    FOREIGN KEY (tenant_id, workload_id) REFERENCES workload
) WITH (fillfactor = 50);
-- A workload's list, newest first.
CREATE UNIQUE INDEX share_link_by_age ON share_link (tenant_id, workload_id, share_link_id);

GRANT SELECT, INSERT ON share_link TO fairway_service;
-- What a link is good for never changes: it is used, or taken back.
GRANT UPDATE (use_count, revoked_at, revoked_by) ON share_link TO fairway_service;

-- Counts a use of a link, or refuses the whole statement: a link that is not there, revoked, expired or used up starts
-- no run. Called once by the statement that accepts a run, behind its guard. Of many at once each waits for the row and
-- looks at it as it is then.
CREATE FUNCTION fairway_use_share_link(a_tenant uuid, a_workload uuid, a_link uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF a_link IS NULL THEN
        RETURN;
    END IF;
    UPDATE share_link SET use_count = use_count + 1
    WHERE tenant_id = a_tenant AND share_link_id = a_link AND workload_id = a_workload
        AND revoked_at IS NULL AND expires_at > fairway_now() AND use_count < max_uses;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the share link starts no run' USING ERRCODE = 'FW005';
    END IF;
END
$$;

-- What a run was let in by, where that was not a right of its submitter: the link, and the hash of the token that reads
-- the run where its submitter has no name.
ALTER TABLE execution ADD COLUMN share_link_id uuid, ADD COLUMN result_token bytea;

-- How often clients without a name have asked, for all processes: the moment up to which what a client asked is paid for
-- at the steady rate. Whoever is in the past has nothing to wait for. Not logged: a crash forgives everybody.
CREATE UNLOGGED TABLE throttle (
    tenant_id uuid NOT NULL,
    bucket bytea NOT NULL CHECK (length(bucket) = 32),
    paid_until timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, bucket)
) WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE, DELETE ON throttle TO fairway_service;
