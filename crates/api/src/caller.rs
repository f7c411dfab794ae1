//! Who a request is from.

use crate::{
    compose::Api,
    error::{ApiError, FieldProblem},
    http::{admission::Party, path, request_context::request_id},
};
use actix_web::{
    FromRequest, HttpMessage as _, HttpRequest,
    dev::Payload,
    http::header::{HeaderMap, HeaderName},
    web,
};
use fairway_domain::access::{ActorKind, ActorRef, Caller};
use fairway_operations::access::Claims;
use futures_util::future::LocalBoxFuture;
use std::{
    future::{Ready, ready},
    ops::Deref,
    time::Instant,
};

const ACTOR: HeaderName = HeaderName::from_static("x-actor-ref");
const TENANT: HeaderName = HeaderName::from_static("x-tenant-id");

/// Who a request says that it is from; nothing has been looked up yet.
#[derive(Clone, Debug)]
pub(crate) struct Claimed(pub(crate) Claims);

/// The caller, with rights read for this request.
#[derive(Clone, Debug)]
pub(crate) struct Identified(pub(crate) Caller);

impl Deref for Identified {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.0
    }
}

impl FromRequest for Claimed {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(admitted(request).map(Self))
    }
}

impl FromRequest for Identified {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let claims = admitted(request);
        let api = request.app_data::<web::Data<Api>>().cloned();
        Box::pin(async move {
            let claims = claims?;
            let api = api.ok_or_else(ApiError::internal)?;
            let caller = api.services.identify(api.mode, &claims, request_id()).await?;
            Ok(Self(caller))
        })
    }
}

/// Who a request says that it is from, once there is a place for it: before anything is looked up for it, and until it
/// is answered.
fn admitted(request: &HttpRequest) -> Result<Claims, ApiError> {
    let claims = claims(request.headers())?;
    let api = request.app_data::<web::Data<Api>>().ok_or_else(ApiError::internal)?;
    let party = claims.tenant.map_or_else(|| Party::Caller(claims.actor.clone()), Party::Tenant);
    match api.admission.admit(party, Instant::now()) {
        Some(place) => {
            request.extensions_mut().insert(place);
            Ok(claims)
        }
        None => {
            api.metrics.refused_for_load();
            Err(ApiError::unavailable())
        }
    }
}

/// A local server believes the header; without one, the person in front of it speaks.
fn claims(headers: &HeaderMap) -> Result<Claims, ApiError> {
    let actor = match single(headers, &ACTOR, "X-Actor-Ref")? {
        None => ActorRef::local(),
        Some(text) => match ActorRef::parse(text).map(|actor| (actor.kind(), actor)) {
            Ok((ActorKind::User | ActorKind::Service | ActorKind::Anonymous, actor)) => actor,
            Ok((ActorKind::Group | ActorKind::System | ActorKind::ShareLink, _)) | Err(_) => {
                return Err(ApiError::invalid_field(FieldProblem::new(
                    "X-Actor-Ref",
                    "invalid",
                    "expected `user:<name>`, `service:<name>` or `anonymous`",
                )));
            }
        },
    };
    let tenant = match single(headers, &TENANT, "X-Tenant-Id")? {
        None => None,
        // What is no identifier is nobody's tenant.
        Some(text) => Some(path::identifier(text).ok_or_else(ApiError::not_found)?.into()),
    };
    Ok(Claims { actor, groups: Vec::new(), tenant })
}

/// The one value of a header. Of two, one reader would pick the first and another the last.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName, shown: &str) -> Result<Option<&'a str>, ApiError> {
    let mut values = headers.get_all(name);
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match value.to_str() {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(ApiError::invalid_field(FieldProblem::invalid(shown))),
        },
        (Some(_), Some(_)) => {
            let problem = FieldProblem::new(shown, "invalid", "this header is given more than once");
            Err(ApiError::invalid_field(problem))
        }
    }
}
