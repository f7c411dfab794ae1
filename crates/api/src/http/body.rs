//! Request bodies: size-bounded JSON, read strictly and deserialized into the handler's type.

mod diagnosis;
mod forbidden_names;
mod no_array_as_struct;
mod validation;

pub use forbidden_names::ForbiddenNames;
pub(crate) use validation::{to_validation_error, to_validation_errors, validate_list_length};

use super::{
    HttpState,
    client_address::client_of,
    deserialize_error,
    load_shedding::BodySender,
    memory_budget::{RequestMemory, SMALL_REQUEST_BYTES},
};
use crate::{
    caller::map_body_problems,
    error::{ApiError, FieldProblem},
};
use actix_web::{
    FromRequest, HttpMessage as _, HttpRequest,
    dev::Payload,
    http::{
        StatusCode,
        header::{self, HeaderMap},
    },
    web::{self, BytesMut},
};
use fairway_domain::{
    asset::canonical::Canonical,
    json::{self, JsonRefusal},
};
use fairway_operations::Failure;
use forbidden_names::ScanResult;
use futures_util::{StreamExt as _, future::LocalBoxFuture};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Map, Value};
use std::{
    future::{Ready, ready},
    marker::PhantomData,
    ops::Deref,
};
use tokio::time::timeout;
use validator::Validate;

/// Default body limit of a route, in bytes.
pub const DEFAULT_BODY_LIMIT: usize = 1 << 20;
/// Body bytes that routes with a larger limit read before they authorize the caller.
const MAX_UNAUTHORIZED_BYTES: usize = 64 << 10;
/// Factor for the peak memory of a document in a handler, which stores it as values and as text.
const DOCUMENT_COPIES: usize = 2;

/// A body of at most `LIMIT` bytes, deserialized as a `T` and validated by its rules. An absent body counts as `{}`.
///
/// Errors: 408 if the body does not arrive within `body_timeout`, 413 beyond the limit, 415 unless it is unencoded
/// `application/json` in UTF-8. 400 `malformed_json` for malformed or ambiguous JSON, and `bad_request` for broken
/// chunks. 422 with every field that does not fit `T`; if all fit, with every value that breaks a rule of `T`. 503
/// if the memory budget is exhausted.
#[derive(Debug)]
pub struct Body<T, const LIMIT: usize = DEFAULT_BODY_LIMIT> {
    value: T,
    document: Value,
}

impl<T, const LIMIT: usize> Body<T, LIMIT> {
    /// Returns the deserialized value without the document.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// Splits off a member that the type deferred. The member is moved out of the document.
    pub fn split_member(self, member: &str) -> (T, Value) {
        let (value, [member]) = self.split_members([member]);
        (value, member)
    }

    /// Splits off the members that the type deferred. They are moved out of the document.
    pub fn split_members<const N: usize>(self, members: [&str; N]) -> (T, [Value; N]) {
        let Self { value, mut document } = self;
        let mut take = |member: &str| document.as_object_mut().and_then(|members| members.remove(member));
        (value, members.map(|member| take(member).unwrap_or_default()))
    }

    /// The body as JSON, without any loss.
    pub const fn document(&self) -> &Value {
        &self.document
    }

    /// The value and the digest of the body.
    pub fn into_parts(self) -> (T, [u8; 32]) {
        let digest = self.digest();
        (self.value, digest)
    }

    /// BLAKE3 digest of the canonical body; it identifies a repeated request.
    pub fn digest(&self) -> [u8; 32] {
        digest(&self.document)
    }
}

impl<T, const LIMIT: usize> Deref for Body<T, LIMIT> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: DeserializeOwned + Validate, const LIMIT: usize> FromRequest for Body<T, LIMIT> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (received, request) = (receive_bounded(request, payload, LIMIT), request.clone());
        Box::pin(async move { Self::read(received.await?, &request).await })
    }
}

