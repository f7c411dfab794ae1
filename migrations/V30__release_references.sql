-- What the references of a release's contents mean, frozen when it leaves draft. The digest is that of the state which
-- they were frozen for: what was shown to reviewers earlier stays, and the release reads those of its present digest.
CREATE TABLE release_reference (
    tenant_id uuid NOT NULL,
    release_id uuid NOT NULL,
    bindings_digest text NOT NULL,
    -- The version whose content holds the reference.
    from_version_id uuid NOT NULL,
    slug text NOT NULL,
    -- Empty where the reference leaves the version open.
    label text NOT NULL,
    to_version_id uuid NOT NULL,
    PRIMARY KEY (tenant_id, release_id, bindings_digest, from_version_id, slug, label),
    FOREIGN KEY (tenant_id, release_id) REFERENCES release,
    FOREIGN KEY (tenant_id, from_version_id) REFERENCES asset_version,
    FOREIGN KEY (tenant_id, to_version_id) REFERENCES asset_version
);
CREATE INDEX release_reference_by_target ON release_reference (tenant_id, to_version_id);
SELECT fairway_make_append_only('release_reference');
