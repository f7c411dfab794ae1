-- Assets with their versions, and what versions contain that other rows must find: references, withdrawn routes and
-- access contracts.

CREATE TABLE asset (
    tenant_id uuid NOT NULL REFERENCES tenant,
    asset_id uuid NOT NULL,
    slug text NOT NULL,
    asset_kind text NOT NULL,
    owner_ref text NOT NULL,
    lifecycle_state text NOT NULL CHECK (lifecycle_state IN ('draft', 'active', 'retired', 'archived')),
    ownership_tier text NOT NULL CHECK (ownership_tier IN ('workspace', 'platform_builtin')),
    workspace_id uuid NOT NULL,
    namespace_id uuid NOT NULL,
    -- The highest N of labels `vN`, so that the next label needs no search.
    last_label bigint NOT NULL DEFAULT 0,
    -- The ordinal of the newest version. Every new version updates this row, so ordinals follow commit order.
    last_ordinal bigint NOT NULL DEFAULT 0,
    revision bigint NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    PRIMARY KEY (tenant_id, asset_id),
    CONSTRAINT asset_slug_key UNIQUE (tenant_id, slug),
    FOREIGN KEY (tenant_id, workspace_id) REFERENCES workspace,
    FOREIGN KEY (tenant_id, namespace_id) REFERENCES namespace
) WITH (fillfactor = 80);
-- One index for each combination of filters, so that the cost of a page does not depend on the size of the table. Of
-- the indexed columns only `lifecycle_state` ever changes, and rarely.
CREATE INDEX asset_by_namespace ON asset (tenant_id, namespace_id, asset_id);
CREATE INDEX asset_by_kind ON asset (tenant_id, asset_kind, asset_id);
CREATE INDEX asset_by_state ON asset (tenant_id, lifecycle_state, asset_id);
CREATE INDEX asset_by_kind_state ON asset (tenant_id, asset_kind, lifecycle_state, asset_id);
CREATE INDEX asset_by_namespace_kind ON asset (tenant_id, namespace_id, asset_kind, asset_id);
CREATE INDEX asset_by_namespace_state ON asset (tenant_id, namespace_id, lifecycle_state, asset_id);
CREATE INDEX asset_by_namespace_kind_state ON asset (tenant_id, namespace_id, asset_kind, lifecycle_state, asset_id);
CREATE INDEX asset_builtin ON asset (tenant_id, asset_id) WHERE ownership_tier = 'platform_builtin';
GRANT SELECT, INSERT, UPDATE ON asset TO fairway_service;

-- `content` is the canonical text: the bytes of the artifact, and those that `checksum` was computed from.
CREATE TABLE asset_version (
    tenant_id uuid NOT NULL,
    asset_version_id uuid NOT NULL,
    asset_id uuid NOT NULL,
    version_label text NOT NULL CHECK (version_label ~ '^[A-Za-z0-9._-]{1,64}$'),
    ordinal bigint NOT NULL CHECK (ordinal > 0),
    content text NOT NULL,
    artifact_ref text NOT NULL,
    checksum text NOT NULL CHECK (checksum ~ '^blake3:[0-9a-f]{64}$'),
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    PRIMARY KEY (tenant_id, asset_version_id),
    CONSTRAINT asset_version_label_key UNIQUE (tenant_id, asset_id, version_label),
    FOREIGN KEY (tenant_id, asset_id) REFERENCES asset
);
CREATE UNIQUE INDEX asset_version_order ON asset_version (tenant_id, asset_id, ordinal);
-- The artifact sweeper knows versions only: paths in the artifact store contain no tenant.
CREATE INDEX asset_version_by_id ON asset_version (asset_version_id);
SELECT fairway_make_append_only('asset_version');

-- The text that a version's content was parsed from, unchanged.
CREATE TABLE asset_version_source (
    tenant_id uuid NOT NULL,
    asset_version_id uuid NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (tenant_id, asset_version_id),
    FOREIGN KEY (tenant_id, asset_version_id) REFERENCES asset_version
);
SELECT fairway_make_append_only('asset_version_source');

-- Free text in a table of its own, so that it can be erased while the version remains.
CREATE TABLE asset_version_note (
    tenant_id uuid NOT NULL,
    asset_version_id uuid NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (tenant_id, asset_version_id),
    FOREIGN KEY (tenant_id, asset_version_id) REFERENCES asset_version
);
GRANT SELECT, INSERT, DELETE ON asset_version_note TO fairway_service;

-- Gives a principal or a workspace read access to an asset outside its namespace.
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

-- The references in the content of a version, extracted when the version is created. By slug, because a reference may
-- be written before its target exists; slugs never change.
CREATE TABLE asset_reference (
    tenant_id uuid NOT NULL,
    asset_version_id uuid NOT NULL,
    position integer NOT NULL CHECK (position >= 0),
    target_slug text NOT NULL,
    -- Null if the reference names no version.
    target_label text,
    pointer text NOT NULL,
    PRIMARY KEY (tenant_id, asset_version_id, position),
    FOREIGN KEY (tenant_id, asset_version_id) REFERENCES asset_version
);
CREATE INDEX asset_reference_by_target ON asset_reference (tenant_id, target_slug, asset_version_id);
SELECT fairway_make_append_only('asset_reference');

-- The routes that a version of a model policy suspends or retires. The activation of a release asks whether a version
-- newer than the bound one withdraws its route. A trigger fills the table, so that no statement that inserts versions
-- can leave it out.
CREATE TABLE withdrawn_route (
    tenant_id uuid NOT NULL,
    asset_id uuid NOT NULL,
    route_id text NOT NULL,
    ordinal bigint NOT NULL,
    asset_version_id uuid NOT NULL,
    state text NOT NULL CHECK (state IN ('suspended', 'retired')),
    PRIMARY KEY (tenant_id, asset_id, route_id, ordinal),
    FOREIGN KEY (tenant_id, asset_version_id) REFERENCES asset_version
);
SELECT fairway_make_append_only('withdrawn_route');

