-- Documents may be embedded again: that makes a revision of the index without adding documents. The revisions since the
-- last one that added some say the same, so that each of them can stand for the others where only the vectors matter.
ALTER TABLE knowledge_ingest ADD COLUMN reembeds boolean NOT NULL DEFAULT false;
CREATE INDEX knowledge_ingest_adding ON knowledge_ingest (tenant_id, asset_id, revision) WHERE NOT reembeds;
