//! Assets: found by slug or made, with a version of the wanted content.

use super::{
    AUTHOR,
    manifest::AssetManifest,
    remote::{Remote, text, workspace},
    say,
};
use anyhow::Context as _;
use fairway_domain::asset::{canonical::Canonical, kind::AssetKind};
use serde_json::{Value, json};

/// The version of an asset that releases bind.
#[derive(Debug)]
pub(super) struct Version<'a> {
    pub(super) kind: AssetKind,
    pub(super) slug: &'a str,
    pub(super) asset_id: String,
    pub(super) asset_version_id: String,
    pub(super) label: String,
}

impl<'a> Version<'a> {
    fn of(asset: &'a AssetManifest, asset_id: &str, version: &Value) -> anyhow::Result<Self> {
        Ok(Self {
            kind: asset.kind,
            slug: &asset.slug,
            asset_id: asset_id.to_owned(),
            asset_version_id: text(version, "asset_version_id")?.to_owned(),
            label: text(version, "version_label")?.to_owned(),
        })
    }
}

impl std::fmt::Display for Version<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} `{}` {}", self.kind, self.slug, self.label)
    }
}

/// Sees to it that the asset exists and has a version of the manifest's content; answers with the newest such one.
pub(super) async fn ensure<'a>(remote: &Remote, wanted: &'a AssetManifest) -> anyhow::Result<Version<'a>> {
    let of_kind = [("asset_kind", wanted.kind.as_str().to_owned())];
    match remote.find_by_slug(AUTHOR, &["assets"], &of_kind, &wanted.slug).await? {
        Some(asset) => ensure_version(remote, wanted, text(&asset, "asset_id")?).await,
        None => {
            let version = create(remote, wanted).await?;
            say(format_args!("{AUTHOR} created {version}"));
            Ok(version)
        }
    }
}

async fn create<'a>(remote: &Remote, wanted: &'a AssetManifest) -> anyhow::Result<Version<'a>> {
    if let Some(yaml) = &wanted.flow_yaml {
        let body = json!({ "slug": wanted.slug, "owner_ref": wanted.owner_ref, "content_yaml": yaml });
        let flow = remote.post(AUTHOR, &["flows"], &body).await?;
        let version = flow.get("version").context("the server's answer has no `version`")?;
        return Version::of(wanted, text(&flow, "asset_id")?, version);
    }
    let body = json!({ "slug": wanted.slug, "asset_kind": wanted.kind, "owner_ref": wanted.owner_ref });
    let asset = remote.post(AUTHOR, &["assets"], &body).await?;
    add_version(remote, wanted, text(&asset, "asset_id")?).await
}

async fn ensure_version<'a>(remote: &Remote, wanted: &'a AssetManifest, asset_id: &str) -> anyhow::Result<Version<'a>> {
    // The server takes its checksum over the same canonical bytes, so equal contents have equal ones.
    let canonical = Canonical::of(&wanted.content)?;
    let checksum = canonical.checksum().as_str();
    let versions = remote.list(AUTHOR, &["assets", asset_id, "versions"], &[workspace()]).await?;
    let same = |version: &&Value| version.get("checksum").and_then(Value::as_str) == Some(checksum);
    if let Some(version) = versions.iter().find(same) {
        let version = Version::of(wanted, asset_id, version)?;
        say(format_args!("{version} is there already"));
        return Ok(version);
    }
    let version = add_version(remote, wanted, asset_id).await?;
    say(format_args!("{AUTHOR} added {version}"));
    Ok(version)
}

async fn add_version<'a>(remote: &Remote, wanted: &'a AssetManifest, asset_id: &str) -> anyhow::Result<Version<'a>> {
    let body = json!({ "content": wanted.content });
    let version = remote.post(AUTHOR, &["assets", asset_id, "versions"], &body).await?;
    Version::of(wanted, asset_id, &version)
}
