//! Reads untrusted files with a size limit as UTF-8 text, and records the position of every value.

pub(crate) mod sidecar_texts;
mod source_span;
mod strict_parsers;

use crate::failure::{Failure, Finding, Position};
use serde_json::Value;
use source_span::SourceSpans;
use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

/// Maximum size of a file in bytes: content of 4 MiB and the manifest around it.
pub(crate) const MAX_FILE_BYTES: u64 = 5 << 20;
/// Maximum size of a YAML file in bytes. It is lower than for JSON, because YAML is much slower to parse.
const MAX_YAML_BYTES: usize = 1 << 20;

/// The name of standard input on the command line and in messages.
const STANDARD_INPUT: &str = "-";

/// A file as text.
#[derive(Debug)]
pub(crate) struct Source {
    /// The path of the file, as the caller gave it or as the search of a directory found it.
    pub(crate) name: String,
    /// The text of the file.
    pub(crate) text: String,
}

/// The value of a file, with the position of each part.
#[derive(Debug, Default)]
pub(crate) struct LocatedValue {
    /// The path of the file.
    pub(crate) name: String,
    /// The parsed value.
    pub(crate) value: Value,
    spans: SourceSpans,
}

impl Source {
    /// Reads a file argument; `-` means standard input.
    ///
    /// # Errors
    /// When the file cannot be read, is not a regular file, is too large, or is not UTF-8 text.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        Self::open_limited(path, MAX_FILE_BYTES)
    }

    /// Like [`Self::open`], with a maximum size in bytes.
    pub(crate) fn open_limited(path: &Path, max_bytes: u64) -> Result<Self, Failure> {
        Self::try_open(path, max_bytes).map_err(Failure::from_finding)
    }

    /// Like [`Self::open_limited`], but returns the finding instead of a [`Failure`].
    pub(crate) fn try_open(path: &Path, max_bytes: u64) -> Result<Self, Finding> {
        if path == Path::new(STANDARD_INPUT) { read_standard_input(max_bytes) } else { read(path, max_bytes) }
    }

    /// Reads a file of a directory.
    ///
    /// # Errors
    /// Those of [`Self::open`], as a finding.
    pub(crate) fn read_file(path: &Path) -> Result<Self, Finding> {
        read(path, MAX_FILE_BYTES)
    }

    /// Whether the text is JSON, according to the file's extension, or to the content of standard input. All other
    /// texts are YAML.
    fn is_json(&self) -> bool {
        if self.name == STANDARD_INPUT {
            return serde_json::from_str::<serde::de::IgnoredAny>(&self.text).is_ok();
        }
        Path::new(&self.name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
    }

    /// Parses the text as JSON, regardless of the file name.
    pub(crate) fn json(&self) -> Result<Value, Failure> {
        strict_parsers::parse_json(&self.text).map_err(|fault| Failure::from_finding(fault.in_file(&self.name)))
    }

    /// Parses the text as JSON or YAML.
    pub(crate) fn value(&self) -> Result<LocatedValue, Failure> {
        self.try_value().map_err(Failure::from_finding)
    }

    /// Like [`Self::value`], but returns the finding instead of a [`Failure`].
    pub(crate) fn try_value(&self) -> Result<LocatedValue, Finding> {
        let name = self.name.clone();
        if self.is_json() {
            let value = strict_parsers::parse_json(&self.text).map_err(|fault| fault.in_file(&name))?;
            // The YAML parser finds the positions. Findings in JSON that is not valid YAML have only paths.
            let is_small = self.text.len() <= MAX_YAML_BYTES;
            let spans =
                if is_small { SourceSpans::parse(&self.text).unwrap_or_default() } else { SourceSpans::default() };
            return Ok(LocatedValue { name, value, spans });
        }
        if self.text.len() > MAX_YAML_BYTES {
            return Err(Finding::whole(name, "file_too_large", "a YAML file has at most 1 MiB"));
        }
        // Limits the expansion of aliases before the YAML library expands them.
        let spans = SourceSpans::parse(&self.text).map_err(|fault| fault.diagnosed(&self.text).in_file(&name))?;
        let value =
            strict_parsers::parse_yaml(&self.text).map_err(|fault| fault.diagnosed(&self.text).in_file(&name))?;
        Ok(LocatedValue { name, value, spans })
    }
}

/// Line and column of a byte offset, both from 1; columns count characters.
fn line_column(text: &str, offset: usize) -> Position {
    let before = text.get(..offset).unwrap_or(text);
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count());
    Position { line: number(before.matches('\n').count() + 1), column: number(column + 1) }
}

impl LocatedValue {
    /// The position of the value at a JSON pointer, or of its nearest existing ancestor.
    pub(crate) fn position(&self, pointer: &str) -> Option<Position> {
        self.spans.nearest(pointer)
    }

    /// A finding about the value at a JSON pointer.
    pub(crate) fn finding(&self, pointer: &str, code: &str, message: impl Into<String>) -> Finding {
        Finding::whole(&self.name, code, message).at(self.position(pointer))
    }
}

/// Maximum number of files and folders in a directory. The limit stops the traversal of a mistaken
/// argument such as `/`.
const MAX_DIRECTORY_ENTRIES: usize = 20_000;
/// Maximum total size of a directory's files in bytes. All files are in memory before the first request, and parsed
/// values need several times the size of their files.
pub(crate) const MAX_DIRECTORY_BYTES: u64 = 64 << 20;

