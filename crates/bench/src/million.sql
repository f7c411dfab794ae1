-- Stores many chunks in a knowledge base that has one document from the API. Runs as the owner with these settings:
-- `fairway_fill.base`, the asset; `fairway_fill.prefix`, the prefix of its indexed words; `fairway_fill.pieces`, the
-- number of chunks.
--
-- A chunk has about forty words: three sentences out of 2,000, with a skewed word frequency as in a language (the
-- most frequent words occur in nearly every chunk), and words with known frequencies: `often` in 10 % of the chunks,
-- `sometimes0` to `sometimes99` in 1 % each, and `rarely0` and up in ten chunks each.

SELECT setseed(0.5);

CREATE TEMP TABLE fill_sentence AS
    SELECT number, string_agg('word' || rank, ' ' ORDER BY word_number) AS body,
        string_agg(format('''%s/word%s'':%s', current_setting('fairway_fill.prefix'), rank, word_number), ' ')::tsvector AS words
    FROM (
        SELECT number, word_number, floor(random() ^ 3 * 8000)::integer AS rank
        FROM generate_series(0, 1999) AS number, generate_series(1, 12) AS word_number
    ) AS drawn
    GROUP BY number;
ALTER TABLE fill_sentence ADD PRIMARY KEY (number);
ANALYZE fill_sentence;

CREATE TEMP TABLE fill_base AS
    SELECT tenant_id, asset_id, revision + 1 AS revision, chunks FROM knowledge_index
    WHERE asset_id = current_setting('fairway_fill.base')::uuid;

UPDATE knowledge_index SET revision = base.revision, chunks = base.chunks + current_setting('fairway_fill.pieces')::bigint
    FROM fill_base AS base
    WHERE knowledge_index.tenant_id = base.tenant_id AND knowledge_index.asset_id = base.asset_id;
INSERT INTO knowledge_ingest (tenant_id, asset_id, revision, ingest_id, chunk_strategy, chunk_tokens, chunks, created_at,
        created_by)
    SELECT tenant_id, asset_id, revision, gen_random_uuid(), 'sentence', 512,
        chunks + current_setting('fairway_fill.pieces')::bigint, now(), 'system:fill'
    FROM fill_base;

-- Inserts documents of 100 chunks each.
CREATE TEMP TABLE fill_document AS
    SELECT number, gen_random_uuid() AS entry_id, 'filled-' || number AS document_id
    FROM generate_series(0, (current_setting('fairway_fill.pieces')::bigint - 1) / 100) AS number;
INSERT INTO knowledge_document (tenant_id, entry_id, asset_id, document_id, revision, digest, text_bytes, chunk_count,
        created_at, created_by)
    SELECT tenant_id, entry_id, asset_id, document_id, revision,
        'blake3:' || encode(sha256(convert_to(document_id, 'UTF8')), 'hex'), 30000, 100, now(), 'system:fill'
    FROM fill_document, fill_base;
INSERT INTO knowledge_document_text (tenant_id, entry_id, metadata, body)
    SELECT tenant_id, entry_id, '{}', 'Its pieces say it.' FROM fill_document, fill_base;

-- The index is dropped here and created again below, because updating it row by row takes an hour.
CREATE TEMP TABLE fill_index AS
    SELECT pg_get_indexdef('knowledge_chunk_by_word'::regclass) AS definition;
DROP INDEX knowledge_chunk_by_word;
-- The counts are updated in bulk below. The trigger that normally updates them would copy every chunk.
ALTER TABLE knowledge_chunk DISABLE TRIGGER count_added;
INSERT INTO knowledge_chunk (tenant_id, chunk_id, asset_id, entry_id, document_id, position, starts, ends, tokens, digest,
        from_revision, embedded_by, words, body)
    SELECT tenant_id, ('00000000-0000-7000-8000-' || lpad(to_hex(nth), 12, '0'))::uuid, asset_id, entry_id, document_id,
        nth % 100, nth % 100 * 300, nth % 100 * 300 + 300, 60, 'blake3:' || encode(sha256(int8send(nth)), 'hex'), revision, '',
        first.words || second.words || third.words || marker.words,
        concat_ws('. ', first.body, second.body, third.body, marker.body)
    FROM (
        SELECT nth, floor(random() * 2000)::integer AS first_number, floor(random() * 2000)::integer AS second_number,
            floor(random() * 2000)::integer AS third_number, random() < 0.1 AS often, floor(random() * 100)::integer AS sometimes,
            nth % greatest(1, current_setting('fairway_fill.pieces')::bigint / 10) AS rarely
        FROM generate_series(0, current_setting('fairway_fill.pieces')::bigint - 1) AS nth
    ) AS drawn
    JOIN fill_sentence AS first ON first.number = first_number
    JOIN fill_sentence AS second ON second.number = second_number
    JOIN fill_sentence AS third ON third.number = third_number
    JOIN fill_document AS document ON document.number = nth / 100
    CROSS JOIN fill_base
    CROSS JOIN LATERAL (
        SELECT concat_ws(' ', CASE WHEN often THEN 'often' END, 'sometimes' || sometimes, 'rarely' || rarely) AS body,
            concat_ws(' ', CASE WHEN often THEN format('''%s/often'':1', current_setting('fairway_fill.prefix')) END,
                format('''%s/sometimes%s'':2', current_setting('fairway_fill.prefix'), sometimes),
                format('''%s/rarely%s'':3', current_setting('fairway_fill.prefix'), rarely))::tsvector AS words
    ) AS marker;
ALTER TABLE knowledge_chunk ENABLE TRIGGER count_added;
SELECT fairway_change_index_models(ARRAY[tenant_id], ARRAY[asset_id], ARRAY[''], ARRAY[revision],
        ARRAY[current_setting('fairway_fill.pieces')::bigint])
    FROM fill_base;
DO $$ BEGIN EXECUTE (SELECT definition FROM fill_index); END $$;

-- Counts the chunks for each word, as an ingest does.
INSERT INTO knowledge_word (tenant_id, asset_id, word, revision, chunks)
    SELECT base.tenant_id, base.asset_id, counted.word, base.revision, counted.chunks + coalesce((
        SELECT before.chunks FROM knowledge_word AS before
        WHERE before.tenant_id = base.tenant_id AND before.asset_id = base.asset_id AND before.word = counted.word
        ORDER BY before.revision DESC LIMIT 1), 0)
    FROM fill_base AS base CROSS JOIN (
        SELECT split_part(word, '/', 2) AS word, ndoc AS chunks
        FROM ts_stat(format('SELECT words FROM knowledge_chunk WHERE asset_id = %L AND from_revision > 1',
            current_setting('fairway_fill.base')))
    ) AS counted;
