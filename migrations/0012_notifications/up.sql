-- Notifications: inboxes, preferences, default profiles, records of notifications that were not delivered, and the position
-- of the projector in each audit log.
--
-- Identifiers of notifications and of suppressed decisions are UUIDs in the form of version 7 that follow from the fact and
-- the recipient: they have the time of the fact, so that a repeated projection writes the same row of the same month.

CREATE TABLE notification (
    tenant_id uuid NOT NULL,
    notification_id uuid NOT NULL,
    recipient text NOT NULL,
    status text NOT NULL CHECK (status IN ('unread', 'read', 'archived')),
    category text NOT NULL,
    severity text NOT NULL CHECK (severity IN ('info', 'warning', 'critical')),
    title text NOT NULL,
    body text NOT NULL,
    event_kind text NOT NULL,
    event_id uuid NOT NULL,
    -- The index of the fact in the tenant's log, which orders live streams.
    log_index bigint NOT NULL CHECK (log_index >= 0),
    workspace_id uuid,
    workload_id uuid,
    environment text,
    created_at timestamptz NOT NULL,
    read_at timestamptz,
    revision bigint NOT NULL,
    CHECK (status <> 'unread' OR read_at IS NULL)
) PARTITION BY RANGE (notification_id);
-- One index for each combination of filters of an inbox, and one for its stream.
CREATE INDEX notification_by_recipient ON notification (tenant_id, recipient, notification_id);
CREATE INDEX notification_by_status ON notification (tenant_id, recipient, status, notification_id);
CREATE INDEX notification_by_category ON notification (tenant_id, recipient, category, notification_id);
CREATE INDEX notification_by_both ON notification (tenant_id, recipient, status, category, notification_id);
CREATE INDEX notification_by_log ON notification (tenant_id, recipient, log_index);
-- The primary key is created last, for the planner (see 0007).
ALTER TABLE notification ADD PRIMARY KEY (tenant_id, notification_id);
GRANT SELECT, INSERT, UPDATE ON notification TO fairway_service;

-- The record that a governance-relevant notification was not delivered, with the settings that decided. A fact holds the
-- digest of each record.
CREATE TABLE suppressed_decision (
    tenant_id uuid NOT NULL,
    suppressed_decision_id uuid NOT NULL,
    recipient text NOT NULL,
    category text NOT NULL,
    event_kind text NOT NULL,
    event_id uuid NOT NULL,
    reason_code text NOT NULL CHECK (reason_code IN
        ('preference_off', 'default_profile_off', 'notifications_disabled', 'capability_disabled')),
    -- Null where a setting of the tenant decided.
    deciding_scope text CHECK (deciding_scope IN
        ('environment', 'project', 'workspace', 'global', 'default_profile', 'fallback')),
    deciding_revision bigint,
    workspace_id uuid,
    workload_id uuid,
    created_at timestamptz NOT NULL
) PARTITION BY RANGE (suppressed_decision_id);
CREATE INDEX suppressed_decision_by_workspace ON suppressed_decision (tenant_id, workspace_id, suppressed_decision_id);
CREATE INDEX suppressed_decision_by_workload ON suppressed_decision (tenant_id, workload_id, suppressed_decision_id);
ALTER TABLE suppressed_decision ADD PRIMARY KEY (tenant_id, suppressed_decision_id);
SELECT fairway_make_append_only('suppressed_decision');

-- All tables with monthly partitions.
CREATE OR REPLACE FUNCTION fairway_partitioned_families() RETURNS text[]
LANGUAGE sql IMMUTABLE
RETURN ARRAY['execution', 'execution_input', 'execution_result', 'execution_progress', 'execution_exception', 'policy_decision',
    'obligation_fulfilment', 'execution_step', 'evidence_artifact', 'evidence_payload', 'context_lineage', 'notification',
    'suppressed_decision'];

-- The explicit preferences of a person in one scope: an array of {category, channel, enabled}. `scope_ref` is the tenant,
-- the workspace or the workload; `environment` is empty outside scopes of environments.
CREATE TABLE notification_preference (
    tenant_id uuid NOT NULL REFERENCES tenant,
    principal text NOT NULL,
    scope_kind text NOT NULL CHECK (scope_kind IN ('global', 'workspace', 'project', 'environment')),
    scope_ref uuid NOT NULL,
    environment text NOT NULL,
    preference_set_id uuid NOT NULL,
    settings jsonb NOT NULL CHECK (jsonb_typeof(settings) = 'array'),
    revision bigint NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, principal, scope_kind, scope_ref, environment),
    CHECK ((scope_kind = 'environment') = (environment <> '')),
    CHECK ((scope_kind = 'global') = (scope_ref = tenant_id))
);
GRANT SELECT, INSERT, UPDATE ON notification_preference TO fairway_service;

-- The default preferences of a tenant's roles: an array of {profile_ref, category, channel, enabled}.
CREATE TABLE notification_default_profiles (
    tenant_id uuid PRIMARY KEY REFERENCES tenant,
    settings jsonb NOT NULL CHECK (jsonb_typeof(settings) = 'array'),
    revision bigint NOT NULL,
    updated_at timestamptz NOT NULL,
    updated_by text NOT NULL
);
GRANT SELECT, INSERT, UPDATE ON notification_default_profiles TO fairway_service;

-- How many facts of each log were projected, and how many recipients were left out because a fact had too many. Facts from
-- before this migration produce no notifications.
CREATE TABLE notification_position (
    tenant_id uuid PRIMARY KEY,
    position bigint NOT NULL CHECK (position >= 0),
    cut_recipients bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO notification_position (tenant_id, position) SELECT tenant_id, size FROM fact_log;
GRANT SELECT, INSERT, UPDATE ON notification_position TO fairway_service;
