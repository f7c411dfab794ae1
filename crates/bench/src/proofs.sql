-- Appends facts to the largest log. One transaction locks the log, so that no sequencer extends it at the same time.
-- The identifiers ascend, as those of real facts do.
CREATE TEMP TABLE largest_log ON COMMIT DROP AS
    SELECT tenant_id, size FROM fact_log ORDER BY size DESC LIMIT 1 FOR UPDATE;
INSERT INTO fact (tenant_id, fact_id, kind, body, leaf_hash)
    SELECT tenant_id, fact_id, 'bench', body, sha256('\x00'::bytea || body)
    FROM largest_log, generate_series(1, FACTS) AS number,
        LATERAL (SELECT ('019a0000-0000-7000-8000-' || lpad(to_hex(number), 12, '0'))::uuid AS fact_id,
            convert_to('{"kind":"bench","number":' || number || '}', 'UTF8') AS body) AS new_fact;
INSERT INTO fact_order (tenant_id, index, fact_id, leaf_hash)
    SELECT tenant_id, size + number - 1, fact_id, leaf_hash
    FROM largest_log, generate_series(1, FACTS) AS number,
        LATERAL (SELECT ('019a0000-0000-7000-8000-' || lpad(to_hex(number), 12, '0'))::uuid AS fact_id,
            sha256('\x00'::bytea || convert_to('{"kind":"bench","number":' || number || '}', 'UTF8')) AS leaf_hash) AS new_fact;
UPDATE fact_log SET size = fact_log.size + FACTS FROM largest_log WHERE fact_log.tenant_id = largest_log.tenant_id;