/// The YAML and JSON files below a directory, sorted by path. Skips hidden files and folders.
///
/// # Errors
/// When the path is not a directory, exceeds the limits, or contains a link to a target outside it.
pub(crate) fn manifest_files(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    files_below(directory, MAX_DIRECTORY_BYTES, is_manifest_file)
}

/// The files below a directory that satisfy a condition, sorted by path. Skips hidden files and folders.
///
/// # Errors
/// When the path is not a directory, exceeds the limits, or contains a link to a target outside it.
pub(crate) fn files_below(
    directory: &Path,
    max_bytes: u64,
    is_included: impl Fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, Failure> {
    let directory_failure = |path: &Path, code: &str, message: &str| {
        Failure::from_finding(Finding::whole(path.display().to_string(), code, message))
    };
    if directory.is_file() {
        return Err(directory_failure(
            directory,
            "file_unreadable",
            "this is a file, and the command reads a directory",
        ));
    }
    let root = directory.canonicalize().ok().filter(|root| root.is_dir());
    let root = root.ok_or_else(|| directory_failure(directory, "file_unreadable", "the directory does not exist"))?;
    let mut files = Vec::new();
    let mut folders = vec![directory.to_owned()];
    let (mut entry_count, mut bytes) = (0_usize, 0_u64);
    while let Some(folder) = folders.pop() {
        let unreadable = |_| directory_failure(&folder, "file_unreadable", "the directory cannot be read");
        for entry in fs::read_dir(&folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            entry_count += 1;
            if entry_count > MAX_DIRECTORY_ENTRIES {
                return Err(directory_failure(
                    directory,
                    "directory_too_large",
                    "the directory holds more than 20,000 files",
                ));
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with('.') {
                continue;
            }
            let metadata = fs::symlink_metadata(&path).map_err(unreadable)?;
            if metadata.is_symlink() {
                // Refuses links to folders, which could form a cycle, and links to files outside the directory.
                let target = path.canonicalize().ok().filter(|target| target.starts_with(&root) && target.is_file());
                if target.is_none() {
                    return Err(directory_failure(
                        &path,
                        "link_leads_out",
                        "a link must lead to a file inside the directory",
                    ));
                }
            }
            if metadata.is_dir() {
                folders.push(path);
            } else if is_included(&path) {
                bytes = bytes.saturating_add(fs::metadata(&path).map_or(0, |metadata| metadata.len()));
                if bytes > max_bytes {
                    let message = format!("the files of the directory hold more than {} MiB", max_bytes >> 20);
                    return Err(directory_failure(directory, "directory_too_large", &message));
                }
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Whether the extension is that of YAML or JSON.
pub(crate) fn is_manifest_file(path: &Path) -> bool {
    let is_manifest_extension =
        |extension: &std::ffi::OsStr| ["yaml", "yml", "json"].iter().any(|known| extension.eq_ignore_ascii_case(known));
    path.extension().is_some_and(is_manifest_extension)
}

fn read(path: &Path, max_bytes: u64) -> Result<Source, Finding> {
    let name = path.display().to_string();
    let new_finding = |code: &str, message: &str| Finding::whole(name.clone(), code, message);
    let unreadable = |_| new_finding("file_unreadable", "the file does not exist or cannot be read");
    // Checks the type before opening the file, because opening a named pipe blocks until a writer opens it.
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(new_finding("file_not_regular", "not a regular file; pass `-` for standard input"));
    }
    decode_text(&name, File::open(path).map_err(unreadable)?, max_bytes)
}

/// Reads standard input. Refuses a second read, which would return an empty text.
fn read_standard_input(max_bytes: u64) -> Result<Source, Finding> {
    static IS_READ: AtomicBool = AtomicBool::new(false);
    if IS_READ.swap(true, Ordering::Relaxed) {
        let message = "standard input is read once: pass a file for the other argument";
        return Err(Finding::whole(STANDARD_INPUT, "file_unreadable", message));
    }
    decode_text(STANDARD_INPUT, io::stdin(), max_bytes)
}

fn decode_text(name: &str, file: impl Read, max_bytes: u64) -> Result<Source, Finding> {
    let new_finding = |code: &str, message: &str| Finding::whole(name, code, message);
    let mut bytes = Vec::new();
    let read = file.take(max_bytes + 1).read_to_end(&mut bytes);
    let length = read.map_err(|_| new_finding("file_unreadable", "the file does not exist or cannot be read"))?;
    if u64::try_from(length).unwrap_or(u64::MAX) > max_bytes {
        return Err(new_finding("file_too_large", "the file exceeds the maximum size"));
    }
    let position_at = |offset: usize| {
        let before = String::from_utf8_lossy(bytes.get(..offset).unwrap_or_default()).into_owned();
        Some(line_column(&before, before.len()))
    };
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(new_finding("file_encoding", "the file is UTF-16 instead of UTF-8").at(Some(Position::START)));
    }
    if let Some(offset) = bytes.iter().position(|byte| *byte == 0) {
        return Err(new_finding("file_binary", "the file contains a NUL byte and is not text").at(position_at(offset)));
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => {
            Ok(Source { text: text.strip_prefix('\u{feff}').unwrap_or(text).to_owned(), name: name.to_owned() })
        }
        Err(error) => Err(new_finding("file_encoding", "the file is not UTF-8").at(position_at(error.valid_up_to()))),
    }
}

#[cfg(test)]
mod tests;
