-- What the content of a version refers to, taken out when the version is made. By slug, because a reference may be
-- written before what it names; slugs never change.
CREATE TABLE asset_reference (
    tenant_id uuid NOT NULL,
    asset_version_id uuid NOT NULL,
    position integer NOT NULL CHECK (position >= 0),
    target_slug text NOT NULL,
    -- Null where the reference names no version.
    target_label text,
    pointer text NOT NULL,
    PRIMARY KEY (tenant_id, asset_version_id, position),
    FOREIGN KEY (tenant_id, asset_version_id) REFERENCES asset_version
);
CREATE INDEX asset_reference_by_target ON asset_reference (tenant_id, target_slug, asset_version_id);
SELECT fairway_make_append_only('asset_reference');