-- Reads the places of routes only: free labels of a policy may contain the same words.
CREATE FUNCTION fairway_withdrawn_routes(content text) RETURNS TABLE (route_id text, state text)
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    WITH policy AS MATERIALIZED (SELECT content::json AS document)
    SELECT DISTINCT ON (1) route ->> 'route_id', route ->> 'state'
    FROM (
        SELECT document -> 'provider_route' AS route FROM policy
        UNION ALL
        SELECT json_array_elements(document -> 'fallback_routes') FROM policy
        WHERE json_typeof(document -> 'fallback_routes') = 'array'
    ) AS routes
    WHERE route ->> 'route_id' IS NOT NULL AND route ->> 'state' IN ('suspended', 'retired')
$$;

CREATE FUNCTION fairway_note_withdrawn_routes() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO withdrawn_route (tenant_id, asset_id, route_id, ordinal, asset_version_id, state)
    SELECT NEW.tenant_id, NEW.asset_id, route_id, NEW.ordinal, NEW.asset_version_id, state
    FROM fairway_withdrawn_routes(NEW.content)
    WHERE EXISTS (
        SELECT FROM asset
        WHERE tenant_id = NEW.tenant_id AND asset_id = NEW.asset_id AND asset_kind = 'model_policy');
    RETURN NULL;
END
$$;

-- Canonical JSON has one spelling, so a text comparison excludes most contents.
CREATE TRIGGER asset_version_withdraws_routes AFTER INSERT ON asset_version
FOR EACH ROW WHEN (NEW.content LIKE '%"state":"suspended"%' OR NEW.content LIKE '%"state":"retired"%')
EXECUTE FUNCTION fairway_note_withdrawn_routes();

-- The knowledge base that an access contract belongs to, and whether the contract is revoked. Both rules span all
-- versions of all assets of a tenant, so a trigger enforces them where versions are inserted: two servers cannot decide
-- differently.
CREATE TABLE access_contract (
    tenant_id uuid NOT NULL,
    contract_id text NOT NULL,
    asset_id uuid NOT NULL,
    revoked boolean NOT NULL,
    PRIMARY KEY (tenant_id, contract_id),
    FOREIGN KEY (tenant_id, asset_id) REFERENCES asset
);
CREATE INDEX access_contract_by_asset ON access_contract (tenant_id, asset_id);
CREATE INDEX access_contract_revoked ON access_contract (tenant_id, contract_id) WHERE revoked;
GRANT SELECT, INSERT, UPDATE ON access_contract TO fairway_service;

-- The service tells the two refusals apart by the names of the constraints.
CREATE FUNCTION fairway_hold_access_contract() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    contract jsonb;
    held access_contract;
BEGIN
    PERFORM FROM asset
    WHERE tenant_id = NEW.tenant_id AND asset_id = NEW.asset_id AND asset_kind = 'knowledge_base';
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    contract := NEW.content::jsonb -> 'access_contract';
    INSERT INTO access_contract (tenant_id, contract_id, asset_id, revoked)
    VALUES (NEW.tenant_id, contract ->> 'contract_id', NEW.asset_id, coalesce((contract -> 'revoked')::boolean, false))
    ON CONFLICT (tenant_id, contract_id) DO NOTHING;
    SELECT * INTO STRICT held FROM access_contract
    WHERE tenant_id = NEW.tenant_id AND contract_id = contract ->> 'contract_id'
    FOR UPDATE;
    IF held.asset_id <> NEW.asset_id THEN
        RAISE EXCEPTION 'the contract belongs to another asset'
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'access_contract_owner';
    END IF;
    IF held.revoked AND NOT coalesce((contract -> 'revoked')::boolean, false) THEN
        RAISE EXCEPTION 'a revoked contract is never restored'
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'access_contract_revoked';
    END IF;
    UPDATE access_contract SET revoked = true
    WHERE tenant_id = NEW.tenant_id AND contract_id = held.contract_id AND NOT revoked
        AND coalesce((contract -> 'revoked')::boolean, false);
    RETURN NULL;
END
$$;

-- Every access contract is in a content under this name. Most contents have none and skip the question for their kind.
CREATE TRIGGER asset_version_holds_its_contract AFTER INSERT ON asset_version
FOR EACH ROW WHEN (NEW.content LIKE '%"access\_contract"%') EXECUTE FUNCTION fairway_hold_access_contract();

-- Revocations of access contracts by a request, beside those by a version. A revocation is final.
CREATE TABLE contract_revocation (
    tenant_id uuid NOT NULL,
    contract_id text NOT NULL,
    revocation_id uuid NOT NULL,
    asset_id uuid NOT NULL,
    revoked_at timestamptz NOT NULL,
    revoked_by text NOT NULL,
    PRIMARY KEY (tenant_id, contract_id),
    CONSTRAINT contract_revocation_id_key UNIQUE (tenant_id, revocation_id),
    FOREIGN KEY (tenant_id, contract_id) REFERENCES access_contract
);
SELECT fairway_make_append_only('contract_revocation');

-- The caller's text, erasable.
CREATE TABLE contract_revocation_reason (
    tenant_id uuid NOT NULL,
    revocation_id uuid NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (tenant_id, revocation_id)
);
GRANT SELECT, INSERT, DELETE ON contract_revocation_reason TO fairway_service;
