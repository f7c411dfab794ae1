-- The pieces of a knowledge base in the order in which they were added. A vector search that cannot compare all of them
-- compares the first, so that the same revision always gives the same answer; and pieces that have vectors of another model
-- are found without reading the pieces themselves.
CREATE INDEX knowledge_chunk_by_age ON knowledge_chunk (tenant_id, asset_id, from_revision, chunk_id)
    INCLUDE (until_revision, embedded_by);
