-- If the extension `vector` is available, adds a generated column with the embedding of each chunk as a vector. The
-- database computes it from the stored bytes, so that the two cannot disagree. Adding the column rewrites the table
-- once. Without the extension, this statement does nothing.
DO $do$
BEGIN
    IF EXISTS (SELECT FROM pg_attribute
        WHERE attrelid = 'knowledge_chunk'::regclass AND attname = 'meaning' AND NOT attisdropped) THEN
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'vector') THEN
        IF NOT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector') THEN
            RETURN;
        END IF;
        BEGIN
            CREATE EXTENSION vector;
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE NOTICE 'the extension vector is available, but this role lacks the privilege to create it';
            RETURN;
        END;
    END IF;
    -- An embedding is an array of little-endian 32-bit floats. The values are computed in double precision, so that
    -- the conversion is exact.
    CREATE OR REPLACE FUNCTION fairway_vector(embedding bytea) RETURNS vector
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
        SELECT array_agg(CASE WHEN bits = 0 THEN 0::float8 ELSE
            (CASE WHEN bits < 0 THEN -1 ELSE 1 END)
            * (CASE WHEN exponent = 0 THEN fraction / 8388608.0::float8 * 2::float8 ^ -126
                ELSE (1 + fraction / 8388608.0::float8) * 2::float8 ^ (exponent - 127) END) END ORDER BY place)::vector
        FROM (
            SELECT place, bits, (bits >> 23) & 255 AS exponent, (bits & 8388607)::float8 AS fraction
            FROM (
                SELECT place, get_byte(embedding, place * 4) | (get_byte(embedding, place * 4 + 1) << 8)
                    | (get_byte(embedding, place * 4 + 2) << 16) | (get_byte(embedding, place * 4 + 3) << 24) AS bits
                FROM generate_series(0, length(embedding) / 4 - 1) AS place
            ) AS word
        ) AS part
    $$;
    ALTER TABLE knowledge_chunk ADD COLUMN meaning vector GENERATED ALWAYS AS (fairway_vector(embedding)) STORED;
END
$do$;
