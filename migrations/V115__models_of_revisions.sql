-- How many pieces of a knowledge base have vectors of each model, from each revision on at which that number changed. Which
-- models a revision has is read of one row for each model, however many pieces were replaced.
CREATE TABLE knowledge_index_model (
    tenant_id uuid NOT NULL,
    asset_id uuid NOT NULL,
    embedded_by text NOT NULL,
    revision bigint NOT NULL,
    chunks bigint NOT NULL CHECK (chunks >= 0),
    PRIMARY KEY (tenant_id, asset_id, embedded_by, revision)
);
GRANT SELECT, INSERT, UPDATE ON knowledge_index_model TO fairway_service;

-- Changes those numbers from some revisions on. A revision without a row begins with the number of the one before it.
CREATE FUNCTION fairway_change_index_models(
    tenants uuid[], assets uuid[], models text[], revisions bigint[], changes bigint[]
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO knowledge_index_model (tenant_id, asset_id, embedded_by, revision, chunks)
    SELECT change.tenant_id, change.asset_id, change.embedded_by, change.revision, coalesce((
            SELECT earlier.chunks FROM knowledge_index_model AS earlier
            WHERE earlier.tenant_id = change.tenant_id AND earlier.asset_id = change.asset_id
                AND earlier.embedded_by = change.embedded_by AND earlier.revision < change.revision
            ORDER BY earlier.revision DESC LIMIT 1), 0)
    FROM unnest(tenants, assets, models, revisions) AS change (tenant_id, asset_id, embedded_by, revision)
    ON CONFLICT DO NOTHING;
    UPDATE knowledge_index_model AS known SET chunks = known.chunks + (
        SELECT sum(change.chunks)
        FROM unnest(tenants, assets, models, revisions, changes)
            AS change (tenant_id, asset_id, embedded_by, revision, chunks)
        WHERE change.tenant_id = known.tenant_id AND change.asset_id = known.asset_id
            AND change.embedded_by = known.embedded_by AND change.revision <= known.revision)
    FROM (
        SELECT tenant_id, asset_id, embedded_by, min(revision) AS revision
        FROM unnest(tenants, assets, models, revisions) AS change (tenant_id, asset_id, embedded_by, revision)
        GROUP BY tenant_id, asset_id, embedded_by
    ) AS touched
    WHERE known.tenant_id = touched.tenant_id AND known.asset_id = touched.asset_id
        AND known.embedded_by = touched.embedded_by AND known.revision >= touched.revision;
END
$$;

-- By triggers, so that ingests of servers of the version before are counted too.
CREATE FUNCTION fairway_count_added_chunks() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM fairway_change_index_models(array_agg(tenant_id), array_agg(asset_id), array_agg(embedded_by),
        array_agg(from_revision), array_agg(chunks))
    FROM (
        SELECT tenant_id, asset_id, embedded_by, from_revision, count(*) AS chunks FROM added
        GROUP BY tenant_id, asset_id, embedded_by, from_revision
    ) AS change
    HAVING count(*) > 0;
    RETURN NULL;
END
$$;
CREATE FUNCTION fairway_count_replaced_chunks() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM fairway_change_index_models(array_agg(tenant_id), array_agg(asset_id), array_agg(embedded_by),
        array_agg(until_revision), array_agg(chunks))
    FROM (
        SELECT now.tenant_id, now.asset_id, now.embedded_by, now.until_revision, -count(*) AS chunks
        FROM was JOIN now ON now.tenant_id = was.tenant_id AND now.chunk_id = was.chunk_id
        WHERE was.until_revision IS NULL AND now.until_revision IS NOT NULL
        GROUP BY now.tenant_id, now.asset_id, now.embedded_by, now.until_revision
    ) AS change
    HAVING count(*) > 0;
    RETURN NULL;
END
$$;
CREATE TRIGGER count_added AFTER INSERT ON knowledge_chunk
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION fairway_count_added_chunks();
CREATE TRIGGER count_replaced AFTER UPDATE ON knowledge_chunk
    REFERENCING OLD TABLE AS was NEW TABLE AS now FOR EACH STATEMENT EXECUTE FUNCTION fairway_count_replaced_chunks();

-- The pieces that are there already. Creating the triggers keeps ingests out until this is committed; searches go on.
INSERT INTO knowledge_index_model (tenant_id, asset_id, embedded_by, revision, chunks)
SELECT tenant_id, asset_id, embedded_by, revision,
    sum(sum(change)) OVER (PARTITION BY tenant_id, asset_id, embedded_by ORDER BY revision)
FROM (
    SELECT tenant_id, asset_id, embedded_by, from_revision AS revision, 1 AS change FROM knowledge_chunk
    UNION ALL
    SELECT tenant_id, asset_id, embedded_by, until_revision, -1 FROM knowledge_chunk WHERE until_revision IS NOT NULL
) AS change
GROUP BY tenant_id, asset_id, embedded_by, revision;

-- Present pieces in the order in which they were added: those of another model are found among them, without the replaced.
CREATE INDEX knowledge_chunk_present_by_age ON knowledge_chunk (tenant_id, asset_id, from_revision, chunk_id)
    INCLUDE (embedded_by) WHERE until_revision IS NULL;
-- Nothing is found by it any more.
DROP INDEX knowledge_chunk_by_model;
