-- Workloads with the interfaces that people see, principals bound to them, and share links.

CREATE TABLE workload (
    tenant_id uuid NOT NULL REFERENCES tenant,
    workload_id uuid NOT NULL,
    slug text NOT NULL,
    name text NOT NULL,
    description text NOT NULL,
    owner_ref text NOT NULL,
    status text NOT NULL CHECK (status IN ('registered', 'suspended', 'retired')),
    invocation_mode text NOT NULL CHECK (invocation_mode IN ('chat', 'form', 'block', 'api', 'batch', 'event')),
    workspace_id uuid NOT NULL,
    revision bigint NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    updated_at timestamptz NOT NULL,
    -- Set for workloads that Fairway created: the assistant of a workspace, and the generator of the platform.
    management_source text CHECK (management_source IN ('workspace_builtin', 'platform_builtin')),
    interface_config jsonb,
    -- The words of the name and the descriptions, split by the service. Each word has the tenant's identifier and a
    -- slash in front, so that the index below separates tenants.
    search tsvector NOT NULL DEFAULT ''::tsvector,
    PRIMARY KEY (tenant_id, workload_id),
    CONSTRAINT workload_slug_key UNIQUE (tenant_id, slug),
    CONSTRAINT workload_interface_is_an_object CHECK (jsonb_typeof(interface_config) = 'object'),
    -- An absent key compares to null, which a CHECK accepts. So the constraints say what null means.
    CONSTRAINT workload_interface_has_a_mode
        CHECK (interface_config IS NULL
            OR coalesce(interface_config ->> 'presentation_mode' IN ('form', 'chat', 'block'), false)),
    CONSTRAINT workload_interface_says_who_may_come
        CHECK (NOT coalesce(interface_config ? 'access_mode', false)
            OR coalesce(interface_config ->> 'access_mode' IN ('authenticated', 'public', 'link_shared'), false)),
    FOREIGN KEY (tenant_id, workspace_id) REFERENCES workspace
) WITH (fillfactor = 80);
CREATE INDEX workload_by_workspace ON workload (tenant_id, workspace_id, workload_id);
CREATE INDEX workload_by_status ON workload (tenant_id, status, workload_id);
CREATE INDEX workload_by_workspace_status ON workload (tenant_id, workspace_id, status, workload_id);
-- Runtime lists contain the workloads that accept runs, newest first: all, those of one owner, and both for one
-- presentation mode, so that the workloads of a rare mode are found without reading the others.
CREATE INDEX workload_runtime ON workload (tenant_id, workload_id)
    WHERE interface_config IS NOT NULL AND status = 'registered';
CREATE INDEX workload_runtime_by_owner ON workload (tenant_id, owner_ref, workload_id)
    WHERE interface_config IS NOT NULL AND status = 'registered';
CREATE INDEX workload_runtime_by_mode
    ON workload (tenant_id, (interface_config ->> 'presentation_mode'), workload_id)
    WHERE interface_config IS NOT NULL AND status = 'registered';
CREATE INDEX workload_runtime_by_mode_owner
    ON workload (tenant_id, (interface_config ->> 'presentation_mode'), owner_ref, workload_id)
    WHERE interface_config IS NOT NULL AND status = 'registered';
-- Without a pending list, because every search would read it from end to end.
CREATE INDEX workload_runtime_by_word ON workload USING gin (search) WITH (fastupdate = off)
    WHERE interface_config IS NOT NULL AND status = 'registered';
GRANT SELECT, INSERT, UPDATE ON workload TO fairway_service;

-- Principals bound to a workload, and the lane that serves each. Without a lane, the caller's other bindings decide.
CREATE TABLE principal_binding (
    tenant_id uuid NOT NULL,
    workload_id uuid NOT NULL,
    principal text NOT NULL CHECK (principal ~ '^(user|group|service):'),
    principal_binding_id uuid NOT NULL,
    lane text CHECK (lane IN ('restricted', 'guided', 'standard')),
    revision bigint NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    updated_at timestamptz NOT NULL,
    updated_by text NOT NULL,
    PRIMARY KEY (tenant_id, workload_id, principal),
    FOREIGN KEY (tenant_id, workload_id) REFERENCES workload
);
-- The list of a workload, newest first.
CREATE UNIQUE INDEX principal_binding_by_age ON principal_binding (tenant_id, workload_id, principal_binding_id);
-- All lanes of a caller, read together with its roles.
CREATE INDEX principal_binding_by_principal ON principal_binding (tenant_id, principal) WHERE lane IS NOT NULL;
GRANT SELECT, INSERT, UPDATE, DELETE ON principal_binding TO fairway_service;

-- Links that let the holder of a token run a workload. Only a hash of the token is stored; the token has 256 random
-- bits, so the hash reveals nothing.
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
-- The list of a workload, newest first.
CREATE UNIQUE INDEX share_link_by_age ON share_link (tenant_id, workload_id, share_link_id);
GRANT SELECT, INSERT ON share_link TO fairway_service;
-- A link is used or revoked; its other columns never change.
GRANT UPDATE (use_count, revoked_at, revoked_by) ON share_link TO fairway_service;

-- Counts a use of a link. Raises FW005 for a link that is unknown, revoked, expired or used up, which refuses the whole
-- statement. The statement that accepts a run calls this once, after its guard. Concurrent calls wait for the row and
-- read it as it is then.
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

-- Rate limits of anonymous clients, shared by all processes: the moment up to which the requests of a client are paid
-- for at the sustained rate. A client whose moment has passed waits for nothing. Unlogged: a crash resets all clients.
CREATE UNLOGGED TABLE throttle (
    tenant_id uuid NOT NULL,
    bucket bytea NOT NULL CHECK (length(bucket) = 32),
    paid_until timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, bucket)
) WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE, DELETE ON throttle TO fairway_service;
