//! Uploads text files to a knowledge base in batches.
//!
//! The same command resumes an interrupted upload. It skips documents whose text is already stored, and sends a batch
//! whose response was lost under the same idempotency key.

use super::{find_knowledge_base, is_current};
use crate::{
    failure::{Failure, Finding},
    http_client::{ServerClient, required_string, string_or_empty},
    output::{Output, eprint},
    terminal_text::sanitize,
    untrusted_file::{Source, files_below},
};
use clap::Args;
use fairway_domain::{
    asset::canonical::Checksum,
    knowledge::document::{DocumentId, MAX_TEXT_BYTES, MAX_TITLE_CHARS},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    path::{Path, PathBuf},
};

/// Extensions of the files that an upload of a directory includes.
const TEXT_EXTENSIONS: [&str; 7] = ["md", "markdown", "txt", "rst", "adoc", "html", "csv"];
/// Maximum number of documents in a batch. Small batches show progress and stay below the server's limit of chunks.
const MAX_BATCH: usize = 20;
/// Maximum size of a batch's texts in bytes. A larger document is a batch of its own.
const MAX_BATCH_BYTES: usize = 256 << 10;
/// Maximum total size of the files of an upload, in bytes.
const MAX_UPLOAD_BYTES: u64 = 1 << 30;

/// Arguments of `documents upload`.
#[derive(Args)]
#[command(
    after_help = "A document's id is its path below the directory; answers cite it. Its title is its first heading. Of a \
    directory, the files with these extensions are uploaded: md, markdown, txt, rst, adoc, html, csv. Documents whose \
    text is unchanged are skipped, so the same command resumes an interrupted upload.\n\nExamples:\n  \
    fairway documents upload handbook/ --to people-handbook\n  \
    fairway documents upload leave.md --to people-handbook"
)]
pub(crate) struct Arguments {
    /// A text file, or a directory
    #[arg(value_name = "FILE|DIRECTORY")]
    path: PathBuf,
    /// The slug of the knowledge base
    #[arg(long, value_name = "SLUG")]
    to: String,
}

/// A file to upload as a document.
#[derive(Debug)]
struct LocalDocument {
    id: String,
    title: Option<String>,
    text: String,
}

pub(super) fn upload(server: &ServerClient, output: Output, arguments: &Arguments) -> Result<(), Failure> {
    // All files are read and checked before the first request.
    let documents = read_documents(&arguments.path)?;
    let base = find_knowledge_base(server, &arguments.to)?;
    let path = ["assets", required_string(&base, "asset_id")?, "documents"];
    let workspace = server.workspace_id()?;
    let mut digests = BTreeMap::new();
    for document in server.list(&path, &[("workspace_id", workspace)])?.iter().filter(|document| is_current(document)) {
        digests.insert(
            string_or_empty(document, "document_id").to_owned(),
            string_or_empty(document, "digest").to_owned(),
        );
    }
    let total = documents.len();
    let changed: Vec<LocalDocument> = documents.into_iter().filter(|document| !document.is_stored(&digests)).collect();
    let unchanged = total - changed.len();
    if unchanged > 0 {
        eprint(&format!("{unchanged} of {total} documents are unchanged"));
    }
    let (mut done, mut stored, mut revision) = (0, Vec::new(), Value::Null);
    for batch in batches(&changed) {
        let body = json!({ "workspace_id": workspace, "documents": batch.iter().map(LocalDocument::to_json).collect::<Vec<_>>() });
        let ingested = server.post_with_key(&path, &body, &idempotency_key(batch, &digests))?;
        done += batch.len();
        revision = ingested.get("index_revision").cloned().unwrap_or_default();
        eprint(&format!("uploaded {done} of {} documents, index revision {revision}", changed.len()));
        for warning in ingested.get("warnings").and_then(Value::as_array).into_iter().flatten() {
            eprint(&format!("warning: {}", sanitize(string_or_empty(warning, "message"))));
        }
        stored.extend(ingested.get("documents").and_then(Value::as_array).into_iter().flatten().cloned());
    }
    let result = json!({ "uploaded": done, "unchanged": unchanged, "index_revision": revision, "documents": stored });
    if !output.is_for_people() {
        return output.record(&result);
    }
    let summary = json!({ "uploaded": done, "unchanged": unchanged, "index_revision": revision });
    output.change_result(&summary, &format!("fairway documents list {}", arguments.to))
}

/// Reads a file, or the text files below a directory.
fn read_documents(path: &Path) -> Result<Vec<LocalDocument>, Failure> {
    let (root, files) = if path.is_dir() {
        let is_text = |path: &Path| path.extension().and_then(OsStr::to_str).is_some_and(is_text_extension);
        (path, files_below(path, MAX_UPLOAD_BYTES, is_text)?)
    } else {
        (path.parent().unwrap_or(path), vec![path.to_owned()])
    };
    let (mut documents, mut findings, mut ids) = (Vec::new(), Vec::new(), BTreeMap::new());
    for file in &files {
        match LocalDocument::read(root, file) {
            Ok(document) => match ids.insert(document.id.clone(), file) {
                None => documents.push(document),
                Some(other) => {
                    let message = format!("`{}` has the same document id", other.display());
                    findings.push(Finding::whole(file.display().to_string(), "duplicate_document_id", message));
                }
            },
            Err(finding) => findings.push(finding),
        }
    }
    if files.is_empty() {
        let message = "the directory contains no text files; pass a file to upload it whatever its extension";
        findings.push(Finding::whole(path.display().to_string(), "no_documents", message));
    }
    if findings.is_empty() { Ok(documents) } else { Err(Failure::Files(findings)) }
}

