-- The revision of each bound knowledge base that a release was approved with. As a trigger it holds for every statement that
-- will ever approve a release, and it costs those that bind no knowledge base one look at their bindings.
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
