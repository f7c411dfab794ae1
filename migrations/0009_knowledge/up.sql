-- Knowledge bases: revisions of their indexes, documents with their texts, the chunks that searches read, and the
-- revisions that approved releases use. The history of ingests and documents is append-only; texts can be erased.

-- The current revision of each index. Concurrent ingests lock its row.
CREATE TABLE knowledge_index (
    tenant_id uuid NOT NULL,
    asset_id uuid NOT NULL,
    revision bigint NOT NULL CHECK (revision > 0),
    chunks bigint NOT NULL,
    PRIMARY KEY (tenant_id, asset_id),
    FOREIGN KEY (tenant_id, asset_id) REFERENCES asset
) WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE ON knowledge_index TO fairway_service;

-- One row per revision: an ingest of documents, or a new embedding of the present documents.
CREATE TABLE knowledge_ingest (
    tenant_id uuid NOT NULL,
    asset_id uuid NOT NULL,
    revision bigint NOT NULL CHECK (revision > 0),
    ingest_id uuid NOT NULL,
    chunk_strategy text NOT NULL CHECK (chunk_strategy IN ('fixed', 'sentence', 'heading')),
    chunk_tokens integer NOT NULL CHECK (chunk_tokens > 0),
    embedding_account text,
    embedding_model text,
    -- The number of chunks of all revisions up to this one.
    chunks bigint NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    -- True if the revision embeds present documents again. It has the same texts as the revision before it.
    reembeds boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant_id, asset_id, revision),
    CONSTRAINT knowledge_ingest_id_key UNIQUE (tenant_id, ingest_id),
    CHECK ((embedding_account IS NULL) = (embedding_model IS NULL)),
    FOREIGN KEY (tenant_id, asset_id) REFERENCES asset
);
CREATE INDEX knowledge_ingest_adding ON knowledge_ingest (tenant_id, asset_id, revision) WHERE NOT reembeds;
SELECT fairway_make_append_only('knowledge_ingest');

