//! The rule for the URLs of external endpoints.

/// Whether a text is an http or https URL without credentials. Credentials are refused, because content must not
/// contain secrets.
pub(super) fn is_http_url(text: &str) -> bool {
    let Some((scheme, after_scheme)) = text.split_once("://") else { return false };
    let authority = after_scheme.split(['/', '?', '#']).next().unwrap_or_default();
    let is_printable = text.bytes().all(|byte| byte.is_ascii_graphic());
    matches!(scheme, "http" | "https") && is_printable && !authority.is_empty() && !authority.contains('@')
}
