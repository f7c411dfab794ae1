-- The outbox: deliveries of notifications outside the inbox, digests, profiles of persons, and announcements.

-- Incremented when a setting goes off. A delivery holds the generations under which it was decided; a delivery of an older
-- generation is never sent, even if the setting is on again.
ALTER TABLE tenant ADD COLUMN notification_generation bigint NOT NULL DEFAULT 0;
ALTER TABLE tenant ADD COLUMN advanced_notification_generation bigint NOT NULL DEFAULT 0;
-- Likewise, when the destination goes off.
ALTER TABLE notification_destination ADD COLUMN generation bigint NOT NULL DEFAULT 0;

CREATE TABLE notification_delivery (
    tenant_id uuid NOT NULL,
    -- Follows from the event and the receiver, in the form of a UUIDv7 with the time of the event.
    delivery_id uuid NOT NULL,
    -- Deliveries of a lane have one receiver: the destination, the tenant for mailboxes, or the chat of a person.
    lane uuid NOT NULL,
    channel text NOT NULL CHECK (channel IN ('email', 'chat_a', 'chat_b', 'chat_c', 'paging', 'webhook')),
    destination_id uuid,
    recipient text,
    status text NOT NULL CHECK (status IN ('pending', 'claimed', 'sent', 'failed', 'suppressed', 'cancelled')),
    attempts integer NOT NULL DEFAULT 0,
    -- The next attempt; of a claimed delivery the end of its lease.
    due_at timestamptz NOT NULL,
    claim_id uuid,
    -- From a closed list, so that nothing that a receiver answers is stored.
    last_error text,
    last_http_status smallint,
    notification_generation bigint NOT NULL,
    -- Null unless the delivery requires the advanced tier.
    advanced_notification_generation bigint,
    destination_generation bigint,
    -- Null unless the delivery is a digest, whose lines are in `notification_digest_line`.
    digest text CHECK (digest IN ('burst', 'hourly', 'daily')),
    category text NOT NULL,
    severity text NOT NULL CHECK (severity IN ('info', 'warning', 'critical')),
    title text NOT NULL,
    body text NOT NULL,
    event_kind text NOT NULL,
    event_id uuid NOT NULL,
    workspace_id uuid,
    workload_id uuid,
    environment text,
    created_at timestamptz NOT NULL,
    queued_at timestamptz NOT NULL DEFAULT fairway_now(),
    sent_at timestamptz,
    revision bigint NOT NULL,
    CHECK ((destination_id IS NULL) <> (recipient IS NULL)),
    CHECK ((status = 'claimed') = (claim_id IS NOT NULL)),
    CHECK ((status = 'sent') = (sent_at IS NOT NULL))
) PARTITION BY RANGE (delivery_id);
CREATE INDEX notification_delivery_due ON notification_delivery (lane, due_at) WHERE status IN ('pending', 'claimed');
CREATE INDEX notification_delivery_by_workspace ON notification_delivery (tenant_id, workspace_id, delivery_id);
CREATE INDEX notification_delivery_by_workload ON notification_delivery (tenant_id, workload_id, delivery_id);
CREATE INDEX notification_delivery_by_status ON notification_delivery (tenant_id, status, delivery_id);
CREATE INDEX notification_delivery_by_destination ON notification_delivery (tenant_id, destination_id, delivery_id);
-- What a person got one by one within the last minutes.
CREATE INDEX notification_delivery_by_recipient ON notification_delivery (tenant_id, recipient, queued_at)
    WHERE recipient IS NOT NULL AND digest IS NULL;
-- The primary key is created last, for the planner (see 0007).
ALTER TABLE notification_delivery ADD PRIMARY KEY (tenant_id, delivery_id);
GRANT SELECT, INSERT, UPDATE ON notification_delivery TO fairway_service;

-- The notifications of a digest.
CREATE TABLE notification_digest_line (
    tenant_id uuid NOT NULL,
    delivery_id uuid NOT NULL,
    -- Facts that collapse into one event share a line.
    event_id uuid NOT NULL,
    severity text NOT NULL CHECK (severity IN ('info', 'warning', 'critical')),
    title text NOT NULL,
    body text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, delivery_id, event_id)
) PARTITION BY RANGE (delivery_id);
GRANT SELECT, INSERT ON notification_digest_line TO fairway_service;

-- All tables with monthly partitions.
CREATE OR REPLACE FUNCTION fairway_partitioned_families() RETURNS text[]
LANGUAGE sql IMMUTABLE
RETURN ARRAY['execution', 'execution_input', 'execution_result', 'execution_progress', 'execution_exception', 'policy_decision',
    'obligation_fulfilment', 'execution_step', 'evidence_artifact', 'evidence_payload', 'context_lineage', 'notification',
    'suppressed_decision', 'notification_delivery', 'notification_digest_line'];

-- How a person is reached: time zone and frequency of digests, and the chat of its own.
CREATE TABLE notification_profile (
    tenant_id uuid NOT NULL REFERENCES tenant,
    principal text NOT NULL,
    profile_id uuid NOT NULL,
    time_zone text NOT NULL,
    -- An object of category and frequency.
    digest jsonb NOT NULL CHECK (jsonb_typeof(digest) = 'object'),
    chat_secret_ref text,
    revision bigint NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, principal)
);
GRANT SELECT, INSERT, UPDATE ON notification_profile TO fairway_service;

-- The texts of announcements, which facts do not hold.
CREATE TABLE announcement (
    tenant_id uuid NOT NULL REFERENCES tenant,
    announcement_id uuid NOT NULL,
    title text NOT NULL,
    body text NOT NULL,
    -- Empty: everybody.
    audience_roles text[] NOT NULL,
    audience_workspaces uuid[] NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    PRIMARY KEY (tenant_id, announcement_id)
);
GRANT SELECT, INSERT ON announcement TO fairway_service;

-- The people who presented a group at their last sign-in are the recipients of what concerns the group.
CREATE INDEX identity_by_group ON identity USING gin (groups);
