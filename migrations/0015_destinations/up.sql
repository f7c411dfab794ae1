-- Destinations of notifications: shared external endpoints of a workspace, or of the whole organization.

CREATE TABLE notification_destination (
    tenant_id uuid NOT NULL REFERENCES tenant,
    destination_id uuid NOT NULL,
    -- Null for a destination of the organization.
    workspace_id uuid,
    destination_type text NOT NULL CHECK (destination_type IN
        ('email', 'chat_a', 'chat_b', 'chat_c', 'paging', 'webhook')),
    display_name text NOT NULL,
    -- Without secrets: values of sensitive keys are replaced before they are stored.
    configuration jsonb NOT NULL CHECK (jsonb_typeof(configuration) = 'object'),
    secret_ref text,
    is_enabled boolean NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    updated_at timestamptz NOT NULL,
    revision bigint NOT NULL,
    CONSTRAINT notification_destination_once
        UNIQUE NULLS NOT DISTINCT (tenant_id, workspace_id, destination_type, display_name),
    FOREIGN KEY (tenant_id, workspace_id) REFERENCES workspace
);
CREATE INDEX notification_destination_by_scope ON notification_destination (tenant_id, workspace_id, destination_id);
-- The primary key is created last, for the planner (see 0007).
ALTER TABLE notification_destination ADD PRIMARY KEY (tenant_id, destination_id);
GRANT SELECT, INSERT, UPDATE, DELETE ON notification_destination TO fairway_service;
