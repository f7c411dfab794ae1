-- Documents of knowledge bases. What was added, when and by whom is history; what it says lies beside it and can be erased.

-- How often documents were added to a knowledge base, and how many pieces they had. Its row is what two who add at once
-- decide by.
CREATE TABLE knowledge_index (
    tenant_id uuid NOT NULL,
    asset_id uuid NOT NULL,
    revision bigint NOT NULL CHECK (revision > 0),
    chunks bigint NOT NULL,
    PRIMARY KEY (tenant_id, asset_id),
    FOREIGN KEY (tenant_id, asset_id) REFERENCES asset
) WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE ON knowledge_index TO fairway_service;

-- Documents that were added at once: each time is a revision. `chunks` counts the pieces of all revisions up to this one.
CREATE TABLE knowledge_ingest (
    tenant_id uuid NOT NULL,
    asset_id uuid NOT NULL,
    revision bigint NOT NULL CHECK (revision > 0),
    ingest_id uuid NOT NULL,
    chunk_strategy text NOT NULL CHECK (chunk_strategy IN ('fixed', 'sentence', 'heading')),
    chunk_tokens integer NOT NULL CHECK (chunk_tokens > 0),
    embedding_account text,
    embedding_model text,
    chunks bigint NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    PRIMARY KEY (tenant_id, asset_id, revision),
    CONSTRAINT knowledge_ingest_id_key UNIQUE (tenant_id, ingest_id),
    CHECK ((embedding_account IS NULL) = (embedding_model IS NULL)),
    FOREIGN KEY (tenant_id, asset_id) REFERENCES asset
);
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
-- A knowledge base's list, newest first, and what came with one revision.
CREATE UNIQUE INDEX knowledge_document_by_age ON knowledge_document (tenant_id, asset_id, entry_id);
CREATE INDEX knowledge_document_by_revision ON knowledge_document (tenant_id, asset_id, revision);
SELECT fairway_make_append_only('knowledge_document');

-- What people wrote of and in a document.
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

-- The index: pieces of documents, from the revision that they came with until the one that others took their place with.
-- It is made of the documents and could be made again; it goes with their texts.
--
-- `words` holds the words of a piece and marks of its document's metadata, each behind a prefix of its knowledge base, so
-- that the words of one tenant are not looked for among those of another. `embedding` holds 32-bit floating point numbers,
-- smallest byte first, of a vector of length one.
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
-- What candidates are ranked by stays in their rows; what they say is fetched for few of them.
ALTER TABLE knowledge_chunk ALTER COLUMN words SET STORAGE MAIN;
-- Without a list of pending entries: whoever searches would read through it.
CREATE INDEX knowledge_chunk_by_word ON knowledge_chunk USING gin (words) WITH (fastupdate = off);
CREATE INDEX knowledge_chunk_present ON knowledge_chunk (tenant_id, asset_id, document_id) WHERE until_revision IS NULL;
CREATE INDEX knowledge_chunk_by_model ON knowledge_chunk (tenant_id, asset_id, embedded_by)
    INCLUDE (from_revision, until_revision);
GRANT SELECT, INSERT, DELETE ON knowledge_chunk TO fairway_service;
GRANT UPDATE (until_revision) ON knowledge_chunk TO fairway_service;

-- How many pieces hold a word, of all revisions up to this one: how rare it is decides how much it tells, and that must be
-- the same for everybody who searches one revision, whatever is added later.
CREATE TABLE knowledge_word (
    tenant_id uuid NOT NULL,
    asset_id uuid NOT NULL,
    word text NOT NULL,
    revision bigint NOT NULL,
    chunks bigint NOT NULL,
    PRIMARY KEY (tenant_id, asset_id, word, revision)
);
GRANT SELECT, INSERT, DELETE ON knowledge_word TO fairway_service;
