-- Stores months of runs, to compare a small database with a large one. Runs as the owner role with these settings:
-- `fairway_fill.runs`: the number of runs.
-- `fairway_fill.days`: the number of days up to now, at most a year.
-- `fairway_fill.name`: the prefix of the created tenants and assets.
-- Every other run belongs to the default tenant, under its active releases. The rest belong to 49 new tenants.
-- Rows are inserted in the order of the runs' times, so that tables and indexes have the layout of a year of
-- service.

SELECT setseed(0.5);
SELECT fairway_make_partitions(3, 12);

-- Creates a UUIDv7 for a timestamp.
CREATE OR REPLACE FUNCTION pg_temp.id_of(moment timestamptz) RETURNS uuid LANGUAGE sql
RETURN (substr(fairway_uuid_floor(moment)::text, 1, 14) || '7' || substr(gen_random_uuid()::text, 16))::uuid;

CREATE OR REPLACE FUNCTION pg_temp.timestamp_text(moment timestamptz) RETURNS text LANGUAGE sql
RETURN to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');

CREATE TEMP TABLE fill_tenant AS
    SELECT number, pg_temp.id_of(now() - interval '365 days') AS tenant_id,
        pg_temp.id_of(now() - interval '365 days') AS namespace_id, pg_temp.id_of(now() - interval '365 days') AS workspace_id
    FROM generate_series(1, 49) AS number;
INSERT INTO tenant (tenant_id, slug, name, notifications_enabled, advanced_notifications_enabled, public_hosts, revision,
        created_at, created_by)
    SELECT tenant_id, current_setting('fairway_fill.name') || '-' || number, 'Filled', true, false, '{}', 1, now(), 'system:fill' FROM fill_tenant;
INSERT INTO namespace (tenant_id, namespace_id, slug) SELECT tenant_id, namespace_id, 'fill' FROM fill_tenant;
INSERT INTO workspace (tenant_id, workspace_id, namespace_id, slug, name, created_at, created_by)
    SELECT tenant_id, workspace_id, namespace_id, 'fill', 'Fill', now(), 'system:fill' FROM fill_tenant;
INSERT INTO fact_log (tenant_id, size) SELECT tenant_id, 0 FROM fill_tenant;
INSERT INTO workload (tenant_id, workload_id, slug, name, description, owner_ref, status, invocation_mode, workspace_id,
        revision, created_at, created_by, updated_at)
    SELECT tenant_id, pg_temp.id_of(now() - interval '365 days'), 'fill-' || nth, 'Fill', '', 'team:fill', 'registered',
        'api', workspace_id, 1, now(), 'system:fill', now()
    FROM fill_tenant, generate_series(1, 8) AS nth;
INSERT INTO release (tenant_id, release_id, workload_id, workspace_id, environment, target_lane, state, bindings_digest,
        revision, created_at, created_by, updated_at)
    SELECT tenant_id, pg_temp.id_of(now() - interval '365 days'), workload_id, workspace_id, 'dev', 'all', 'active', 'fill',
        1, now(), 'system:fill', now()
    FROM workload JOIN fill_tenant USING (tenant_id, workspace_id);

-- The releases that execute the runs, each with its evidence snapshot.
CREATE TEMP TABLE fill_release AS
    SELECT release.tenant_id, release.workspace_id, workload_id, release_id, environment, coalesce(number, 0) AS number,
        row_number() OVER (PARTITION BY release.tenant_id ORDER BY release_id) - 1 AS release_index,
        count(*) OVER (PARTITION BY release.tenant_id) AS release_count,
        json_build_object(
            'approvals', (SELECT coalesce(json_agg(json_build_object('approval_id', approval_id,
                    'approved_at', pg_temp.timestamp_text(approved_at), 'approved_by', approved_by)), '[]')
                FROM approval WHERE approval.tenant_id = release.tenant_id AND approval.release_id = release.release_id
                    AND outcome = 'approved'),
            'bindings', (SELECT coalesce(json_agg(json_build_object('asset_slug', asset.slug,
                    'asset_version_id', asset_version_id, 'role', role) ORDER BY role), '[]')
                FROM release_binding AS binding JOIN asset_version USING (tenant_id, asset_version_id)
                    JOIN asset USING (tenant_id, asset_id)
                WHERE binding.tenant_id = release.tenant_id AND binding.release_id = release.release_id),
            'release', json_build_object('environment', environment, 'lifecycle_state', 'active',
                'release_id', release_id),
            'workload', json_build_object('owner_ref', owner_ref, 'slug', slug, 'workload_id', workload_id)
        )::text AS chain
    FROM release JOIN workload USING (tenant_id, workload_id) LEFT JOIN fill_tenant ON fill_tenant.tenant_id = release.tenant_id
    WHERE state = 'active' AND (number IS NOT NULL OR release.tenant_id = '00000000-0000-7000-8000-000000000001');
