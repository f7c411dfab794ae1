//! Responses that carry a resource.

use crate::{
    error::ApiError,
    http::{etag::etag, idempotency::IDEMPOTENCY_REPLAYED},
};
use actix_web::{
    HttpResponse, ResponseError as _,
    http::{
        StatusCode,
        header::{ContentType, LOCATION},
    },
};
use fairway_domain::store::Revision;
use fairway_operations::MaybeReplayed;
use serde::Serialize;

/// Initial buffer capacity that fits most responses, in bytes.
const DEFAULT_CAPACITY: usize = 512;

/// Builder of a JSON response with a resource.
pub(crate) struct ResourceResponse<'a, T> {
    status: StatusCode,
    view: &'a T,
    revision: Option<Revision>,
    location: Option<String>,
    replayed: bool,
    capacity: usize,
}

impl<'a, T: Serialize> ResourceResponse<'a, T> {
    /// 200 with a resource.
    pub(crate) const fn ok(view: &'a T) -> Self {
        Self {
            status: StatusCode::OK,
            view,
            revision: None,
            location: None,
            replayed: false,
            capacity: DEFAULT_CAPACITY,
        }
    }

    /// 201 with a new resource, or the status of the earlier request with the same idempotency key.
    pub(crate) fn created<D>(outcome: &MaybeReplayed<D>, view: &'a T, location: String) -> Result<Self, ApiError> {
        Ok(Self { location: Some(location), ..Self::idempotent(outcome, view, StatusCode::CREATED)? })
    }

    /// A resource with the status `fresh`, or the status of the earlier request with the same idempotency key.
    pub(crate) fn idempotent<D>(outcome: &MaybeReplayed<D>, view: &'a T, fresh: StatusCode) -> Result<Self, ApiError> {
        let status = match outcome.replayed {
            None => fresh,
            Some(status) => StatusCode::from_u16(status).map_err(|_| ApiError::internal())?,
        };
        Ok(Self { status, replayed: outcome.replayed.is_some(), ..Self::ok(view) })
    }

    /// Sets the resource's revision as the entity tag.
    pub(crate) fn with_etag(self, revision: Revision) -> Self {
        Self { revision: Some(revision), ..self }
    }

    /// Adds `bytes` to the initial buffer capacity, so that a large response does not reallocate.
    pub(crate) fn with_capacity(self, bytes: usize) -> Self {
        Self { capacity: DEFAULT_CAPACITY.saturating_add(bytes), ..self }
    }

    pub(crate) fn into_response(self) -> HttpResponse {
        let mut body = Vec::with_capacity(self.capacity);
        if let Err(error) = serde_json::to_writer(&mut body, self.view) {
            return ApiError::internal().log_cause(&error).error_response();
        }
        let mut response = HttpResponse::build(self.status);
        if let Some(revision) = self.revision {
            response.insert_header(etag(revision));
        }
        if let Some(location) = self.location {
            response.insert_header((LOCATION, location));
        }
        if self.replayed {
            response.insert_header((IDEMPOTENCY_REPLAYED, "true"));
        }
        response.content_type(ContentType::json()).body(body)
    }
}
