-- How a workload shows itself to people, and the words that it is found by: those of its name and descriptions, broken
-- up by the service, each behind the tenant's id and a slash, so that the tenant leads this index too.
ALTER TABLE workload
    ADD COLUMN interface_config jsonb,
    ADD COLUMN search tsvector NOT NULL DEFAULT ''::tsvector,
    ADD CONSTRAINT workload_interface_is_an_object CHECK (jsonb_typeof(interface_config) = 'object'),
    -- What is not there compares to null, which a CHECK lets pass: so it is said what null means.
    ADD CONSTRAINT workload_interface_has_a_mode
        CHECK (interface_config IS NULL
            OR coalesce(interface_config ->> 'presentation_mode' IN ('form', 'chat', 'block'), false)),
    ADD CONSTRAINT workload_interface_says_who_may_come
        CHECK (NOT coalesce(interface_config ? 'access_mode', false)
            OR coalesce(interface_config ->> 'access_mode' IN ('authenticated', 'public', 'link_shared'), false));

-- Runtime lists show what takes executions, newest first, of everybody or of one owner.
CREATE INDEX workload_runtime ON workload (tenant_id, workload_id)
    WHERE interface_config IS NOT NULL AND status = 'registered';
CREATE INDEX workload_runtime_by_owner ON workload (tenant_id, owner_ref, workload_id)
    WHERE interface_config IS NOT NULL AND status = 'registered';
-- Written at once: a pending list would be read from end to end by every search.
CREATE INDEX workload_runtime_by_word ON workload USING gin (search) WITH (fastupdate = off)
    WHERE interface_config IS NOT NULL AND status = 'registered';