INSERT INTO evidence_snapshot (tenant_id, digest, body)
    SELECT tenant_id, sha256(convert_to(chain, 'UTF8')), chain FROM fill_release ON CONFLICT DO NOTHING;

-- A few releases of each tenant execute most of its runs.
CREATE TEMP TABLE fill_run AS
    SELECT nth, release.tenant_id, workspace_id, workload_id, release_id, environment,
        sha256(convert_to(chain, 'UTF8')) AS snapshot, pg_temp.id_of(started_at) AS execution_id, started_at,
        started_at + interval '1 ms' * (200 + nth % 800) AS finished_at, status,
        CASE status WHEN 'completed' THEN 'success' WHEN 'failed' THEN 'failure' ELSE status END AS outcome,
        sha256(int8send(nth)) AS input_digest,
        CASE WHEN status = 'completed' THEN sha256(int8send(-nth)) END AS output_digest,
        CASE WHEN status = 'failed' THEN 'provider_unavailable' END AS error_code,
        CASE WHEN status = 'denied' THEN 'deny' ELSE 'allow' END AS decision,
        CASE WHEN status = 'denied' THEN 'not_on_sundays' ELSE 'within_bounds' END AS reason_code,
        CASE WHEN status = 'denied' THEN 0 WHEN nth % 10 = 0 THEN 1 ELSE 3 END AS steps
    FROM (
        SELECT nth, now() - interval '1 day' * days * (runs - nth + 1) / runs AS started_at,
            CASE WHEN nth % 2 = 0 THEN 0 ELSE 1 + floor(random() * 49)::integer END AS number, random() ^ 3 AS skew,
            CASE WHEN draw < 0.025 THEN 'failed' WHEN draw < 0.035 THEN 'denied' WHEN draw < 0.0395 THEN 'cancelled'
                WHEN draw < 0.04 THEN 'unknown' ELSE 'completed' END AS status
        FROM (SELECT nth, runs, days, random() AS draw
            FROM (SELECT current_setting('fairway_fill.runs')::bigint AS runs,
                current_setting('fairway_fill.days')::integer AS days) AS settings, generate_series(1, runs) AS nth
        ) AS drawn_status
    ) AS drawn
    JOIN fill_release AS release ON release.number = drawn.number AND release_index = floor(skew * release_count)
    ORDER BY nth;
ANALYZE fill_run;

INSERT INTO execution (tenant_id, execution_id, workload_id, workspace_id, release_id, environment, lane, submitter,
        snapshot, input_digest, status, outcome, error_code, error_message, started_at, finished_at, output_digest,
        has_stored_usage, total_tokens_in, total_tokens_out)
    SELECT tenant_id, execution_id, workload_id, workspace_id, release_id, environment, 'standard', 'user:fill', snapshot,
        input_digest, status, outcome, error_code, CASE WHEN error_code IS NOT NULL THEN 'the provider is away' END,
        started_at, finished_at, output_digest,
        true, CASE WHEN steps > 0 THEN 210 END, CASE WHEN steps > 0 THEN 4 END
    FROM fill_run ORDER BY nth;
INSERT INTO execution_exception (tenant_id, status, execution_id, workload_id, workspace_id, release_id)
    SELECT tenant_id, status, execution_id, workload_id, workspace_id, release_id FROM fill_run
    WHERE status <> 'completed' ORDER BY nth;
