//! Strong entity tags from a row's revision, and `If-Match` conditions (RFC 9110, section 13).

use crate::error::{ApiError, FieldProblem};
use actix_web::{
    FromRequest, HttpRequest,
    dev::Payload,
    http::header::{HeaderName, HeaderValue, IF_MATCH},
};
use fairway_domain::store::Revision;
use fairway_operations::Precondition;
use std::{
    future::{Ready, ready},
    ops::Deref,
};

/// The `ETag` header of a resource at a revision, for `HttpResponseBuilder::insert_header`.
#[must_use]
pub fn etag(revision: Revision) -> (HeaderName, String) {
    (actix_web::http::header::ETAG, format!("\"{}\"", revision.get()))
}

/// The `If-Match` precondition of a request.
///
/// Without the header any revision matches. `*` matches any existing resource; a missing resource is a 404 anyway.
/// Tags of other servers match nothing and are dropped. A malformed list is a 422, so that the client does not
/// mistake it for a failed precondition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IfMatch(Precondition);

impl Deref for IfMatch {
    type Target = Precondition;

    fn deref(&self) -> &Precondition {
        &self.0
    }
}

/// The precondition of all header values; `None` if one is malformed, or if `*` is not the only value.
fn parse_if_match<'a>(values: impl Iterator<Item = &'a HeaderValue>) -> Option<Precondition> {
    let mut revisions = Vec::new();
    let mut value_count = 0_usize;
    let mut has_wildcard = false;
    for value in values {
        let text = value.to_str().ok()?.trim();
        value_count = value_count.saturating_add(1);
        if text == "*" {
            has_wildcard = true;
        } else {
            revisions.extend(parse_entity_tags(text)?.into_iter().filter_map(parse_revision));
        }
    }
    match (has_wildcard, value_count) {
        (true, 1) | (false, 0) => Some(Precondition::Any),
        (true, _) => None,
        (false, _) => Some(Precondition::OneOf(revisions)),
    }
}

/// Parses a comma-separated list of at least one entity tag (RFC 9110, 8.8.3). A tag may contain commas.
fn parse_entity_tags(text: &str) -> Option<Vec<&str>> {
    let opaque = |byte: u8| byte == 0x21 || (0x23..=0x7e).contains(&byte);
    let mut tags = Vec::new();
    let mut remaining = text;
    loop {
        let inner = remaining.strip_prefix("W/").unwrap_or(remaining).strip_prefix('"')?;
        let (tag, after_tag) = inner.split_once('"')?;
        if !tag.bytes().all(opaque) {
            return None;
        }
        tags.push(remaining.get(..remaining.len().checked_sub(after_tag.len())?)?);
        match after_tag.trim_start() {
            "" => return Some(tags),
            more => remaining = more.strip_prefix(',')?.trim_start(),
        }
    }
}

/// The revision in a strong tag of this server. A weak tag never matches.
fn parse_revision(tag: &str) -> Option<Revision> {
    let digits = tag.strip_prefix('"')?.strip_suffix('"')?;
    let revision = Revision::new(digits.parse().ok()?);
    // Only the canonical form counts: no sign and no leading zeros.
    (revision.get().to_string() == digits).then_some(revision)
}

impl FromRequest for IfMatch {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let precondition = parse_if_match(request.headers().get_all(IF_MATCH)).map(Self);
        let rule = "expected `*` or a list of entity tags in quotes";
        ready(precondition.ok_or_else(|| FieldProblem::new("If-Match", "invalid", rule).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    #[actix_web::test]
    async fn matches_etag_of_current_revision() {
        let (_, tag) = etag(Revision::new(12));
        assert_eq!(tag, "\"12\"");
        for (values, expected) in [
            (vec![], true),
            (vec!["*"], true),
            (vec![tag.as_str()], true),
            (vec!["\"11\", \"12\""], true),
            (vec!["\"11\"", " \"12\" "], true),
            (vec!["\"11\""], false),
            (vec!["W/\"12\""], false),
            (vec!["\"012\""], false),
            (vec!["\"+12\""], false),
            (vec!["\"a,b\""], false),
            (vec!["\"a,b\" ,\"12\""], true),
            (vec!["\"\""], false),
        ] {
            let mut request = TestRequest::patch();
            for value in &values {
                request = request.append_header((IF_MATCH, *value));
            }
            let if_match = IfMatch::extract(&request.to_http_request()).await.unwrap();
            let matches = match &*if_match {
                Precondition::Any => true,
                Precondition::OneOf(revisions) => revisions.contains(&Revision::new(12)),
            };
            assert_eq!(matches, expected, "{values:?}");
        }
    }

    #[actix_web::test]
    async fn refuses_malformed_if_match() {
        for values in [
            vec![""],
            vec!["12"],
            vec!["\"12"],
            vec!["12\""],
            vec!["\"1 2\""],
            vec!["\"12\","],
            vec![",\"12\""],
            vec!["\"12\" \"13\""],
            vec!["w/\"12\""],
            vec!["*, \"12\""],
            vec!["*", "\"12\""],
            vec!["*", "*"],
            vec!["**"],
            vec!["nonsense"],
        ] {
            let mut request = TestRequest::patch();
            for value in &values {
                request = request.append_header((IF_MATCH, *value));
            }
            let refusal = IfMatch::extract(&request.to_http_request()).await.unwrap_err();
            assert_eq!(refusal.code(), "validation_error", "{values:?}");
        }
    }
}
