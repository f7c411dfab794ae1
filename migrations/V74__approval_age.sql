-- When a verdict was recorded, by the database's clock: what is asked of its age is asked of this. Verdicts of before
-- have the moment that a server told.
ALTER TABLE approval ADD COLUMN recorded_at timestamptz;
ALTER TABLE approval ALTER COLUMN recorded_at SET DEFAULT fairway_now();

-- Programs beside the servers look whether the schema is theirs.
DO $$ BEGIN
    IF to_regclass('refinery_schema_history') IS NOT NULL THEN
        GRANT SELECT ON refinery_schema_history TO fairway_service;
    END IF;
END $$;
