//! Answers that carry a resource.

use crate::{
    error::ApiError,
    http::{etag::etag, idempotency::IDEMPOTENCY_REPLAYED},
};
use actix_web::{
    HttpResponse,
    http::{StatusCode, header::LOCATION},
};
use fairway_domain::store::Revision;
use fairway_operations::Done;
use serde::Serialize;

/// An answer with a resource, before it is sent.
pub(crate) struct Answer<'a, T> {
    status: StatusCode,
    view: &'a T,
    revision: Option<Revision>,
    location: Option<String>,
    replayed: bool,
}

impl<'a, T: Serialize> Answer<'a, T> {
    /// 200 with a resource.
    pub(crate) const fn ok(view: &'a T) -> Self {
        Self { status: StatusCode::OK, view, revision: None, location: None, replayed: false }
    }

    /// 201 with a new resource, or what an earlier request with the same key answered.
    pub(crate) fn made<D>(done: &Done<D>, view: &'a T, location: String) -> Result<Self, ApiError> {
        Ok(Self { location: Some(location), ..Self::once(done, view, StatusCode::CREATED)? })
    }

    /// `fresh` with a resource, or what an earlier request with the same key answered.
    pub(crate) fn once<D>(done: &Done<D>, view: &'a T, fresh: StatusCode) -> Result<Self, ApiError> {
        let status = match done.replayed {
            None => fresh,
            Some(status) => StatusCode::from_u16(status).map_err(|_| ApiError::internal())?,
        };
        Ok(Self { status, replayed: done.replayed.is_some(), ..Self::ok(view) })
    }

    /// With the resource's revision as entity tag.
    pub(crate) fn tagged(self, revision: Revision) -> Self {
        Self { revision: Some(revision), ..self }
    }

    pub(crate) fn send(self) -> HttpResponse {
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
        response.json(self.view)
    }
}
