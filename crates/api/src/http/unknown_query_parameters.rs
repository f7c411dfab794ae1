//! Strict query parameters: a route refuses unknown parameters. If a misspelled filter were ignored, the response would
//! contain everything. If a misspelled condition were ignored, it would not be checked.

use super::{
    fallback::openapi_path,
    path::decoded_path,
    query::{self, SHARE_TOKEN_PARAMETER},
};
use crate::{
    error::{ApiError, FieldProblem},
    http::HttpState,
    openapi::operations,
};
use actix_web::{
    Error, ResponseError as _,
    body::{EitherBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::Method,
    middleware::Next,
    web,
};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::openapi::{
    OpenApi, RefOr,
    path::{Operation, ParameterIn},
};

/// Path prefix of strict routes. Other paths are lenient, because clients of pages and probes add their own
/// parameters.
const STRICT_PREFIX: &str = "/v1/";

/// The query parameters of each method of each path pattern.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KnownQueries(BTreeMap<String, BTreeMap<&'static str, BTreeSet<String>>>);

impl KnownQueries {
    /// Collects the parameters from the OpenAPI document, which contains every parameter.
    #[must_use]
    pub fn from_openapi(document: &OpenApi) -> Self {
        let mut known_queries = Self::default();
        for (pattern, item) in &document.paths.paths {
            let methods = operations(item).map(|(method, operation)| (method, query_parameters(operation)));
            known_queries.0.insert(pattern.clone(), methods.collect());
        }
        known_queries
    }

    /// The parameters of a route; `None` if there is no such route.
    fn for_route(&self, pattern: &str, method: &Method) -> Option<&BTreeSet<String>> {
        self.0.get(&*openapi_path(pattern))?.get(method.as_str())
    }
}

fn query_parameters(operation: &Operation) -> BTreeSet<String> {
    let parameters = operation.parameters.iter().flatten();
    parameters
        .filter_map(|parameter| match parameter {
            RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => Some(parameter.name.clone()),
            // The handlers describe their parameters inline, so there are no references.
            RefOr::T(_) | RefOr::Ref(_) => None,
        })
        .collect()
}

/// Middleware that refuses unknown parameters. A request without a query passes without any work.
///
/// # Errors
/// The errors of the inner service.
pub async fn refuse_unknown_query_parameters<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    match check(&request) {
        Ok(()) => Ok(next.call(request).await?.map_into_left_body()),
        Err(refusal) => {
            let (request, _) = request.into_parts();
            Ok(ServiceResponse::new(request, refusal.error_response()).map_into_right_body())
        }
    }
}

fn check(request: &ServiceRequest) -> Result<(), ApiError> {
    if request.query_string().is_empty() || !decoded_path(request.request()).starts_with(STRICT_PREFIX) {
        return Ok(());
    }
    let base = request.app_data::<web::Data<HttpState>>().ok_or_else(ApiError::internal)?;
    let pattern = request.resource_map().match_pattern(decoded_path(request.request()));
    let Some(names) = pattern.and_then(|pattern| base.known_queries.for_route(&pattern, request.method())) else {
        return Ok(());
    };
    let parameters = query::parameters(request.query_string()).map_err(ApiError::invalid_field)?;
    let unknown: Vec<FieldProblem> = parameters
        .into_keys()
        // Every route accepts a token: pages that were opened by a share link pass it along.
        .filter(|name| name != SHARE_TOKEN_PARAMETER && !names.contains(name))
        .map(|name| {
            let path: String = name.chars().take(64).collect();
            FieldProblem::new(path, "unknown_parameter", "this route has no such parameter")
        })
        .collect();
    if unknown.is_empty() { Ok(()) } else { Err(ApiError::validation(unknown)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::test_support;
    use actix_web::{App, HttpResponse, http::StatusCode, middleware::from_fn, test};
    use serde_json::{Value, json};

    fn known_queries() -> KnownQueries {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let methods = BTreeMap::from([("GET", names(&["limit", "q"])), ("POST", names(&[]))]);
        KnownQueries(BTreeMap::from([("/v1/things".to_owned(), methods)]))
    }

    #[actix_web::test]
    async fn refuses_unknown_query_parameters() {
        let base = web::Data::new(HttpState { known_queries: known_queries(), ..test_support::http_state() });
        let handler = || async { HttpResponse::Ok().finish() };
        let app = App::new()
            .app_data(base)
            .service(web::resource("/v1/things").to(handler))
            .service(web::resource("/pages").to(handler))
            .default_service(web::to(|| async { HttpResponse::NotFound().finish() }))
            .wrap(from_fn(refuse_unknown_query_parameters));
        let app = test::init_service(app).await;
        for (method, uri, status) in [
            ("GET", "/v1/things", 200),
            ("GET", "/v1/things?", 200),
            ("GET", "/v1/things?q=a&limit=1&token=x", 200),
            ("GET", "/v1/things?&&", 200),
            ("GET", "/v1/things?Q=a", 422),
            ("GET", "/v1/things?q=a&workspace_id=1", 422),
            ("GET", "/v1/things?q=1&q=2", 422),
            ("GET", "/v1/things?%ff=1", 422),
            ("POST", "/v1/things?q=a", 422),
            ("POST", "/v1/things?token=x", 200),
            ("PUT", "/v1/things?x=1", 200),
            ("GET", "/v1/nothing?x=1", 404),
            ("GET", "/pages?utm_source=x", 200),
        ] {
            let request = test::TestRequest::with_uri(uri).method(method.parse().unwrap()).to_request();
            let response = test::call_service(&app, request).await;
            assert_eq!(response.status(), StatusCode::from_u16(status).unwrap(), "{method} {uri}");
        }
        let uri = format!("/v1/things?a=secret&{}=1", "b".repeat(100));
        let request = test::TestRequest::with_uri(&uri).to_request();
        let body: Value = test::call_and_read_body_json(&app, request).await;
        let paths: Vec<_> = body["detail"]["fields"].as_array().unwrap().iter().map(|field| &field["path"]).collect();
        assert_eq!(paths, [&json!("a"), &json!("b".repeat(64))]);
        assert!(!body.to_string().contains("secret"));
    }

    #[::core::prelude::v1::test]
    fn collects_parameters_from_openapi_document() {
        let known_queries = KnownQueries::from_openapi(&crate::openapi::document());
        let list = known_queries.for_route("/v1/workloads/runtime-enabled", &Method::GET).unwrap();
        for name in ["presentation_mode", "owner_ref", "q", "limit", "offset"] {
            assert!(list.contains(name), "{name}");
        }
        assert!(!list.contains("Idempotency-Key") && !list.contains("workspace_id"));
        assert_eq!(known_queries.for_route("/v1/workloads/runtime-enabled", &Method::POST), None);
    }
}
