-- Which of two versions of an asset is newer is no question of clocks: the store counts them, under the row of the asset
-- that every new version updates. And labels go on behind nine digits.
ALTER TABLE asset
    ALTER COLUMN last_label TYPE bigint,
    ADD COLUMN last_ordinal bigint NOT NULL DEFAULT 0;
