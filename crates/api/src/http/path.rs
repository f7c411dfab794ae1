//! Identifiers in paths. A malformed identifier is a 404, like an unknown one.

use crate::{error::ApiError, http::HttpState};
use actix_web::{FromRequest, HttpRequest, dev::Payload, web};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use std::{
    future::{Ready, ready},
    ops::Deref,
};
use uuid::Uuid;

/// A path segment with a UUID in its hyphenated form: 36 characters, in either case.
///
/// It is an extractor for paths with one identifier; for more, use `Path<(PathId<AssetId>, PathId<…>)>`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathId<T>(T);

/// The segments of a path, as a tuple or a struct; 404 if they do not match the type.
#[derive(Debug)]
pub struct Path<T>(T);

impl<T> PathId<T> {
    /// Returns the parsed identifier.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for PathId<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Path<T> {
    /// Returns the parsed segments.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<'de, T: From<Uuid>> Deserialize<'de> for PathId<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_uuid(&text).map(|id| Self(id.into())).ok_or_else(|| D::Error::custom("malformed identifier"))
    }
}

/// Parses a UUID in its hyphenated form.
pub(crate) fn parse_uuid(text: &str) -> Option<Uuid> {
    // Only the hyphenated form has this length: braces, `urn:uuid:` and bare digits have others.
    Uuid::try_parse(text).ok().filter(|_| text.len() == 36)
}

impl<T: DeserializeOwned + 'static> FromRequest for Path<T> {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let segments = web::Path::<T>::from_request(request, payload).into_inner();
        ready(segments.map(|segments| Self(segments.into_inner())).map_err(|_| malformed_path_error(request)))
    }
}

/// The decoded path that the router matches. Middlewares must use it, so that another encoding of a path does not
/// bypass them.
pub(crate) fn decoded_path(request: &HttpRequest) -> &str {
    request.match_info().as_str()
}

/// The error for a malformed identifier: 404, or 405 if the path matches a route with another method.
fn malformed_path_error(request: &HttpRequest) -> ApiError {
    let base = request.app_data::<web::Data<HttpState>>();
    match base.and_then(|base| base.known_methods.allow(decoded_path(request))) {
        Some(allow) => ApiError::method_not_allowed(Some(allow)),
        None => ApiError::not_found(),
    }
}

impl<T: From<Uuid> + 'static> FromRequest for PathId<T> {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        ready(Path::<Self>::from_request(request, payload).into_inner().map(Path::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::{App, HttpResponse, http::StatusCode, test};
    use fairway_domain::id::{AssetId, AssetVersionId};

    const ID: &str = "00000000-0000-7000-8000-00000000000a";

    async fn one_id(id: PathId<AssetId>) -> String {
        id.to_string()
    }

    async fn two_ids(ids: Path<(PathId<AssetId>, PathId<AssetVersionId>)>) -> String {
        let (asset, version) = ids.into_inner();
        format!("{} {}", asset.into_inner(), version.into_inner())
    }

    #[actix_web::test]
    async fn accepts_only_hyphenated_uuids() {
        let app = App::new()
            .route("/a/{asset_id}", web::get().to(one_id))
            .route("/a/{asset_id}/v/{asset_version_id}", web::get().to(two_ids))
            .default_service(web::to(|| async { HttpResponse::NotFound().finish() }));
        let app = test::init_service(app).await;
        let upper = ID.to_uppercase();
        let bare = ID.replace('-', "");
        for (segment, status) in [
            (ID, StatusCode::OK),
            (&upper, StatusCode::OK),
            (&bare, StatusCode::NOT_FOUND),
            (&format!("%7B{ID}%7D"), StatusCode::NOT_FOUND),
            (&format!("urn:uuid:{ID}"), StatusCode::NOT_FOUND),
            (&ID[1..], StatusCode::NOT_FOUND),
            (&format!("{ID}0"), StatusCode::NOT_FOUND),
            (&format!("{ID}%00"), StatusCode::NOT_FOUND),
            (&format!("..%2f{ID}"), StatusCode::NOT_FOUND),
            ("%ff", StatusCode::NOT_FOUND),
            ("9223372036854775808", StatusCode::NOT_FOUND),
        ] {
            for path in [format!("/a/{segment}"), format!("/a/{ID}/v/{segment}"), format!("/a/{segment}/v/{ID}")] {
                let response = test::call_service(&app, test::TestRequest::with_uri(&path).to_request()).await;
                assert_eq!(response.status(), status, "{path}");
            }
        }
        let request = test::TestRequest::with_uri(&format!("/a/{upper}")).to_request();
        assert_eq!(test::call_and_read_body(&app, request).await, ID.as_bytes());
    }
}
