-- Subjects of identity providers under their names in a tenant, and the sessions of their browsers.

CREATE TABLE identity (
    tenant_id uuid NOT NULL REFERENCES tenant,
    identity_id uuid NOT NULL,
    issuer text NOT NULL,
    subject text NOT NULL,
    -- The name that the subject keeps, whatever later tokens claim.
    actor text NOT NULL,
    -- What the subject presented last.
    groups text[] NOT NULL,
    email text,
    first_seen_at timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, identity_id),
    CONSTRAINT identity_subject_key UNIQUE (tenant_id, issuer, subject),
    CONSTRAINT identity_actor_key UNIQUE (tenant_id, actor)
) WITH (fillfactor = 70);
-- A provider's logout names the subject only, so these two indexes begin without the tenant.
CREATE INDEX identity_by_subject ON identity (subject, issuer, tenant_id);
GRANT SELECT, INSERT, UPDATE ON identity TO fairway_service;

-- Browser sessions. The cookie's secret is stored as a hash. Tokens of the identity provider are encrypted under a key
-- that is derived from that secret, so that the stored row alone opens nothing.
CREATE TABLE session (
    tenant_id uuid NOT NULL,
    session_id uuid NOT NULL,
    secret_hash bytea NOT NULL CHECK (length(secret_hash) = 32),
    identity_id uuid NOT NULL,
    -- The provider's own identifier of the session (`sid`), for back-channel logout.
    issuer_session text,
    display_name text NOT NULL,
    groups text[] NOT NULL,
    groups_read_at timestamptz NOT NULL,
    sealed_tokens bytea NOT NULL CHECK (length(sealed_tokens) <= 65536),
    created_at timestamptz NOT NULL,
    last_used_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    ended_at timestamptz,
    PRIMARY KEY (tenant_id, session_id),
    CONSTRAINT session_secret_key UNIQUE (tenant_id, secret_hash),
    FOREIGN KEY (tenant_id, identity_id) REFERENCES identity
) WITH (fillfactor = 70);
CREATE INDEX session_by_identity ON session (tenant_id, identity_id) WHERE ended_at IS NULL;
CREATE INDEX session_by_issuer_session ON session (issuer_session, tenant_id) WHERE ended_at IS NULL;
GRANT SELECT, INSERT, UPDATE, DELETE ON session TO fairway_service;
