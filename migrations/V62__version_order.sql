-- In a migration of its own, as V61 and V63 are: none of them keeps readers of both tables out at the same time, so none
-- waits for a reader that waits for it.
ALTER TABLE asset_version ADD COLUMN ordinal bigint CHECK (ordinal > 0);

-- Servers of before do not give it, and work beside those of today while a fleet is brought up to date.
CREATE FUNCTION fairway_give_ordinal() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE asset SET last_ordinal = last_ordinal + 1
    WHERE tenant_id = NEW.tenant_id AND asset_id = NEW.asset_id
    RETURNING last_ordinal INTO NEW.ordinal;
    RETURN NEW;
END
$$;
CREATE TRIGGER asset_version_has_its_ordinal BEFORE INSERT ON asset_version
FOR EACH ROW WHEN (NEW.ordinal IS NULL) EXECUTE FUNCTION fairway_give_ordinal();
