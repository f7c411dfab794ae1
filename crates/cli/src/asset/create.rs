//! An asset with its first version: two requests, of which the second can be refused.

use super::{VersionOptions, add_version, content_problems, named, versions};
use crate::{
    failure::Failure,
    file::Located,
    output::{Output, tell},
    server::{Server, text},
};
use fairway_domain::asset::{ChangeNote, VersionLabel, kind::AssetKind};
use serde_json::{Value, json};

/// Makes an asset, and its first version where there is content. What an attempt left that ended between the two is gone
/// on with.
pub(super) fn create(
    server: &Server,
    output: Output,
    (slug, kind, owner): (&str, &str, &str),
    (content, options): (Option<&Located>, &VersionOptions),
) -> Result<(), Failure> {
    let Some(content) = content else { return output.one(&made(server, (slug, kind, owner))?) };
    may_be_added(kind, content, options)?;
    let asset = match made(server, (slug, kind, owner)) {
        Err(Failure::Refused(refusal)) if refusal.code == "duplicate_slug" => {
            begun(server, (slug, kind, owner))?.ok_or(Failure::Refused(refusal))?
        }
        made => made?,
    };
    add_version(server, output, &asset, (&content.value, options)).inspect_err(|_| {
        tell("the asset is there, and has no version yet: the same command again goes on from there");
    })
}

fn made(server: &Server, (slug, kind, owner): (&str, &str, &str)) -> Result<Value, Failure> {
    let workspace = server.workspace()?;
    let body = json!({ "slug": slug, "asset_kind": kind, "owner_ref": owner, "workspace_id": workspace });
    server.post(&["assets"], &body)
}

/// What can be known of a version without a server is said before an asset is made for it.
fn may_be_added(kind: &str, content: &Located, options: &VersionOptions) -> Result<(), Failure> {
    if options.label.as_deref().is_some_and(|label| VersionLabel::parse(label).is_none()) {
        return Err(Failure::Usage("a label has 1 to 64 of A-Z, a-z, 0-9 and ._-".to_owned()));
    }
    if options.note.as_deref().is_some_and(|note| ChangeNote::parse(note).is_none()) {
        return Err(Failure::Usage("a note has at most 2000 characters, all of which show".to_owned()));
    }
    // A kind that is unknown here is for the server to judge, before anything is made.
    let problems = AssetKind::parse(kind).map_or_else(Vec::new, |kind| content_problems(kind, content, ""));
    if problems.is_empty() { Ok(()) } else { Err(Failure::Files(problems)) }
}

/// The asset that an earlier attempt made: what was asked for, and without any version.
fn begun(server: &Server, (slug, kind, owner): (&str, &str, &str)) -> Result<Option<Value>, Failure> {
    let asset = match named(server, slug) {
        // The slug is another workspace's.
        Err(Failure::Unfit(_)) => return Ok(None),
        asset => asset?,
    };
    let is_the_same = text(&asset, "asset_kind")? == kind
        && text(&asset, "owner_ref")? == owner
        && text(&asset, "workspace_id")? == server.workspace()?;
    Ok((is_the_same && versions(server, &asset)?.is_empty()).then_some(asset))
}