impl<T: DeserializeOwned + Validate, const LIMIT: usize> Body<T, LIMIT> {
    async fn read((bytes, mut memory): ReceivedBody, request: &HttpRequest) -> Result<Self, ApiError> {
        let (document, heap_bytes) = if bytes.is_empty() {
            (Value::Object(Map::new()), 0)
        } else {
            // Parsed values occupy up to 100 times the bytes of their text, so the reservation precedes the parse.
            let max_bytes = json::max_heap_bytes(&bytes);
            let peak_bytes = max_bytes.saturating_add(bytes.len()).max(max_bytes.saturating_mul(DOCUMENT_COPIES));
            memory.resize_for_values(peak_bytes).await.map_err(|_| ApiError::unavailable())?;
            json::read_measured(&bytes).map_err(map_json_refusal)?
        };
        // Frees the received bytes now, because only the parsed document is still needed.
        drop(bytes);
        // The previous reservation was an upper bound, so this one only shrinks and never waits.
        memory
            .resize_for_values(heap_bytes.saturating_mul(DOCUMENT_COPIES))
            .await
            .map_err(|_| ApiError::unavailable())?;
        // The reservation lasts until the response: the handler derives further data from the document.
        request.extensions_mut().insert(memory);
        let value = deserialize_strict(&document)
            .and_then(|value: T| validation::validate(&value).map(|()| value))
            .map_err(|problems| map_body_problems(request, problems))?;
        Ok(Self { value, document })
    }
}

/// A body of a route with a large limit. Only the first 64 KiB are read before the caller is authorized.
///
/// Errors: the same as those of [`Body`].
pub struct DeferredBody<T, const LIMIT: usize> {
    request: HttpRequest,
    payload: Payload,
    marker: PhantomData<T>,
}

impl<T, const LIMIT: usize> FromRequest for DeferredBody<T, LIMIT> {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let header_check = check_headers(request.headers(), LIMIT);
        ready(header_check.map(|()| Self { request: request.clone(), payload: payload.take(), marker: PhantomData }))
    }
}

impl<T: DeserializeOwned + Validate, const LIMIT: usize> DeferredBody<T, LIMIT> {
    /// Reads the body. It awaits `authorize` first if the body is large or its length unknown.
    ///
    /// # Errors
    /// The error of `authorize`, and those of [`Body`].
    pub async fn read_authorizing_first_if_large(
        mut self,
        authorize: impl Future<Output = Result<(), Failure>>,
    ) -> Result<Body<T, LIMIT>, ApiError> {
        let headers = self.request.headers();
        let is_small = !headers.contains_key(header::TRANSFER_ENCODING)
            && content_length(headers).unwrap_or_default() <= MAX_UNAUTHORIZED_BYTES;
        if !is_small {
            authorize.await?;
        }
        let received = receive_bounded(&self.request, &mut self.payload, LIMIT).await?;
        Body::read(received, &self.request).await
    }
}

/// A body without forbidden member names. A body with such a name is refused with 422 `forbidden_field` before any
/// other check, and the error repeats nothing of the body. Valid JSON with more names than the scan checks is refused
/// in the same way.
#[derive(Debug)]
pub struct BodyWithoutForbiddenNames<T>(pub Body<T>);

impl<T: DeserializeOwned + ForbiddenNames + Validate> FromRequest for BodyWithoutForbiddenNames<T> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (received, request) = (receive_bounded(request, payload, DEFAULT_BODY_LIMIT), request.clone());
        Box::pin(async move {
            let (bytes, memory) = received.await?;
            match forbidden_names::scan::<T>(&bytes) {
                ScanResult::Clean => Body::read((bytes, memory), &request).await.map(Self),
                ScanResult::Forbidden => Err(forbidden_field()),
                ScanResult::TooMany => Err(json::read(&bytes).map_or_else(map_json_refusal, |_| forbidden_field())),
            }
        })
    }
}

fn forbidden_field() -> ApiError {
    let message = "the body contains an identity field that this route does not accept";
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "forbidden_field", message)
}

/// The bytes of a body, with their memory reservation.
type ReceivedBody = (BytesMut, RequestMemory);

/// Receives the bytes of a body within the limits of size and time.
fn receive_bounded(
    request: &HttpRequest,
    payload: &mut Payload,
    limit: usize,
) -> impl Future<Output = Result<ReceivedBody, ApiError>> + use<> {
    let header_check = check_headers(request.headers(), limit);
    let announced = content_length(request.headers());
    let base = request.app_data::<web::Data<HttpState>>().cloned();
    let client = client_of(request);
    let sender = request.extensions().get::<BodySender>().cloned().unwrap_or_default();
    let payload = payload.take();
    async move {
        header_check?;
        let base = base.ok_or_else(ApiError::internal)?;
        let memory = base.memory_budgets.empty_request_reservation(client, sender);
        let received = timeout(base.body_timeout, receive(payload, memory, announced, limit)).await;
        received.map_err(|_| ApiError::request_timeout())?
    }
}

fn map_json_refusal(refusal: JsonRefusal) -> ApiError {
    match refusal {
        JsonRefusal::Malformed => ApiError::malformed_json(),
        JsonRefusal::TooLarge => ApiError::payload_too_large(),
    }
}

