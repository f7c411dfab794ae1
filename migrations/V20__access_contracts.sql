-- Which knowledge base an access contract belongs to, and whether it is over. Both are rules over all versions of all
-- assets of a tenant, so they are kept where versions are inserted: two servers cannot disagree about them.
CREATE TABLE access_contract (
    tenant_id uuid NOT NULL,
    contract_id text NOT NULL,
    asset_id uuid NOT NULL,
    revoked boolean NOT NULL,
    PRIMARY KEY (tenant_id, contract_id),
    FOREIGN KEY (tenant_id, asset_id) REFERENCES asset
);
CREATE INDEX access_contract_by_asset ON access_contract (tenant_id, asset_id);
GRANT SELECT, INSERT, UPDATE ON access_contract TO fairway_service;

-- The names of the constraints are what the service tells the two refusals apart by.
CREATE FUNCTION fairway_hold_access_contract() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    contract jsonb;
    held access_contract;
BEGIN
    PERFORM FROM asset
    WHERE tenant_id = NEW.tenant_id AND asset_id = NEW.asset_id AND asset_kind = 'knowledge_base';
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    contract := NEW.content::jsonb -> 'access_contract';
    INSERT INTO access_contract (tenant_id, contract_id, asset_id, revoked)
    VALUES (NEW.tenant_id, contract ->> 'contract_id', NEW.asset_id, coalesce((contract -> 'revoked')::boolean, false))
    ON CONFLICT (tenant_id, contract_id) DO NOTHING;
    SELECT * INTO STRICT held FROM access_contract
    WHERE tenant_id = NEW.tenant_id AND contract_id = contract ->> 'contract_id'
    FOR UPDATE;
    IF held.asset_id <> NEW.asset_id THEN
        RAISE EXCEPTION 'the contract belongs to another asset'
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'access_contract_owner';
    END IF;
    IF held.revoked AND NOT coalesce((contract -> 'revoked')::boolean, false) THEN
        RAISE EXCEPTION 'a revoked contract is never restored'
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'access_contract_revoked';
    END IF;
    UPDATE access_contract SET revoked = true
    WHERE tenant_id = NEW.tenant_id AND contract_id = held.contract_id AND NOT revoked
        AND coalesce((contract -> 'revoked')::boolean, false);
    RETURN NULL;
END
$$;

CREATE TRIGGER asset_version_holds_its_contract AFTER INSERT ON asset_version
FOR EACH ROW EXECUTE FUNCTION fairway_hold_access_contract();
