//! An output file of `fairway sync pull`: its comparison with the existing file, and its atomic replacement.

use crate::{failure::Failure, untrusted_file::Source};
use fairway_domain::flow::parse_yaml;
use serde::Serialize;
use serde_json::{Value, json};
use std::{
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
};

/// The path and the text of a file to write.
pub(super) struct OutputFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl OutputFile {
    /// Serializes a manifest as JSON or YAML, by the file's extension.
    pub(super) fn serialize<T: Serialize>(path: PathBuf, manifest: &T) -> Result<Self, Failure> {
        let to_failure = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
        let text = if is_json(&path) {
            serde_json::to_string_pretty(manifest).map(|text| text + "\n").map_err(|error| to_failure(&error))?
        } else {
            serde_yaml::to_string(manifest).map_err(|error| to_failure(&error))?
        };
        Ok(Self { path, text })
    }

    /// Whether the existing file has equivalent content.
    pub(super) fn matches_existing(&self) -> bool {
        let Ok(existing) = Source::read_file(&self.path) else { return false };
        if existing.text == self.text {
            return true;
        }
        let generated = Source { name: existing.name.clone(), text: self.text.clone() };
        let to_value = |source: &Source| source.try_value().ok().map(|located| normalize(located.value));
        let to_flow = |source: &Source| parse_yaml(&source.text).ok().map(|flow| flow.to_content());
        // Only manifests are compared by their values; sidecar texts must be equal texts.
        let is_manifest = crate::untrusted_file::is_manifest_file(&self.path);
        let has_equal_value =
            is_manifest && to_value(&existing).is_some_and(|value| to_value(&generated) == Some(value));
        has_equal_value || is_manifest && to_flow(&existing).is_some_and(|flow| to_flow(&generated) == Some(flow))
    }

    /// Checks that the file can be written, so that `pull` writes either all files or none.
    ///
    /// # Errors
    /// When the path of the folder or of the file is occupied by something else.
    pub(super) fn check_writable(&self) -> Result<(), Failure> {
        let blocked = |path: &Path, expected_type: &str| {
            let cause = io::Error::other(format!("not a {expected_type}, so it was not replaced; nothing was written"));
            Err(Failure::Io { path: path.to_owned(), cause })
        };
        let folder = self.folder();
        // `symlink_metadata` does not follow links, because `pull` must not write to their targets.
        match (fs::symlink_metadata(folder), fs::symlink_metadata(&self.path)) {
            (Ok(metadata), _) if !metadata.is_dir() => blocked(folder, "folder"),
            (_, Ok(metadata)) if !metadata.is_file() => blocked(&self.path, "file"),
            (Ok(_) | Err(_), Ok(_) | Err(_)) => Ok(()),
        }
    }

    /// Replaces the file atomically.
    pub(super) fn write(&self) -> Result<(), Failure> {
        let failed = |cause| Failure::Io { path: self.path.clone(), cause };
        let folder = self.folder();
        fs::create_dir_all(folder).map_err(failed)?;
        self.check_writable()?;
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        file.write_all(self.text.as_bytes()).map_err(failed)?;
        make_readable(&file).map_err(failed)?;
        file.persist(&self.path).map(drop).map_err(|error| failed(error.error))
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or_else(|| Path::new("."))
    }
}

/// Whether the extension of a file is that of JSON.
pub(super) fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}

/// Normalizes a manifest for comparison: removes example inputs, sorts bindings, and adds the default lane.
fn normalize(mut value: Value) -> Value {
    if let Some(members) = value.as_object_mut() {
        members.remove("example_inputs");
        if members.contains_key("bindings") {
            members.entry("target_lane").or_insert_with(|| json!("all"));
        }
        if let Some(Value::Array(bindings)) = members.get_mut("bindings") {
            bindings.sort_by_key(Value::to_string);
        }
    }
    value
}

/// Gives a temporary file, which only its owner can read, the permissions of ordinary files.
fn make_readable(file: &tempfile::NamedTempFile) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
    }
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}
