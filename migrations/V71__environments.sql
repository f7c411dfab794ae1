-- What an environment of a workspace asks of its releases. Where nothing is said, the server's defaults hold.
CREATE TABLE environment_settings (
    tenant_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    environment text NOT NULL,
    min_approvals smallint NOT NULL CHECK (min_approvals BETWEEN 1 AND 10),
    allow_self_approval boolean NOT NULL,
    pin_documents boolean NOT NULL,
    revision bigint NOT NULL,
    updated_at timestamptz NOT NULL,
    updated_by text NOT NULL,
    PRIMARY KEY (tenant_id, workspace_id, environment),
    FOREIGN KEY (tenant_id, workspace_id) REFERENCES workspace
);
GRANT SELECT, INSERT, UPDATE ON environment_settings TO fairway_service;