CREATE TABLE knowledge_document (
    tenant_id uuid NOT NULL,
    entry_id uuid NOT NULL,
    asset_id uuid NOT NULL,
    document_id text NOT NULL CHECK (document_id ~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$'),
    revision bigint NOT NULL,
    digest text NOT NULL CHECK (digest ~ '^blake3:[0-9a-f]{64}$'),
    text_bytes integer NOT NULL CHECK (text_bytes > 0),
    chunk_count integer NOT NULL CHECK (chunk_count >= 0),
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    PRIMARY KEY (tenant_id, entry_id),
    CONSTRAINT knowledge_document_once UNIQUE (tenant_id, asset_id, document_id, revision),
    FOREIGN KEY (tenant_id, asset_id, revision) REFERENCES knowledge_ingest
);
-- The list of a knowledge base, newest first, and the documents of one revision.
CREATE UNIQUE INDEX knowledge_document_by_age ON knowledge_document (tenant_id, asset_id, entry_id);
CREATE INDEX knowledge_document_by_revision ON knowledge_document (tenant_id, asset_id, revision);
SELECT fairway_make_append_only('knowledge_document');

-- The erasable parts of a document.
CREATE TABLE knowledge_document_text (
    tenant_id uuid NOT NULL,
    entry_id uuid NOT NULL,
    title text,
    source_ref text,
    metadata text NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (tenant_id, entry_id),
    FOREIGN KEY (tenant_id, entry_id) REFERENCES knowledge_document
);
GRANT SELECT, INSERT, DELETE ON knowledge_document_text TO fairway_service;

-- The search index: chunks of documents, from the revision that added them until the revision that replaced them. It
-- derives from the documents and is erased with their texts.
--
-- `words` contains the words of a chunk and marks of its document's metadata, each with a prefix of its knowledge base, so
-- that a search does not read entries of other tenants. `embedding` is a vector of length one of 32-bit floating point
-- numbers, little-endian.
CREATE TABLE knowledge_chunk (
    tenant_id uuid NOT NULL,
    chunk_id uuid NOT NULL,
    asset_id uuid NOT NULL,
    entry_id uuid NOT NULL,
    document_id text NOT NULL,
    position integer NOT NULL,
    starts integer NOT NULL,
    ends integer NOT NULL CHECK (ends > starts),
    tokens integer NOT NULL,
    digest text NOT NULL,
    from_revision bigint NOT NULL,
    until_revision bigint CHECK (until_revision > from_revision),
    embedded_by text NOT NULL,
    words tsvector NOT NULL,
    body text NOT NULL,
    embedding bytea CHECK (length(embedding) % 4 = 0),
    PRIMARY KEY (tenant_id, chunk_id),
    CHECK ((embedding IS NULL) = (embedded_by = ''))
);
-- Ranking reads `words` of all candidates and `body` of few, so `words` stays in the row.
ALTER TABLE knowledge_chunk ALTER COLUMN words SET STORAGE MAIN;
-- Without fastupdate: every search would scan the list of pending entries.
CREATE INDEX knowledge_chunk_by_word ON knowledge_chunk USING gin (words) WITH (fastupdate = off);
CREATE INDEX knowledge_chunk_present ON knowledge_chunk (tenant_id, asset_id, document_id) WHERE until_revision IS NULL;
-- In the order of addition. A vector search that cannot compare all chunks compares the first ones, so that a revision
-- always gives the same result. `embedded_by` finds chunks with vectors of another model without reading their rows.
CREATE INDEX knowledge_chunk_by_age ON knowledge_chunk (tenant_id, asset_id, from_revision, chunk_id)
    INCLUDE (until_revision, embedded_by);
CREATE INDEX knowledge_chunk_present_by_age ON knowledge_chunk (tenant_id, asset_id, from_revision, chunk_id)
    INCLUDE (embedded_by) WHERE until_revision IS NULL;
GRANT SELECT, INSERT, DELETE ON knowledge_chunk TO fairway_service;
GRANT UPDATE (until_revision) ON knowledge_chunk TO fairway_service;

-- The number of chunks that contain a word, in all revisions up to this one. The weight of a word must be the same for
-- every search of one revision, independent of later ingests.
CREATE TABLE knowledge_word (
    tenant_id uuid NOT NULL,
    asset_id uuid NOT NULL,
    word text NOT NULL,
    revision bigint NOT NULL,
    chunks bigint NOT NULL,
    PRIMARY KEY (tenant_id, asset_id, word, revision)
);
GRANT SELECT, INSERT, DELETE ON knowledge_word TO fairway_service;

-- The number of present chunks with vectors of each model, one row per revision that changed it. A search reads one row
-- per model to learn which models a revision has. Triggers keep the numbers, so that every statement is counted.
CREATE TABLE knowledge_index_model (
    tenant_id uuid NOT NULL,
    asset_id uuid NOT NULL,
    embedded_by text NOT NULL,
    revision bigint NOT NULL,
    chunks bigint NOT NULL CHECK (chunks >= 0),
    PRIMARY KEY (tenant_id, asset_id, embedded_by, revision)
);
GRANT SELECT, INSERT, UPDATE ON knowledge_index_model TO fairway_service;

-- Adds changes to the numbers from their revisions on. A revision without a row starts with the number of the revision
-- before it.
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

-- The revision of each bound knowledge base at the approval of a release. A trigger writes it for every statement that
-- approves a release; a release without a knowledge base costs one read of its bindings.
CREATE TABLE knowledge_pin (
    tenant_id uuid NOT NULL,
    release_id uuid NOT NULL,
    asset_id uuid NOT NULL,
    revision bigint NOT NULL CHECK (revision >= 0),
    PRIMARY KEY (tenant_id, release_id, asset_id),
    FOREIGN KEY (tenant_id, release_id) REFERENCES release
);
SELECT fairway_make_append_only('knowledge_pin');
CREATE FUNCTION fairway_pin_knowledge() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO knowledge_pin (tenant_id, release_id, asset_id, revision)
    SELECT DISTINCT NEW.tenant_id, NEW.release_id, bound.asset_id, coalesce(known.revision, 0)
    FROM release_binding AS binding
    JOIN asset_version AS bound
        ON bound.tenant_id = binding.tenant_id AND bound.asset_version_id = binding.asset_version_id
    LEFT JOIN knowledge_index AS known ON known.tenant_id = bound.tenant_id AND known.asset_id = bound.asset_id
    WHERE binding.tenant_id = NEW.tenant_id AND binding.release_id = NEW.release_id AND binding.role = 'knowledge_base'
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
CREATE TRIGGER release_pins_its_knowledge AFTER UPDATE OF state ON release
FOR EACH ROW WHEN (NEW.state = 'approved' AND OLD.state <> 'approved') EXECUTE FUNCTION fairway_pin_knowledge();
