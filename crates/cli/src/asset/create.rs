//! Creates an asset with its first version by two requests. The server may accept the first and refuse the second.

use super::{VersionOptions, add_version, content_problems, find_asset, list_versions};
use crate::{
    failure::Failure,
    http_client::{ServerClient, required_string},
    output::{Output, eprint},
    terminal_text::sanitize,
    untrusted_file::LocatedValue,
};
use fairway_domain::{
    asset::{VersionLabel, kind::AssetKind},
    note::Note,
};
use serde_json::{Value, json};

/// Creates an asset, and its first version when content is given. Continues an attempt that ended between the two
/// requests.
pub(super) fn create(
    server: &ServerClient,
    output: Output,
    slug: &str,
    kind: &str,
    owner: &str,
    content: Option<&LocatedValue>,
    options: &VersionOptions,
) -> Result<(), Failure> {
    let Some(content) = content else {
        let created = post_asset(server, slug, kind, owner).map_err(|failure| taken_slug(failure, slug))?;
        return output.change_result(&created, &format!("fairway assets add-version {slug} FILE"));
    };
    check_version(kind, content, options)?;
    let asset = match post_asset(server, slug, kind, owner) {
        Err(Failure::Refused(refusal)) if refusal.code == "duplicate_slug" => {
            find_unversioned(server, slug, kind, owner)?.ok_or_else(|| taken_slug(Failure::Refused(refusal), slug))?
        }
        created => created?,
    };
    add_version(server, output, &asset, &content.value, options).inspect_err(|_| {
        eprint("the asset was created without a version; run the same command again to add the version");
    })
}

/// Adds to the refusal of a duplicate slug the slug, and the command that adds a version to the existing asset.
fn taken_slug(failure: Failure, slug: &str) -> Failure {
    failure.map_refusal("duplicate_slug", |mut refusal| {
        refusal.message = format!("`{}`: {}", sanitize(slug), refusal.message);
        Failure::Refused(refusal).with_next(format!("`fairway assets add-version {slug} FILE` adds a version to it"))
    })
}

fn post_asset(server: &ServerClient, slug: &str, kind: &str, owner: &str) -> Result<Value, Failure> {
    let workspace = server.workspace_id()?;
    let body = json!({ "slug": slug, "asset_kind": kind, "owner_ref": owner, "workspace_id": workspace });
    server.post(&["assets"], &body)
}

/// Checks label, note and content locally, so that no asset is created for an invalid version.
fn check_version(kind: &str, content: &LocatedValue, options: &VersionOptions) -> Result<(), Failure> {
    if options.label.as_deref().is_some_and(|label| VersionLabel::parse(label).is_none()) {
        return Err(Failure::Usage("a label has 1 to 64 characters from A-Z, a-z, 0-9 and ._-".to_owned()));
    }
    if options.note.as_deref().is_some_and(|note| Note::parse(note).is_none()) {
        return Err(Failure::Usage("a note has at most 2000 printable characters".to_owned()));
    }
    // An unknown kind is not checked here: the server validates it before it creates anything.
    let problems = AssetKind::parse(kind).map_or_else(Vec::new, |kind| content_problems(kind, content, ""));
    if problems.is_empty() { Ok(()) } else { Err(Failure::Files(problems)) }
}

/// Finds the asset that an earlier attempt created: with the same kind, owner and workspace, and without a version.
fn find_unversioned(server: &ServerClient, slug: &str, kind: &str, owner: &str) -> Result<Option<Value>, Failure> {
    let asset = match find_asset(server, slug) {
        // The slug belongs to another workspace.
        Err(Failure::Unknown { .. }) => return Ok(None),
        asset => asset?,
    };
    let is_earlier_attempt = required_string(&asset, "asset_kind")? == kind
        && required_string(&asset, "owner_ref")? == owner
        && required_string(&asset, "workspace_id")? == server.workspace_id()?;
    Ok((is_earlier_attempt && list_versions(server, &asset)?.is_empty()).then_some(asset))
}