fn is_text_extension(extension: &str) -> bool {
    TEXT_EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known))
}

impl LocalDocument {
    fn read(root: &Path, file: &Path) -> Result<Self, Finding> {
        let max_bytes = u64::try_from(MAX_TEXT_BYTES).unwrap_or(u64::MAX);
        let source = Source::try_open(file, max_bytes)?;
        let new_finding = |code: &str, message: &str| Finding::whole(file.display().to_string(), code, message);
        if source.text.trim().is_empty() {
            return Err(new_finding("empty_document", "the file has no text"));
        }
        let id = document_id(file.strip_prefix(root).unwrap_or(file));
        if DocumentId::parse(&id).is_none() {
            let message =
                "the path is not a document id: 1 to 128 letters, digits and `._:/-`, a letter or digit first";
            return Err(new_finding("invalid_document_id", message));
        }
        Ok(Self { id, title: title(&source.text), text: source.text })
    }

    fn is_stored(&self, digests: &BTreeMap<String, String>) -> bool {
        digests.get(&self.id).is_some_and(|digest| digest == Checksum::blake3_of(self.text.as_bytes()).as_str())
    }

    fn to_json(&self) -> Value {
        json!({ "document_id": self.id, "title": self.title, "text": self.text })
    }
}

/// The document's identifier: the path with slashes, in which hyphens replace the characters that identifiers forbid.
fn document_id(path: &Path) -> String {
    let parts: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let allowed = |character: char| {
        if character.is_ascii_alphanumeric() || "._:/-".contains(character) { character } else { '-' }
    };
    parts.join("/").chars().map(allowed).collect()
}

/// The title of a document: its first Markdown heading.
fn title(text: &str) -> Option<String> {
    let heading = text.lines().find_map(|line| line.strip_prefix("# "))?;
    let title: String = sanitize(heading.trim()).chars().take(MAX_TITLE_CHARS).collect();
    let title = title.trim().to_owned();
    (!title.is_empty()).then_some(title)
}

/// Splits the documents into batches within the limits.
fn batches(documents: &[LocalDocument]) -> Vec<&[LocalDocument]> {
    let (mut batches, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (index, document) in documents.iter().enumerate() {
        let is_full = index - start == MAX_BATCH || bytes + document.text.len() > MAX_BATCH_BYTES;
        if is_full && index > start {
            batches.extend(documents.get(start..index));
            (start, bytes) = (index, 0);
        }
        bytes += document.text.len();
    }
    batches.extend(documents.get(start..).filter(|last_batch| !last_batch.is_empty()));
    batches
}

/// The idempotency key of a batch, derived from its texts and from the stored texts that they replace. The stored
/// texts are part of the key, so that a document can return to an earlier text.
fn idempotency_key(batch: &[LocalDocument], digests: &BTreeMap<String, String>) -> String {
    let part = |document: &LocalDocument| {
        let replaced_digest = digests.get(&document.id);
        let text = Checksum::blake3_of(document.text.as_bytes());
        json!([document.id, document.title, text.as_str(), replaced_digest])
    };
    let parts = Value::Array(batch.iter().map(part).collect());
    let digest = Checksum::blake3_of(parts.to_string().as_bytes());
    format!("documents-{}", digest.as_str().trim_start_matches("blake3:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(id: &str, bytes: usize) -> LocalDocument {
        LocalDocument { id: id.to_owned(), title: None, text: "x".repeat(bytes) }
    }

    #[test]
    fn splits_by_count_and_size() {
        let sizes =
            |documents: &[LocalDocument]| batches(documents).iter().map(|batch| batch.len()).collect::<Vec<_>>();
        let small: Vec<LocalDocument> = (0..45).map(|_| document("a", 10)).collect();
        assert_eq!(sizes(&small), [20, 20, 5]);
        let large: Vec<LocalDocument> =
            [10, MAX_BATCH_BYTES + 1, 10, MAX_BATCH_BYTES - 10, 1].map(|bytes| document("a", bytes)).into();
        assert_eq!(sizes(&large), [1, 1, 2, 1]);
        assert_eq!(sizes(&[]), [0_usize; 0]);
    }

    #[test]
    fn key_depends_on_texts_and_stored_texts() {
        let (first, second) = ([document("a", 1)], [document("a", 2)]);
        let stored_digests = BTreeMap::from([("a".to_owned(), "blake3:00".to_owned())]);
        let no_digests = BTreeMap::new();
        assert_eq!(idempotency_key(&first, &no_digests), idempotency_key(&[document("a", 1)], &no_digests));
        assert_ne!(idempotency_key(&first, &no_digests), idempotency_key(&second, &no_digests));
        assert_ne!(
            idempotency_key(&first, &no_digests),
            idempotency_key(&first, &stored_digests),
            "an earlier text is uploaded again"
        );
    }

    #[test]
    fn derives_id_and_title() {
        assert_eq!(document_id(Path::new("a b/für.md")), "a-b/f-r.md");
        assert_eq!(title("intro\n# The  leave \nmore").as_deref(), Some("The  leave"));
        assert_eq!((title("no heading"), title("#  \n")), (None, None));
    }
}
