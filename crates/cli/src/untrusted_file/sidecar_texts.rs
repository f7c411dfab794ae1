//! Reads sidecar files, which contain long texts of a manifest's content and are in the manifest's folder.

use super::{LocatedValue, MAX_DIRECTORY_BYTES, Source};
use crate::failure::Finding;
use serde::Deserialize as _;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Component, Path},
};

/// The location of a manifest, from which its sidecar files are resolved.
pub(crate) struct SidecarLocation<'p> {
    /// The path of the manifest.
    pub(crate) path: &'p Path,
    /// The directory that must contain every sidecar file.
    pub(crate) root: &'p Path,
}

impl LocatedValue {
    /// Inserts the sidecar texts into a single manifest. Returns any other file unchanged.
    ///
    /// # Errors
    /// When a text is missing, cannot be read, or its JSON pointer does not fit the content.
    pub(crate) fn with_texts(self, path: &Path) -> Result<Self, Finding> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut remaining_bytes = MAX_DIRECTORY_BYTES;
        self.with_texts_limited(
            &SidecarLocation { path, root: folder.unwrap_or_else(|| Path::new(".")) },
            &mut remaining_bytes,
        )
    }

    /// Inserts the sidecar texts into a manifest of a directory, and subtracts their size from
    /// `remaining_bytes`.
    pub(crate) fn with_texts_limited(
        mut self,
        sidecars: &SidecarLocation<'_>,
        remaining_bytes: &mut u64,
    ) -> Result<Self, Finding> {
        let Some(texts) = self.value.get("texts").filter(|_| self.value.get("content").is_some()) else {
            return Ok(self);
        };
        let texts: BTreeMap<String, String> = BTreeMap::deserialize(texts).map_err(|_| {
            let message = "`texts` maps JSON pointers into the content to files in this folder";
            self.finding("/texts", "invalid_manifest", message)
        })?;
        sidecars.inline_texts(&mut self, &texts, remaining_bytes)?;
        Ok(self)
    }
}

impl SidecarLocation<'_> {
    /// Inserts texts into the manifest's content. `texts` maps JSON pointers into the content to file names.
    /// Subtracts the size of the texts from `remaining_bytes`.
    ///
    /// # Errors
    /// When a text is missing, cannot be read, exceeds `remaining_bytes`, or its JSON pointer does not fit the content.
    pub(crate) fn inline_texts(
        &self,
        located: &mut LocatedValue,
        texts: &BTreeMap<String, String>,
        remaining_bytes: &mut u64,
    ) -> Result<(), Finding> {
        for (pointer, name) in texts {
            let text = self.read_text(located, name, remaining_bytes)?;
            let member = located.value.get_mut("content").and_then(|content| content_member(content, pointer));
            let Some(member) = member else {
                let message = "`texts` needs a JSON pointer to a member of the content, such as /system_prompt";
                return Err(located.finding("/texts", "invalid_manifest", message));
            };
            *member = Value::String(text);
        }
        Ok(())
    }

    /// Reads the text of a file in the manifest's folder.
    fn read_text(&self, located: &LocatedValue, name: &str, remaining_bytes: &mut u64) -> Result<String, Finding> {
        let is_plain = matches!(Path::new(name).components().collect::<Vec<_>>().as_slice(), [Component::Normal(_)]);
        let sidecar_path = self.path.with_file_name(name);
        let is_inside_root = self
            .root
            .canonicalize()
            .is_ok_and(|root| sidecar_path.canonicalize().is_ok_and(|target| target.starts_with(root)));
        if !is_plain || (sidecar_path.exists() && !is_inside_root) {
            let message = "a text file must be in the manifest's folder";
            return Err(located.finding("/texts", "link_leads_out", message));
        }
        let text = Source::read_file(&sidecar_path)?.text;
        *remaining_bytes = remaining_bytes.checked_sub(text.len() as u64).ok_or_else(|| {
            let message = "the text files of all manifests exceed 64 MiB";
            located.finding("/texts", "directory_too_large", message)
        })?;
        Ok(text)
    }
}

/// The member of the content that receives a text; creates the member when missing.
fn content_member<'c>(content: &'c mut Value, pointer: &str) -> Option<&'c mut Value> {
    let (parent, name) = pointer.rsplit_once('/')?;
    let members = content.pointer_mut(parent)?.as_object_mut()?;
    Some(members.entry(name.replace("~1", "/").replace("~0", "~")).or_insert(Value::Null))
}
