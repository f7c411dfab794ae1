-- Executions: their rows, leases, queue and reviews, their inputs and results, their steps and policy decisions.
--
-- The tables with "PARTITION BY" have one partition per month of the execution's UUIDv7, so that payloads expire by
-- dropping a partition. 0008 creates the functions that make partitions.

-- No index contains a column that the end of a run changes, so that the update stays on its page (HOT).
CREATE TABLE execution (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    workload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    release_id uuid NOT NULL,
    deployment_revision bigint NOT NULL DEFAULT 0,
    environment text NOT NULL,
    lane text NOT NULL,
    submitter text NOT NULL,
    -- The service that sent the run on behalf of its submitter, if any.
    delegate text,
    -- The share link that the run came by, and the digest of the token that reads its result.
    share_link_id uuid,
    result_token bytea,
    -- The digest of the run's `evidence_snapshot`.
    snapshot bytea NOT NULL,
    input_digest bytea NOT NULL,
    -- Remains when the answer is erased.
    output_digest bytea CHECK (length(output_digest) = 32),
    status text NOT NULL CHECK (status IN
        ('queued', 'running', 'awaiting_review', 'completed', 'failed', 'denied', 'cancelled', 'unknown')),
    outcome text CHECK (outcome IN ('success', 'failure', 'denied', 'cancelled', 'timeout', 'unknown')),
    error_code text,
    error_message text,
    error_offset bigint,
    started_at timestamptz NOT NULL,
    finished_at timestamptz,
    CHECK ((outcome IS NULL) = (finished_at IS NULL))
) PARTITION BY RANGE (execution_id);
CREATE INDEX execution_by_release ON execution (tenant_id, release_id, execution_id);
CREATE INDEX execution_by_workload ON execution (tenant_id, workload_id, execution_id);
CREATE INDEX execution_by_workspace ON execution (tenant_id, workspace_id, execution_id);
-- The primary key is created last. A new partition has no statistics, so all indexes that begin with the tenant have the
-- same estimated cost, and the planner takes the index that was created last. An index by release would read all runs of
-- the release to find one run. A partition gets its indexes in the order of its parent's.
ALTER TABLE execution ADD PRIMARY KEY (tenant_id, execution_id);
GRANT SELECT, INSERT, UPDATE ON execution TO fairway_service;

