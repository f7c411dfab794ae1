//! The HTML documents of the portal.
//!
//! A document contains no workload data except the title, the description and the theme of an embeddable page. Its
//! content security policy allows only files of this server, and the one style element with the document's nonce.

use super::{EntryFiles, Portal};
use crate::http::html_page::escape;
use actix_web::{
    HttpResponse,
    http::{
        StatusCode,
        header::{self, HeaderValue},
    },
};
use std::fmt::Write as _;
use uuid::Uuid;

/// Message of a server that was built without the portal, in its log and on its pages.
pub(crate) const NOT_BUILT: &str =
    "this server was built without the portal: run `cargo xtask portal`, then build the server again";
/// The sources that a page may use: files of this server only. Scripts cannot write markup (Trusted Types).
const SOURCES: &str = "script-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// An HTML document of the portal.
#[derive(Clone, Debug)]
pub(crate) struct PortalPage<'a> {
    pub(crate) status: StatusCode,
    /// The page that the script shows.
    pub(crate) kind: PageKind,
    pub(crate) title: &'a str,
    /// Text that is shown until the script has started.
    pub(crate) description: &'a str,
    /// The workload; `None` in the gallery and the console.
    pub(crate) slug: Option<&'a str>,
    /// The server's authentication mode: `local` or `oidc`.
    pub(crate) auth_mode: &'static str,
    /// The CSS variables of the theme. The domain has parsed the values.
    pub(crate) theme: Vec<(&'static str, &'a str)>,
    /// The origins that may frame the page: the value of `frame-ancestors`.
    pub(crate) ancestors: &'a str,
}

/// The pages of the portal. The console has an entry of its own; the others share the runtime entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageKind {
    Gallery,
    Runtime,
    Embed,
    Console,
}

impl PageKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Gallery => "gallery",
            Self::Runtime => "runtime",
            Self::Embed => "embed",
            Self::Console => "console",
        }
    }

    /// The entry that shows the page; `None` in a server that was built without it.
    const fn entry(self, portal: &Portal) -> Option<&EntryFiles> {
        match self {
            Self::Gallery | Self::Runtime | Self::Embed => portal.runtime.as_ref(),
            Self::Console => portal.console.as_ref(),
        }
    }
}

impl PortalPage<'_> {
    /// Renders the document with a new nonce.
    pub(crate) fn render(&self, portal: &Portal) -> HttpResponse {
        let nonce = Uuid::new_v4().simple().to_string();
        let html = self.html(portal, &nonce);
        let mut response = HttpResponse::build(self.status);
        response.content_type("text/html; charset=utf-8");
        if let Ok(policy) = HeaderValue::from_str(&content_security_policy(self.ancestors, &nonce)) {
            response.insert_header((header::CONTENT_SECURITY_POLICY, policy));
        }
        response.body(html)
    }

    fn html(&self, portal: &Portal, nonce: &str) -> String {
        let (title, description) = (escape(self.title), escape(self.description));
        let mut html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"referrer\" content=\"no-referrer\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
             <link rel=\"icon\" href=\"data:,\">\n\
             <title>{title}</title>\n"
        );
        self.write_theme(&mut html, nonce);
        let entry = self.kind.entry(portal);
        if let Some(entry) = entry {
            for style in &entry.styles {
                let _ = writeln!(html, "<link rel=\"stylesheet\" href=\"/_app/{}\">", escape(style));
            }
            for import in &entry.imports {
                let _ = writeln!(html, "<link rel=\"modulepreload\" href=\"/_app/{}\">", escape(import));
            }
            let _ = writeln!(html, "<script type=\"module\" src=\"/_app/{}\"></script>", escape(&entry.script));
        }
        let slug = self.slug.map(|slug| format!(" data-slug=\"{}\"", escape(slug))).unwrap_or_default();
        let (kind, auth, ancestors) = (self.kind.as_str(), escape(self.auth_mode), escape(self.ancestors));
        let _ = write!(
            html,
            "</head>\n<body>\n<div id=\"root\" class=\"svc-root\" data-page=\"{kind}\"{slug} data-auth=\"{auth}\" \
             data-ancestors=\"{ancestors}\">\n<main>\n<h1>{title}</h1>\n<p>{description}</p>\n"
        );
        html.push_str(if entry.is_some() {
            "<noscript><p>This page needs JavaScript. | Diese Seite benötigt JavaScript.</p></noscript>\n"
        } else {
            "<p>This server was built without the portal: run <code>cargo xtask portal</code>, then build the server \
             again.</p>\n"
        });
        html.push_str("</main>\n</div>\n</body>\n</html>\n");
        html
    }

    /// Writes the theme as a style element. It omits each value with a character that could end its CSS
    /// declaration. The domain refuses such values too; this check also covers values that the domain has not
    /// parsed.
    fn write_theme(&self, html: &mut String, nonce: &str) {
        let is_safe = |value: &&str| !value.contains(|character: char| "<>{};\\@*&".contains(character));
        let declarations: Vec<String> = self
            .theme
            .iter()
            .filter(|(_, value)| is_safe(value))
            .map(|(name, value)| format!("{name}: {value};"))
            .collect();
        if !declarations.is_empty() {
            let _ = writeln!(html, "<style nonce=\"{nonce}\">#root {{ {} }}</style>", declarations.join(" "));
        }
    }
}

fn content_security_policy(ancestors: &str, nonce: &str) -> String {
    format!("default-src 'none'; {SOURCES}; style-src 'self' 'nonce-{nonce}'; frame-ancestors {ancestors}")
}
