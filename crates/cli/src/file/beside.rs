//! Long texts of a manifest's content in files of their own, beside the manifest.

use super::{Located, MOST_BYTES, Source};
use crate::failure::Finding;
use serde::Deserialize as _;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Component, Path},
};

/// Where the texts of a manifest are looked for.
pub(crate) struct Beside<'p> {
    /// The manifest.
    pub(crate) path: &'p Path,
    /// The directory that no text may lie outside of.
    pub(crate) root: &'p Path,
}

impl Located {
    /// A manifest that was named alone, at this path, with its texts in its content; what is none stays as it is.
    ///
    /// # Errors
    /// When a text is not there, cannot be read, or belongs nowhere.
    pub(crate) fn with_texts(self, path: &Path) -> Result<Self, Finding> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut room = MOST_BYTES;
        self.with_texts_within(&Beside { path, root: folder.unwrap_or_else(|| Path::new(".")) }, &mut room)
    }

    /// The same of a manifest in a directory. The bytes of the texts are taken from the room that is left.
    pub(crate) fn with_texts_within(mut self, within: &Beside<'_>, room: &mut u64) -> Result<Self, Finding> {
        let Some(texts) = self.value.get("texts").filter(|_| self.value.get("content").is_some()) else {
            return Ok(self);
        };
        let texts: BTreeMap<String, String> = BTreeMap::deserialize(texts).map_err(|_| {
            let message = "`texts` has JSON pointers into the content, and for each the name of a file beside this one";
            self.finding("/texts", "invalid_manifest", message)
        })?;
        within.complete(&mut self, &texts, room)?;
        Ok(self)
    }
}

impl Beside<'_> {
    /// Puts texts into the content of the manifest: by the JSON pointer into it, the name of the file. The bytes that they
    /// have are taken from the room that is left.
    ///
    /// # Errors
    /// When a text is not there, cannot be read, is too long for the room, or belongs nowhere.
    pub(crate) fn complete(
        &self,
        located: &mut Located,
        texts: &BTreeMap<String, String>,
        room: &mut u64,
    ) -> Result<(), Finding> {
        for (pointer, name) in texts {
            let text = self.neighbour(located, name, room)?;
            let place = located.value.get_mut("content").and_then(|content| place_for(content, pointer));
            let Some(place) = place else {
                let message = "a text belongs at a JSON pointer to a member of the content, such as /system_prompt";
                return Err(located.finding("/texts", "invalid_manifest", message));
            };
            *place = Value::String(text);
        }
        Ok(())
    }

    /// The text of a file beside the manifest.
    fn neighbour(&self, located: &Located, name: &str, room: &mut u64) -> Result<String, Finding> {
        let is_plain = matches!(Path::new(name).components().collect::<Vec<_>>().as_slice(), [Component::Normal(_)]);
        let beside = self.path.with_file_name(name);
        let inside =
            self.root.canonicalize().is_ok_and(|root| beside.canonicalize().is_ok_and(|real| real.starts_with(root)));
        if !is_plain || (beside.exists() && !inside) {
            let message = "a text stands in a file of the same folder";
            return Err(located.finding("/texts", "link_leads_out", message));
        }
        let text = Source::found(&beside)?.text;
        *room = room.checked_sub(text.len() as u64).ok_or_else(|| {
            let message = "the texts beside manifests hold more than 64 MiB";
            located.finding("/texts", "directory_too_large", message)
        })?;
        Ok(text)
    }
}

/// The member of content that a text is put into, made where it is missing.
fn place_for<'c>(content: &'c mut Value, pointer: &str) -> Option<&'c mut Value> {
    let (around, name) = pointer.rsplit_once('/')?;
    let members = content.pointer_mut(around)?.as_object_mut()?;
    Some(members.entry(name.replace("~1", "/").replace("~0", "~")).or_insert(Value::Null))
}