/// A required member that may be large. It is not deserialized, because that would copy it; [`Body::split_member`]
/// moves it out of the document.
#[derive(Debug)]
pub struct DeferredMember;

impl<'de> Deserialize<'de> for DeferredMember {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// Deserializes a JSON value as a `T`, and reports every field that does not fit.
///
/// # Errors
/// When the value is not a `T`: each missing field, each unknown field and each value of a wrong type, up to 200.
pub fn deserialize_strict<T: DeserializeOwned>(document: &Value) -> Result<T, Vec<FieldProblem>> {
    serde_path_to_error::deserialize(no_array_as_struct::StrictValue(document))
        .map_err(|failure| diagnosis::diagnose::<T>(document, deserialize_error::to_field_problem(failure)))
}

/// Deserializes an optional member of a change. A present `null` is passed to `T`, and most types refuse it.
///
/// # Errors
/// When the value is not a `T`.
pub fn deserialize_present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// BLAKE3 digest of a canonical document.
pub fn digest(document: &Value) -> [u8; 32] {
    let hash = match Canonical::of(document) {
        Ok(canonical) => blake3::hash(canonical.bytes()),
        // Integers beyond 2^53 have no canonical form, but a repeated request contains the same text.
        Err(_) => blake3::hash(document.to_string().as_bytes()),
    };
    *hash.as_bytes()
}

/// Validates the headers of a body before the server reads it.
fn check_headers(headers: &HeaderMap, limit: usize) -> Result<(), ApiError> {
    // `identity` is refused too: it is valid in `Accept-Encoding` only.
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(ApiError::unsupported_media_type());
    }
    let mut kinds = headers.get_all(header::CONTENT_TYPE);
    let is_supported = match (kinds.next(), kinds.next()) {
        (None, _) => !announces_body(headers),
        (Some(kind), None) => kind.to_str().is_ok_and(is_json),
        (Some(_), Some(_)) => false,
    };
    if !is_supported {
        return Err(ApiError::unsupported_media_type());
    }
    match content_length(headers) {
        Some(length) if length > limit => Err(ApiError::payload_too_large()),
        Some(_) | None => Ok(()),
    }
}

fn announces_body(headers: &HeaderMap) -> bool {
    headers.contains_key(header::TRANSFER_ENCODING) || content_length(headers).is_some_and(|length| length > 0)
}

/// The announced length; an invalid length exceeds every limit.
pub(super) fn content_length(headers: &HeaderMap) -> Option<usize> {
    let length = headers.get(header::CONTENT_LENGTH)?;
    Some(length.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(usize::MAX))
}

/// `application/json`, without a charset or with UTF-8.
fn is_json(kind: &str) -> bool {
    let mut parts = kind.split(';').map(str::trim);
    let is_json_type = parts.next().is_some_and(|media| media.eq_ignore_ascii_case("application/json"));
    let is_utf8 = parts.all(|parameter| match parameter.split_once('=') {
        Some((name, value)) if name.eq_ignore_ascii_case("charset") => {
            value.trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        Some(_) => true,
        None => parameter.is_empty(),
    });
    is_json_type && is_utf8
}

/// Receives the body. The first bytes reserve memory as they arrive, because a request head alone must not reserve the
/// memory of a body. Then the announced rest is reserved at once, in the budget and in the buffer: two bodies with half
/// a reservation each would deadlock. The server does not read from the connection while a body waits for memory.
async fn receive(
    mut payload: Payload,
    mut memory: RequestMemory,
    announced: Option<usize>,
    limit: usize,
) -> Result<ReceivedBody, ApiError> {
    // Only chunks can break the framing of a body; a body of known length can only end early.
    let is_chunked = announced.is_none();
    let announced = announced.unwrap_or_default().min(limit);
    let mut bytes = BytesMut::new();
    let mut is_reserved = false;
    while let Some(chunk) = payload.next().await {
        let chunk =
            chunk.map_err(|_| if is_chunked { ApiError::malformed_http() } else { ApiError::malformed_json() })?;
        let length = bytes.len().saturating_add(chunk.len());
        if length > limit {
            return Err(ApiError::payload_too_large());
        }
        let reservation = if length > SMALL_REQUEST_BYTES && !is_reserved {
            is_reserved = true;
            memory.reserve_arriving(announced.max(length)).await
        } else if bytes.is_empty() {
            memory.reserve_arriving(length).await
        } else {
            memory.try_grow_to(length)
        };
        reservation.map_err(|_| ApiError::unavailable())?;
        if is_reserved {
            bytes.reserve(announced.saturating_sub(bytes.len()));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok((bytes, memory))
}

#[cfg(test)]
mod tests;
