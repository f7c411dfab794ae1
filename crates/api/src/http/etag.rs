//! Strong entity tags made of a row's revision, and the conditions that requests make of them (RFC 9110, section 13).

use crate::error::ApiError;
use actix_web::{
    FromRequest, HttpRequest,
    dev::Payload,
    http::header::{HeaderName, HeaderValue, IF_MATCH},
};
use fairway_domain::store::Revision;
use std::future::{Ready, ready};

/// The header `ETag` of a resource at a revision, as `HttpResponseBuilder::insert_header` takes it.
#[must_use]
pub fn etag(revision: Revision) -> (HeaderName, String) {
    (actix_web::http::header::ETAG, format!("\"{}\"", revision.get()))
}

/// What a request expects of the resource that it changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expected {
    /// Nothing: there is no `If-Match`.
    Anything,
    /// That it exists.
    Existence,
    /// One of these revisions. Tags that were never ours are left out, as they match nothing.
    OneOf(Vec<Revision>),
}

impl Expected {
    /// Checks the condition against the present revision.
    ///
    /// # Errors
    /// 412 when the resource has moved on.
    pub fn admit(&self, present: Revision) -> Result<(), ApiError> {
        match self {
            Self::Anything | Self::Existence => Ok(()),
            Self::OneOf(revisions) if revisions.contains(&present) => Ok(()),
            Self::OneOf(_) => Err(ApiError::precondition_failed()),
        }
    }

    fn of<'a>(values: impl Iterator<Item = &'a HeaderValue>) -> Self {
        let mut revisions = Vec::new();
        let mut sent = false;
        for value in values {
            sent = true;
            let text = value.to_str().unwrap_or_default();
            if text.trim() == "*" {
                return Self::Existence;
            }
            revisions.extend(text.split(',').filter_map(|tag| revision(tag.trim())));
        }
        if sent { Self::OneOf(revisions) } else { Self::Anything }
    }
}

/// The revision in a strong tag of ours. A weak tag never matches strongly.
fn revision(tag: &str) -> Option<Revision> {
    let digits = tag.strip_prefix('"')?.strip_suffix('"')?;
    let revision = Revision::new(digits.parse().ok()?);
    // The spelling must be ours too: no signs and no leading zeros.
    (revision.get().to_string() == digits).then_some(revision)
}

impl FromRequest for Expected {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(Self::of(request.headers().get_all(IF_MATCH))))
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
            let expected = Expected::extract(&request.to_http_request()).await.unwrap();
            let verdict = expected.admit(Revision::new(12)).map_err(|refusal| refusal.code());
            assert_eq!(verdict, if admitted { Ok(()) } else { Err("precondition_failed") }, "{sent:?}");
        }
    }
}