INSERT INTO policy_decision (tenant_id, execution_id, decision_id, outcome, reason_code, obligations, rules, evaluated_at)
    SELECT tenant_id, execution_id, pg_temp.id_of(started_at), decision, reason_code, '{}', ARRAY['short-tickets-in-dev'],
        started_at
    FROM fill_run ORDER BY nth;
INSERT INTO execution_step (tenant_id, execution_id, position, step_id, step_type, failure, duration_us)
    SELECT tenant_id, execution_id, position, step_id, step_type,
        CASE WHEN position = least(2, steps) AND status <> 'completed' THEN coalesce(error_code, status) END,
        100 * position + nth % 900
    FROM fill_run, (VALUES (1, 'check', 'task'), (2, 'sort', 'llm_call'), (3, 'done', 'return'))
        AS step (position, step_id, step_type)
    WHERE position <= steps ORDER BY nth, position;
INSERT INTO evidence_artifact (tenant_id, execution_id, artifact_id, artifact_kind, storage_ref, body, created_at)
    SELECT tenant_id, execution_id, artifact_id, 'provider_call',
        format('evidence/%s/%s/provider_call.json', execution_id, artifact_id),
        '{"account_slot":"local","latency_us":12000,"model":"local-1","tokens_in":210,"tokens_out":4,'
            '"provider":"local","residency":"eu","route_id":"primary","step_id":"sort"}', finished_at
    FROM (SELECT *, pg_temp.id_of(finished_at) AS artifact_id FROM fill_run WHERE steps > 0 ORDER BY nth) AS run;
INSERT INTO context_lineage (tenant_id, execution_id, lineage_id, origin, influence_role, action_class, ref, digest,
        size_bytes, untrusted_reason, created_at)
    SELECT tenant_id, execution_id, pg_temp.id_of(started_at), origin, influence_role, action_class, ref,
        sha256(int8send(nth * 4 + part)), 200 + nth % 4000, reason, started_at
    FROM fill_run, (VALUES (0, 'prompt_template', 'instruction', 'generate', 'bench-prompt-template@v1', NULL),
            (1, 'user_input', 'input', 'generate', 'inputs', 'user_supplied'),
            (2, 'tool_result', 'evidence', 'read', 'sort', 'model_output'))
        AS source (part, origin, influence_role, action_class, ref, reason)
    WHERE steps > 0 AND (part < 2 OR nth % 3 = 0) ORDER BY nth, part;

-- Inputs and results are kept for the current month and the previous one.
INSERT INTO execution_input (tenant_id, execution_id, salt, body)
    SELECT tenant_id, execution_id, substr(input_digest, 1, 16),
        '{"text":"Ticket ' || nth || ': I was charged twice for one invoice and want a refund."}'
    FROM fill_run
    WHERE started_at >= (date_trunc('month', now() AT TIME ZONE 'UTC') - interval '1 month') AT TIME ZONE 'UTC'
    ORDER BY nth;
INSERT INTO execution_result (tenant_id, execution_id, salt, body)
    SELECT tenant_id, execution_id, substr(input_digest, 17, 16), '{"metadata":{},"output":{"class":"billing"}}'
    FROM fill_run
    WHERE status = 'completed'
        AND started_at >= (date_trunc('month', now() AT TIME ZONE 'UTC') - interval '1 month') AT TIME ZONE 'UTC'
    ORDER BY nth;

-- One version for ten runs, and forty versions for each asset.
CREATE TEMP TABLE fill_asset AS
    SELECT nth, pg_temp.id_of(now() - interval '1 s' * nth) AS asset_id
    FROM generate_series(1, greatest(current_setting('fairway_fill.runs')::bigint / 400, 1)) AS nth;
INSERT INTO asset (tenant_id, asset_id, slug, asset_kind, owner_ref, lifecycle_state, ownership_tier, workspace_id,
        namespace_id, last_label, last_ordinal, revision, created_at, created_by)
    SELECT '00000000-0000-7000-8000-000000000001', asset_id, current_setting('fairway_fill.name') || '-' || nth, 'prompt_template', 'team:fill', 'active',
        'workspace', '00000000-0000-7000-8000-000000000003', '00000000-0000-7000-8000-000000000002', 40, 40, 41, now(),
        'system:fill'
    FROM fill_asset;
