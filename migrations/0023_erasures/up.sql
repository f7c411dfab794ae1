-- Erasures of the texts of one actor: who requested and approved them, how far they came, and the batches that carry them
-- out. Digests, facts and the governance chain of runs stay.

-- `subject` is the erased actor. The approval's fact is `covers_before`: runs and documents with a lower identifier are
-- covered. `run_cursor` and `document_cursor` are the last scanned rows; `run_cursor` is null while the erasure waits for
-- the run `waits_for` to end, after which it scans again from `resume_cursor`. A run or a document has its identifier before
-- its commit, so both scans are repeated once after `settles_at`, when everything that was in progress has ended.
CREATE TABLE subject_erasure (
    tenant_id uuid NOT NULL,
    erasure_id uuid NOT NULL,
    subject text NOT NULL,
    status text NOT NULL CHECK (status IN ('requested', 'approved', 'refused', 'completed')),
    requested_by text NOT NULL,
    requested_at timestamptz NOT NULL,
    decided_by text,
    decided_at timestamptz,
    covers_before uuid,
    completed_at timestamptz,
    runs bigint NOT NULL DEFAULT 0 CHECK (runs >= 0),
    turns bigint NOT NULL DEFAULT 0 CHECK (turns >= 0),
    documents bigint NOT NULL DEFAULT 0 CHECK (documents >= 0),
    revision bigint NOT NULL,
    run_cursor uuid DEFAULT '00000000-0000-0000-0000-000000000000',
    resume_cursor uuid,
    waits_for uuid,
    runs_done boolean NOT NULL DEFAULT false,
    document_cursor uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    settles_at timestamptz,
    is_settled boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant_id, erasure_id),
    CHECK ((status = 'requested') = (decided_by IS NULL)),
    CHECK ((decided_by IS NULL) = (decided_at IS NULL)),
    CHECK ((status IN ('approved', 'completed')) = (covers_before IS NOT NULL)),
    CHECK ((covers_before IS NULL) = (settles_at IS NULL)),
    CHECK ((status = 'completed') = (completed_at IS NOT NULL)),
    -- Four eyes: whoever requested an erasure may only withdraw it.
    CHECK (status = 'refused' OR decided_by <> requested_by)
);
CREATE INDEX subject_erasure_by_status ON subject_erasure (tenant_id, status, erasure_id);
-- The erasures to carry out, of all tenants.
CREATE INDEX subject_erasure_approved ON subject_erasure (erasure_id) WHERE status = 'approved';
GRANT SELECT, INSERT, UPDATE ON subject_erasure TO fairway_service;

-- The erasure that took the texts of a run, and when.
ALTER TABLE execution ADD COLUMN erasure_id uuid;
ALTER TABLE execution ADD COLUMN erased_at timestamptz;

-- The chunks of a document, present or not.
CREATE INDEX knowledge_chunk_by_entry ON knowledge_chunk (tenant_id, asset_id, entry_id);

-- The numbers of present chunks, as 0009_knowledge has them for added and replaced chunks. A deleted chunk was present from
-- the revision that added it until the one that replaced it.
CREATE FUNCTION fairway_count_deleted_chunks() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM fairway_change_index_models(array_agg(tenant_id), array_agg(asset_id), array_agg(embedded_by),
        array_agg(revision), array_agg(chunks))
    FROM (
        SELECT tenant_id, asset_id, embedded_by, revision, sum(chunks)::bigint AS chunks FROM (
            SELECT tenant_id, asset_id, embedded_by, from_revision AS revision, -1 AS chunks FROM deleted
            UNION ALL
            SELECT tenant_id, asset_id, embedded_by, until_revision, 1 FROM deleted WHERE until_revision IS NOT NULL
        ) AS part
        GROUP BY tenant_id, asset_id, embedded_by, revision
    ) AS change
    HAVING count(*) > 0;
    RETURN NULL;
END
$$;
CREATE TRIGGER count_deleted AFTER DELETE ON knowledge_chunk
    REFERENCING OLD TABLE AS deleted FOR EACH STATEMENT EXECUTE FUNCTION fairway_count_deleted_chunks();

-- Erases the texts of documents, their chunks, and the words that no other chunk of the knowledge base has. Returns the
-- number of texts. Ingests into the same knowledge bases wait. Without the setting, generic plans scan the tables.
CREATE FUNCTION fairway_erase_documents(a_tenant uuid, entries uuid[]) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    erased bigint;
    asset uuid;
    lexemes text[];