-- Runs that a process works on. The token is a fencing token: only its holder writes the run's end, which deletes the row.
CREATE TABLE execution_lease (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    token uuid NOT NULL,
    lease_for interval NOT NULL,
    lapses_at timestamptz NOT NULL,
    deadline_at timestamptz NOT NULL,
    -- How often another worker resumed the run after its lease expired.
    takeovers smallint NOT NULL DEFAULT 0,
    -- The person who requested the cancellation.
    cancelled_by text,
    -- A script is never resumed, because nobody knows how far it came.
    script boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant_id, execution_id)
) WITH (fillfactor = 50);
CREATE INDEX execution_lease_by_lapse ON execution_lease (lapses_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON execution_lease TO fairway_service;

-- Runs that wait for a worker, in the order of their identifiers per tenant. The worker that deletes a row gets the lease.
CREATE TABLE execution_queue (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    PRIMARY KEY (tenant_id, execution_id)
);
-- PostgreSQL requires UPDATE to lock rows.
GRANT SELECT, INSERT, UPDATE, DELETE ON execution_queue TO fairway_service;

-- Runs whose answers wait for a reviewer. Such a run has no lease; the process that deletes the row writes the run's end.
-- A stopped workload sets `lapses_at` to -infinity.
CREATE TABLE execution_review (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    workload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    release_id uuid NOT NULL,
    asked_at timestamptz NOT NULL,
    lapses_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, execution_id)
);
CREATE INDEX execution_review_by_release ON execution_review (tenant_id, release_id, execution_id);
CREATE INDEX execution_review_by_workload ON execution_review (tenant_id, workload_id, execution_id);
CREATE INDEX execution_review_by_workspace ON execution_review (tenant_id, workspace_id, execution_id);
CREATE INDEX execution_review_by_lapse ON execution_review (lapses_at);
CREATE INDEX execution_review_by_age ON execution_review (asked_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON execution_review TO fairway_service;

-- Payloads. Erasing one also deletes its salt, so that the digests in evidence reveal nothing about the text.
CREATE TABLE execution_input (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    salt bytea NOT NULL CHECK (length(salt) = 16),
    body text NOT NULL,
    -- The parts of the sender that another process needs to resume the run and that `execution` does not have.
    sender text,
    PRIMARY KEY (tenant_id, execution_id)
) PARTITION BY RANGE (execution_id);
GRANT SELECT, INSERT, DELETE ON execution_input TO fairway_service;

CREATE TABLE execution_result (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    salt bytea NOT NULL CHECK (length(salt) = 16),
    body text NOT NULL,
    PRIMARY KEY (tenant_id, execution_id)
) PARTITION BY RANGE (execution_id);
GRANT SELECT, INSERT, DELETE ON execution_result TO fairway_service;

-- The progress of a run in order: events, and answers of providers, so that a worker that resumes the run does not call
-- them again.
CREATE TABLE execution_progress (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    position smallint NOT NULL,
    answer text,
    events text NOT NULL,
    PRIMARY KEY (tenant_id, execution_id, position)
) PARTITION BY RANGE (execution_id);
GRANT SELECT, INSERT, DELETE ON execution_progress TO fairway_service;
-- A rejected review erases the answers and keeps the events, so that their numbers stay the same.
GRANT UPDATE (answer) ON execution_progress TO fairway_service;

-- Runs that ended without success, so that lists find them without an index on `execution.status`: every end of a run
-- would update that index.
CREATE TABLE execution_exception (
    tenant_id uuid NOT NULL,
    status text NOT NULL CHECK (status IN ('failed', 'denied', 'cancelled', 'unknown')),
    execution_id uuid NOT NULL,
    workload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    release_id uuid NOT NULL,
    PRIMARY KEY (tenant_id, status, execution_id)
) PARTITION BY RANGE (execution_id);
CREATE INDEX execution_exception_by_release ON execution_exception (tenant_id, release_id, status, execution_id);
CREATE INDEX execution_exception_by_workload ON execution_exception (tenant_id, workload_id, status, execution_id);
CREATE INDEX execution_exception_by_workspace ON execution_exception (tenant_id, workspace_id, status, execution_id);
-- The resolution of an unknown run deletes its row, or replaces it by one with the status `failed`.
GRANT SELECT, INSERT, DELETE ON execution_exception TO fairway_service;

-- The first decision admitted the run; later decisions belong to its steps.
CREATE TABLE policy_decision (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    decision_id uuid NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('allow', 'deny', 'allow_with_obligations')),
    reason_code text NOT NULL,
    obligations text[] NOT NULL,
    rules text[] NOT NULL,
    evaluated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, execution_id, decision_id)
) PARTITION BY RANGE (execution_id);
SELECT fairway_make_append_only('policy_decision');

-- The obligations that a run fulfilled, and when. An obligation without a row was not fulfilled.
CREATE TABLE obligation_fulfilment (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    obligation text NOT NULL,
    fulfilled_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, execution_id, obligation)
) PARTITION BY RANGE (execution_id);
SELECT fairway_make_append_only('obligation_fulfilment');

CREATE TABLE execution_step (
    tenant_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    position smallint NOT NULL,
    step_id text NOT NULL,
    step_type text NOT NULL,
    failure text,
    -- In microseconds.
    duration_us bigint NOT NULL,
    PRIMARY KEY (tenant_id, execution_id, position)
) PARTITION BY RANGE (execution_id);
SELECT fairway_make_append_only('execution_step');