INSERT INTO asset_version (tenant_id, asset_version_id, asset_id, version_label, content, artifact_ref, checksum,
        created_at, created_by, ordinal)
    SELECT '00000000-0000-7000-8000-000000000001', asset_version_id, asset_id, 'v' || ordinal, content,
        format('assets/%s/%s/content.json', asset_id, asset_version_id),
        'blake3:' || encode(sha256(convert_to(content, 'UTF8')), 'hex'), now(), 'system:fill', ordinal
    FROM (
        SELECT asset_id, ordinal, pg_temp.id_of(now()) AS asset_version_id, format(
            '{"system_prompt":"Edition %s of %s. %s"}', ordinal, nth,
            repeat('Keep to what the ticket says and never add anything that it does not say. ', 10)) AS content
        FROM fill_asset, generate_series(1, 40) AS ordinal ORDER BY ordinal, nth
    ) AS version;

-- The log comes last, because sequencers wait for its lock. The entries equal those of the service, and are appended
-- to the current end of each log.
CREATE TEMP TABLE fill_fact AS
    SELECT nth, tenant_id, workspace_id, fact_id, kind, convert_to(format(
            '{"actor":"user:fill",%s"detail":%s,"fact_id":"%s","kind":"%s","occurred_at":"%s","request_id":"%s",'
            '"subject":{"id":"%s","kind":"execution"},"tenant_id":"%s","workspace_id":"%s"}',
            categories, detail, fact_id, kind, pg_temp.timestamp_text(finished_at), pg_temp.id_of(started_at), execution_id,
            tenant_id, workspace_id), 'UTF8') AS body
    FROM (
        SELECT *, pg_temp.id_of(finished_at) AS fact_id,
            CASE WHEN status = 'denied' THEN 'execution.denied' ELSE 'execution.ended' END AS kind,
            CASE status WHEN 'denied' THEN '"categories":["executions","compliance_findings"],'
                WHEN 'failed' THEN '"categories":["executions"],' ELSE '' END AS categories,
            CASE WHEN status = 'denied' THEN format(
                '{"environment":"%s","input_digest":"blake3:%s","outcome":"denied","reason_code":"%s","release_id":"%s",'
                '"workload_id":"%s"}',
                environment, encode(input_digest, 'hex'), reason_code, release_id, workload_id)
            ELSE format(
                '{"environment":"%s","error_code":%s,"input_digest":"blake3:%s","outcome":"%s","output_digest":%s,'
                '"release_id":"%s","workload_id":"%s"}',
                environment, coalesce('"' || error_code || '"', 'null'), encode(input_digest, 'hex'), outcome,
                coalesce('"blake3:' || encode(output_digest, 'hex') || '"', 'null'), release_id, workload_id)
            END AS detail
        FROM fill_run ORDER BY nth
    ) AS run;
INSERT INTO fact (tenant_id, fact_id, workspace_id, kind, body, leaf_hash)
    SELECT tenant_id, fact_id, workspace_id, kind, body, sha256('\x00'::bytea || body) FROM fill_fact ORDER BY nth;
SELECT FROM fact_log ORDER BY tenant_id FOR UPDATE;
INSERT INTO fact_order (tenant_id, index, fact_id, workspace_id, leaf_hash)
    SELECT tenant_id, size + row_number() OVER (PARTITION BY tenant_id ORDER BY nth) - 1, fact_id, workspace_id,
        sha256('\x00'::bytea || body)
    FROM fill_fact JOIN fact_log USING (tenant_id);
UPDATE fact_log SET size = size + appended.entries
    FROM (SELECT tenant_id, count(*) AS entries FROM fill_fact GROUP BY tenant_id) AS appended
    WHERE appended.tenant_id = fact_log.tenant_id;
DROP TABLE fill_fact, fill_run, fill_release, fill_tenant, fill_asset;
