-- Versions of before the count get their places by the order of their identifiers, which is the one that they were shown
-- in; those that came since V62 stand behind them. Who makes versions waits meanwhile, who reads does not.
LOCK TABLE asset, asset_version IN SHARE ROW EXCLUSIVE MODE;
ALTER TABLE asset_version DISABLE TRIGGER append_only;
UPDATE asset_version SET ordinal = counted.place
FROM (
    SELECT tenant_id, asset_version_id, row_number() OVER (
        PARTITION BY tenant_id, asset_id ORDER BY ordinal NULLS FIRST, asset_version_id) AS place
    FROM asset_version
) AS counted
WHERE asset_version.tenant_id = counted.tenant_id AND asset_version.asset_version_id = counted.asset_version_id;
ALTER TABLE asset_version ENABLE TRIGGER append_only;
UPDATE asset SET last_ordinal = counted.versions
FROM (SELECT tenant_id, asset_id, count(*) AS versions FROM asset_version GROUP BY tenant_id, asset_id) AS counted
WHERE asset.tenant_id = counted.tenant_id AND asset.asset_id = counted.asset_id;

CREATE UNIQUE INDEX asset_version_order ON asset_version (tenant_id, asset_id, ordinal);
ALTER TABLE asset_version ALTER COLUMN ordinal SET NOT NULL;
-- What was found by it is found by the order now.
DROP INDEX asset_version_by_asset;
