//! The portal's pages: the built files under `/_app/`, and the HTML documents that load them.
//!
//! The server embeds the files of `portal/dist`. If it was built without them, its pages explain how to build them.

pub(crate) mod page;
pub(crate) mod routes;

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{self, HeaderName, HeaderValue},
};
use bytes::Bytes;
use serde::Deserialize;
use std::{collections::BTreeMap, fmt};

include!(concat!(env!("OUT_DIR"), "/portal_files.rs"));

/// Name of the build's manifest, which maps entries to hashed file names.
const MANIFEST: &str = "manifest.json";
/// The entry of the runtime pages in the manifest.
const RUNTIME_ENTRY: &str = "src/runtime/main.tsx";
/// The entry of the operator's console in the manifest.
const CONSOLE_ENTRY: &str = "src/console/main.tsx";
/// Cache directive of built files. Their names contain a hash of the content, so a file never changes.
const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// A built file, and its compressed forms.
#[derive(Clone, Copy)]
pub(crate) struct PortalFile {
    name: &'static str,
    plain: &'static [u8],
    gzip: Option<&'static [u8]>,
    brotli: Option<&'static [u8]>,
}

impl fmt::Debug for PortalFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({} bytes)", self.name, self.plain.len())
    }
}

/// The built portal; empty in a server that was built without it.
#[derive(Clone, Debug, Default)]
pub struct Portal {
    files: BTreeMap<&'static str, PortalFile>,
    runtime: Option<EntryFiles>,
    console: Option<EntryFiles>,
}

/// The files that a page loads first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EntryFiles {
    /// The file of the entry's script.
    script: String,
    /// The files of the scripts that this script imports statically.
    imports: Vec<String>,
    /// The files of the style sheets.
    styles: Vec<String>,
}

/// A chunk in the manifest of Vite, which builds the portal.
#[derive(Deserialize)]
struct Chunk {
    file: String,
    #[serde(default)]
    css: Vec<String>,
    #[serde(default)]
    imports: Vec<String>,
}

impl Portal {
    /// The portal that was embedded when this server was built.
    #[must_use]
    pub fn embedded() -> Self {
        Self::from_files(FILES)
    }

    fn from_files(list: &[PortalFile]) -> Self {
        let mut files: BTreeMap<&'static str, PortalFile> = list.iter().map(|file| (file.name, *file)).collect();
        let manifest: Option<BTreeMap<String, Chunk>> =
            files.remove(MANIFEST).and_then(|file| serde_json::from_slice(file.plain).ok());
        let entry = |name| manifest.as_ref().and_then(|chunks| EntryFiles::find(chunks, name));
        let (runtime, console) = (entry(RUNTIME_ENTRY), entry(CONSOLE_ENTRY));
        Self { files, runtime, console }
    }

    /// Whether the server was built with the portal.
    #[must_use]
    pub const fn is_built(&self) -> bool {
        self.runtime.is_some()
    }

    /// The response with a built file; `None` if there is no such file.
    fn file(&self, name: &str, request: &HttpRequest) -> Option<HttpResponse> {
        let file = self.files.get(name)?;
        let (bytes, encoding) = file.encoded(accepted_encodings(request).as_str());
        let mut response = HttpResponse::Ok();
        response
            .content_type(content_type(name))
            .insert_header((header::CACHE_CONTROL, IMMUTABLE))
            .insert_header((header::VARY, "Accept-Encoding"))
            .insert_header((RESOURCE_POLICY, "same-origin"));
        if let Some(encoding) = encoding {
            response.insert_header((header::CONTENT_ENCODING, encoding));
        }
        Some(response.body(Bytes::from_static(bytes)))
    }
}

impl PortalFile {
    /// The smallest form that a client accepts, and its encoding.
    fn encoded(&self, accept_encoding: &str) -> (&'static [u8], Option<&'static str>) {
        let accepts = |encoding: &str| {
            accept_encoding.split(',').any(|item| {
                let (name, weight) = item.split_once(';').unwrap_or((item, ""));
                let is_refused = weight.trim().strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0_f32));
                name.trim().eq_ignore_ascii_case(encoding) && !is_refused
            })
        };
        match (self.brotli, self.gzip) {
            (Some(bytes), _) if accepts("br") => (bytes, Some("br")),
            (_, Some(bytes)) if accepts("gzip") => (bytes, Some("gzip")),
            _ => (self.plain, None),
        }
    }
}

impl EntryFiles {
    /// Finds an entry with the files that it loads before it runs.
    fn find(chunks: &BTreeMap<String, Chunk>, name: &str) -> Option<Self> {
        let entry = chunks.get(name)?;
        let mut entry_files = Self { script: entry.file.clone(), imports: Vec::new(), styles: entry.css.clone() };
        let mut pending: Vec<&String> = entry.imports.iter().collect();
        while let Some(chunk) = pending.pop().and_then(|name| chunks.get(name)) {
            if !entry_files.imports.contains(&chunk.file) {
                entry_files.imports.push(chunk.file.clone());
                entry_files.styles.extend(chunk.css.iter().filter(|style| !entry.css.contains(style)).cloned());
                pending.extend(&chunk.imports);
            }
        }
        Some(entry_files)
    }
}

fn accepted_encodings(request: &HttpRequest) -> String {
    let values = request.headers().get_all(header::ACCEPT_ENCODING);
    values.filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(",")
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
pub(crate) mod tests;
