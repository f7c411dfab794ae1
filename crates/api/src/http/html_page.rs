//! Small static HTML pages, without scripts or subresources.

use actix_web::{
    HttpResponse,
    http::{
        StatusCode,
        header::{ACCEPT, HeaderMap},
    },
};

/// Creates a page. `title` and `body` must be escaped HTML.
pub(crate) fn page(status: StatusCode, title: &str, body: &str) -> HttpResponse {
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<title>{title}</title>\n</head>\n\
         <body>\n<main>\n<h1>{title}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    );
    HttpResponse::build(status).content_type("text/html; charset=utf-8").body(page)
}

/// Escapes a text for HTML content and attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            plain => escaped.push(plain),
        }
    }
    escaped
}

/// Whether a client prefers HTML to JSON, as browsers do. A client without a preference receives JSON.
pub(crate) fn prefers_html(headers: &HeaderMap) -> bool {
    quality(headers, "text/html") > quality(headers, "application/json")
}

/// The quality of a media type in thousandths, from its most specific range (RFC 9110, 12.5.1).
fn quality(headers: &HeaderMap, kind: &str) -> u32 {
    let family = kind.split('/').next().unwrap_or_default();
    let values = headers.get_all(ACCEPT).filter_map(|value| value.to_str().ok());
    let ranges = values.flat_map(|value| value.split(',')).filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let exactness = if name == kind {
            2
        } else if name.split_once('/') == Some((family, "*")) {
            1
        } else if name == "*/*" {
            0
        } else {
            return None;
        };
        let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |text| text.parse::<f32>().ok());
        // An invalid quality counts as 0.
        let quality = quality.filter(|quality| (0.0..=1.0).contains(quality)).unwrap_or_default();
        Some((exactness, quality))
    });
    let best = ranges.max_by_key(|(exactness, _)| *exactness);
    best.map_or(0, |(_, quality)| thousandths(quality))
}

/// Converts a quality to thousandths. A quality has at most three decimal digits.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a quality is between 0 and 1")]
fn thousandths(quality: f32) -> u32 {
    (quality * 1_000.0).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    #[test]
    fn escapes_html_special_characters() {
        assert_eq!(escape("<b a='1' c=\"2\">&amp;"), "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;amp;");
    }

    #[test]
    fn prefers_html_only_for_browsers() {
        for (accept, expected) in [
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true),
            ("text/html", true),
            ("TEXT/HTML; charset=utf-8", true),
            ("text/*;q=0.5, application/json;q=0.4", true),
            ("*/*", false),
            ("", false),
            ("application/json, text/html", false),
            ("text/html;q=0", false),
            ("text/html;q=0, */*", false),
            ("text/html;q=nonsense", false),
            ("application/problem+json", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(prefers_html(&headers), expected, "{accept}");
        }
        assert!(!prefers_html(&HeaderMap::new()));
    }
}