BEGIN
    DELETE FROM knowledge_document_text WHERE tenant_id = a_tenant AND entry_id = ANY(entries);
    GET DIAGNOSTICS erased = ROW_COUNT;
    FOR asset IN
        SELECT DISTINCT asset_id FROM knowledge_document WHERE tenant_id = a_tenant AND entry_id = ANY(entries)
        ORDER BY asset_id
    LOOP
        PERFORM FROM knowledge_index WHERE tenant_id = a_tenant AND asset_id = asset FOR UPDATE;
        WITH deleted AS (
            DELETE FROM knowledge_chunk
            WHERE tenant_id = a_tenant AND asset_id = asset AND entry_id = ANY(entries)
            RETURNING words
        )
        SELECT array_agg(DISTINCT lexeme) INTO lexemes FROM deleted, unnest(tsvector_to_array(words)) AS lexeme;
        -- The lexeme of a word is the prefix of its knowledge base, a slash and the word: letters and digits.
        DELETE FROM knowledge_word
        WHERE tenant_id = a_tenant AND asset_id = asset AND word IN (
            SELECT split_part(lexeme, '/', 2) FROM unnest(lexemes) AS lexeme
            WHERE position('/' IN lexeme) > 0
                AND NOT EXISTS (SELECT FROM knowledge_chunk WHERE words @@ ('''' || lexeme || '''')::tsquery));
    END LOOP;
    RETURN erased;
END
$$;

-- Carries out the next batch of an approved erasure: at most `batch` runs or documents of the tenant are scanned. Returns
-- `more`, `waiting` while a run of the subject has not ended or what was in progress at the approval may, `done`, or `taken` if another process works on it.
--
-- Runs and documents have no index by their actor, because every run would pay for it. The scan reads them by their keys.
CREATE FUNCTION fairway_erase_batch(a_tenant uuid, an_erasure uuid, batch integer) RETURNS text
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    job subject_erasure;
    scanned uuid[];
    own uuid[];
    unended uuid[];
    erased bigint := 0;
    forgotten bigint := 0;
    result text := 'more';
    nowhere CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
BEGIN
    SELECT * INTO job FROM subject_erasure
    WHERE tenant_id = a_tenant AND erasure_id = an_erasure AND status = 'approved' FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 'taken';
    END IF;
    IF NOT job.runs_done THEN
        IF job.run_cursor IS NULL THEN
            IF EXISTS (
                SELECT FROM execution
                WHERE tenant_id = a_tenant AND execution_id = job.waits_for AND finished_at IS NULL) THEN
                RETURN 'waiting';
            END IF;
            job.run_cursor := job.resume_cursor;
            job.resume_cursor := NULL;
            job.waits_for := NULL;
        END IF;
        SELECT array_agg(execution_id ORDER BY execution_id),
            array_agg(execution_id) FILTER (WHERE is_own AND has_ended),
            array_agg(execution_id ORDER BY execution_id) FILTER (WHERE is_own AND NOT has_ended)
        INTO scanned, own, unended
        FROM (
            SELECT execution_id, submitter = job.subject AS is_own, finished_at IS NOT NULL AS has_ended FROM execution
            WHERE tenant_id = a_tenant AND execution_id > job.run_cursor AND execution_id < job.covers_before
            ORDER BY execution_id LIMIT batch
        ) AS run;
        DELETE FROM execution_input WHERE tenant_id = a_tenant AND execution_id = ANY(own);
        DELETE FROM execution_result WHERE tenant_id = a_tenant AND execution_id = ANY(own);
        DELETE FROM execution_progress WHERE tenant_id = a_tenant AND execution_id = ANY(own);
        DELETE FROM evidence_payload WHERE tenant_id = a_tenant AND execution_id = ANY(own);
        DELETE FROM memory_turn WHERE tenant_id = a_tenant AND execution_id = ANY(own);
        GET DIAGNOSTICS forgotten = ROW_COUNT;
        UPDATE execution SET erasure_id = an_erasure, erased_at = fairway_now()
        WHERE tenant_id = a_tenant AND execution_id = ANY(own) AND erased_at IS NULL;
        GET DIAGNOSTICS erased = ROW_COUNT;
        IF job.waits_for IS NULL AND unended IS NOT NULL THEN
            job.waits_for := unended[1];
            job.resume_cursor := job.run_cursor;
        END IF;
        job.run_cursor := scanned[cardinality(scanned)];
        IF coalesce(cardinality(scanned), 0) < batch THEN
            job.run_cursor := NULL;
            job.runs_done := job.waits_for IS NULL;
            result := CASE WHEN job.runs_done THEN 'more' ELSE 'waiting' END;
        END IF;
        UPDATE subject_erasure SET runs = runs + erased, turns = turns + forgotten, run_cursor = job.run_cursor,
            resume_cursor = job.resume_cursor, waits_for = job.waits_for, runs_done = job.runs_done,
            revision = revision + 1
        WHERE tenant_id = a_tenant AND erasure_id = an_erasure;
        RETURN result;
    END IF;
    -- A document may have thousands of chunks and words, so a batch scans one.
    batch := greatest(batch / 500, 1);
    SELECT array_agg(entry_id ORDER BY entry_id), array_agg(entry_id) FILTER (WHERE created_by = job.subject)
    INTO scanned, own
    FROM (
        SELECT entry_id, created_by FROM knowledge_document
        WHERE tenant_id = a_tenant AND entry_id > job.document_cursor AND entry_id < job.covers_before
        ORDER BY entry_id LIMIT batch
    ) AS document;
    IF own IS NOT NULL THEN
        erased := fairway_erase_documents(a_tenant, own);
    END IF;
    IF scanned IS NULL AND job.is_settled THEN
        RETURN 'done';
    ELSIF scanned IS NULL AND fairway_now() < job.settles_at THEN
        RETURN 'waiting';
    ELSIF scanned IS NULL THEN
        UPDATE subject_erasure SET is_settled = true, runs_done = false, run_cursor = nowhere, document_cursor = nowhere,
            revision = revision + 1
        WHERE tenant_id = a_tenant AND erasure_id = an_erasure;
        RETURN 'more';
    END IF;
    UPDATE subject_erasure SET documents = documents + erased, document_cursor = scanned[cardinality(scanned)],
        revision = revision + 1
    WHERE tenant_id = a_tenant AND erasure_id = an_erasure;
    RETURN 'more';
END
$$;
