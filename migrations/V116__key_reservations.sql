-- A request that works outside the database before its commit reserves its key first, under a lease. While `leased_until`
-- is set, `resource` names what the commit will make, and there is no outcome yet.
ALTER TABLE idempotency_key ADD COLUMN leased_until timestamptz;

-- Reserves a key, or prolongs the reservation that is there. False when an outcome or another lease stands in the way.
CREATE FUNCTION fairway_reserve_key(
    a_tenant uuid, a_caller text, a_route text, a_key text, a_digest bytea, a_resource uuid, a_lease interval
) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO idempotency_key AS known
        (tenant_id, caller, route, key, body_digest, resource, created_at, leased_until)
    VALUES (a_tenant, a_caller, a_route, a_key, a_digest, a_resource, fairway_now(), fairway_now() + a_lease)
    ON CONFLICT (tenant_id, caller, route, key) DO UPDATE
    SET body_digest = excluded.body_digest, status = NULL, resource = excluded.resource,
        created_at = excluded.created_at, leased_until = excluded.leased_until
    WHERE known.created_at < fairway_now() - fairway_key_lifetime()
        OR known.leased_until <= fairway_now()
        OR (known.leased_until IS NOT NULL AND known.resource = excluded.resource);
    RETURN FOUND;
END
$$;

-- Claims a key for an effect. False when a kept outcome stands in the way, or the lease of another request. The claim of
-- the resource that a key is reserved for completes the reservation.
CREATE OR REPLACE FUNCTION fairway_claim_key(
    a_tenant uuid, a_caller text, a_route text, a_key text, a_digest bytea, a_status smallint, a_resource uuid
) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO idempotency_key AS known (tenant_id, caller, route, key, body_digest, status, resource, created_at)
    VALUES (a_tenant, a_caller, a_route, a_key, a_digest, a_status, a_resource, fairway_now())
    ON CONFLICT (tenant_id, caller, route, key) DO UPDATE
    SET body_digest = excluded.body_digest, status = excluded.status, resource = excluded.resource,
        created_at = excluded.created_at, leased_until = NULL
    WHERE known.created_at < fairway_now() - fairway_key_lifetime()
        OR known.leased_until <= fairway_now()
        OR (known.leased_until IS NOT NULL AND known.resource = excluded.resource);
    RETURN FOUND;
END
$$;
