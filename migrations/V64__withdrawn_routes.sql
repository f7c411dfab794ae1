-- Which version of a model policy suspends or retires which of its routes, taken out when the version is made: who
-- activates a release asks whether a version after the bound one takes its route back. Taken out here and not by the
-- service, so that no server of whatever age leaves it out.
CREATE TABLE withdrawn_route (
    tenant_id uuid NOT NULL,
    asset_id uuid NOT NULL,
    route_id text NOT NULL,
    ordinal bigint NOT NULL,
    asset_version_id uuid NOT NULL,
    state text NOT NULL CHECK (state IN ('suspended', 'retired')),
    PRIMARY KEY (tenant_id, asset_id, route_id, ordinal),
    FOREIGN KEY (tenant_id, asset_version_id) REFERENCES asset_version
);
SELECT fairway_make_append_only('withdrawn_route');

-- What stands where a route stands, and nothing else: free labels may say the same words.
CREATE FUNCTION fairway_withdrawn_routes(content text) RETURNS TABLE (route_id text, state text)
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    WITH policy AS MATERIALIZED (SELECT content::json AS document)
    SELECT DISTINCT ON (1) route ->> 'route_id', route ->> 'state'
    FROM (
        SELECT document -> 'provider_route' AS route FROM policy
        UNION ALL
        SELECT json_array_elements(document -> 'fallback_routes') FROM policy
        WHERE json_typeof(document -> 'fallback_routes') = 'array'
    ) AS routes
    WHERE route ->> 'route_id' IS NOT NULL AND route ->> 'state' IN ('suspended', 'retired')
$$;

CREATE FUNCTION fairway_note_withdrawn_routes() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO withdrawn_route (tenant_id, asset_id, route_id, ordinal, asset_version_id, state)
    SELECT NEW.tenant_id, NEW.asset_id, route_id, NEW.ordinal, NEW.asset_version_id, state
    FROM fairway_withdrawn_routes(NEW.content)
    WHERE EXISTS (
        SELECT FROM asset
        WHERE tenant_id = NEW.tenant_id AND asset_id = NEW.asset_id AND asset_kind = 'model_policy');
    RETURN NULL;
END
$$;

-- Canonical JSON has one spelling, so most contents are told apart by their text.
CREATE TRIGGER asset_version_withdraws_routes AFTER INSERT ON asset_version
FOR EACH ROW WHEN (NEW.content LIKE '%"state":"suspended"%' OR NEW.content LIKE '%"state":"retired"%')
EXECUTE FUNCTION fairway_note_withdrawn_routes();

INSERT INTO withdrawn_route (tenant_id, asset_id, route_id, ordinal, asset_version_id, state)
SELECT tenant_id, asset_id, route_id, ordinal, asset_version_id, state
FROM asset JOIN asset_version USING (tenant_id, asset_id), fairway_withdrawn_routes(content)
WHERE asset_kind = 'model_policy';
