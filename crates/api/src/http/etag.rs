//! Strong entity tags made of a row's revision, and the conditions that requests make of them (RFC 9110, section 13).

use crate::error::ApiError;
use actix_web::{
    FromRequest, HttpRequest,
    dev::Payload,
    http::header::{HeaderName, HeaderValue, IF_MATCH},
};
use fairway_domain::store::Revision;
use fairway_operations::Expected;
use std::{
    future::{Ready, ready},
    ops::Deref,
};

/// The header `ETag` of a resource at a revision, as `HttpResponseBuilder::insert_header` takes it.
#[must_use]
pub fn etag(revision: Revision) -> (HeaderName, String) {
    (actix_web::http::header::ETAG, format!("\"{}\"", revision.get()))
}

/// What a request expects of the resource that it changes: the header `If-Match`.
///
/// Without the header anything will do. With `*` it must exist, which it does or the answer is a 404. Tags that were
/// never ours are left out, as they match nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IfMatch(Expected);

impl Deref for IfMatch {
    type Target = Expected;

    fn deref(&self) -> &Expected {
        &self.0
    }
}

fn expected<'a>(values: impl Iterator<Item = &'a HeaderValue>) -> Expected {
    let mut revisions = Vec::new();
    let mut sent = false;
    for value in values {
        sent = true;
        let text = value.to_str().unwrap_or_default();
        if text.trim() == "*" {
            return Expected::Any;
        }
        revisions.extend(text.split(',').filter_map(|tag| revision(tag.trim())));
    }
    if sent { Expected::OneOf(revisions) } else { Expected::Any }
}

/// The revision in a strong tag of ours. A weak tag never matches strongly.
fn revision(tag: &str) -> Option<Revision> {
    let digits = tag.strip_prefix('"')?.strip_suffix('"')?;
    let revision = Revision::new(digits.parse().ok()?);
    // The spelling must be ours too: no signs and no leading zeros.
    (revision.get().to_string() == digits).then_some(revision)
}

impl FromRequest for IfMatch {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(Self(expected(request.headers().get_all(IF_MATCH)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    #[actix_web::test]
    async fn the_tag_of_a_resource_matches_it() {
        let (_, tag) = etag(Revision::new(12));
        assert_eq!(tag, "\"12\"");
        for (sent, admitted) in [
            (vec![], true),
            (vec!["*"], true),
            (vec![tag.as_str()], true),
            (vec!["\"11\", \"12\""], true),
            (vec!["\"11\"", " \"12\" "], true),
            (vec!["\"11\""], false),
            (vec!["W/\"12\""], false),
            (vec!["12"], false),
            (vec!["\"012\""], false),
            (vec!["\"+12\""], false),
            (vec!["\"a,b\""], false),
            (vec![""], false),
        ] {
            let mut request = TestRequest::patch();
            for value in &sent {
                request = request.append_header((IF_MATCH, *value));
            }
            let sent_as = IfMatch::extract(&request.to_http_request()).await.unwrap();
            let matches = match &*sent_as {
                Expected::Any => true,
                Expected::OneOf(revisions) => revisions.contains(&Revision::new(12)),
            };
            assert_eq!(matches, admitted, "{sent:?}");
        }
    }
}
