//! Routing: the routes that a model request may use, and the order in which they are attempted.

use super::provider::{Completion, CompletionInput, ProviderCall, ProviderError, RouteTarget};
use crate::asset::content::{ModelPolicy, Route, SovereigntyProfile};
use std::{borrow::Cow, sync::Arc, time::Duration};

/// The maximum number of attempts on one route for one request.
const MAX_ATTEMPTS_PER_ROUTE: usize = 2;
/// The delay before a second attempt on a route, without jitter.
pub const BACKOFF: Duration = Duration::from_millis(250);
/// The longest delay that a provider can ask for. A route is not attempted again if its provider asks for more.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(5);

/// The routes of a release's model policy, split into allowed and refused ones.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Routing {
    /// The allowed routes, in order of preference.
    pub allowed: Vec<RouteTarget>,
    /// The refused routes, each with all reasons.
    pub refused: Vec<RefusedRoute>,
}

/// A route that a model request must not use, with the reasons.
#[derive(Clone, PartialEq, Debug)]
pub struct RefusedRoute {
    /// The route as the model policy defines it.
    pub route: Route,
    /// All reasons why the route is refused.
    pub reasons: Vec<RouteRefusal>,
}

/// A reason why a route is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RouteRefusal {
    /// The bound version of the model policy does not approve the route.
    NotApproved,
    /// The sovereignty profile does not allow the route's jurisdiction, or the route names none.
    Jurisdiction,
    /// The sovereignty profile does not allow the jurisdiction that is configured for the account.
    AccountJurisdiction,
    /// The sovereignty profile does not allow the route's region, or the route names none.
    Region,
    /// The sovereignty profile does not allow the route's provider.
    Provider,
    /// The account generates answers without a model. In OIDC mode, the environment `production` does not allow this.
    LocalAccount,
}

impl RouteRefusal {
    /// The stable code of the reason.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotApproved => "route_not_approved",
            Self::Jurisdiction => "jurisdiction_not_allowed",
            Self::AccountJurisdiction => "account_jurisdiction_not_allowed",
            Self::Region => "region_not_allowed",
            Self::Provider => "provider_not_allowed",
            Self::LocalAccount => "local_provider_not_allowed",
        }
    }
}

impl Routing {
    /// Splits the routes of a model policy by a sovereignty profile. `residency` returns the configured jurisdiction of
    /// an account.
    #[must_use]
    pub fn for_policy<'a>(
        policy: &ModelPolicy,
        profile: Option<&SovereigntyProfile>,
        residency: impl Fn(&str) -> Option<&'a str>,
    ) -> Self {
        let mut routing = Self::default();
        for route in policy.routes() {
            let mut reasons = Vec::new();
            if !route.is_approved() {
                reasons.push(RouteRefusal::NotApproved);
            }
            if let Some(profile) = profile {
                reasons.extend(route_refusals(profile, route, residency(&route.account_slot)));
            }
            if reasons.is_empty() {
                routing.allowed.push(RouteTarget {
                    route_id: route.route_id.clone(),
                    provider: route.provider.clone(),
                    model: route.model.clone(),
                    account_slot: route.account_slot.clone(),
                });
            } else {
                routing.refused.push(RefusedRoute { route: route.clone(), reasons });
            }
        }
        routing
    }
}

impl Routing {
    /// Also refuses the routes of accounts that generate answers without a model. `policy` is the model policy that
    /// defines the routes.
    #[must_use]
    pub fn refuse_local_accounts(mut self, policy: &ModelPolicy, is_local: impl Fn(&str) -> bool) -> Self {
        let is_refused = |target: &RouteTarget| is_local(&target.account_slot);
        for target in self.allowed.iter().filter(|target| is_refused(target)) {
            let route = policy.routes().into_iter().find(|route| route.route_id == target.route_id);
            let refused =
                route.map(|route| RefusedRoute { route: route.clone(), reasons: vec![RouteRefusal::LocalAccount] });
            self.refused.extend(refused);
        }
        self.allowed.retain(|target| !is_refused(target));
        self
    }
}

/// The name of the built-in account, which generates embeddings and answers inside this process.
const LOCAL_ACCOUNT: &str = "local";

/// Whether the account that embeds queries may receive a query.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum EmbeddingPermission {
    /// The account may receive the query.
    #[default]
    Allowed,
    /// The sovereignty profile of the release refuses the account.
    Refused {
        /// The route that stands for the account.
        route: RouteTarget,
        /// The configured jurisdiction of the account, if any.
        residency: Option<String>,
        /// Every rule of the sovereignty profile that the route violates.
        reasons: Vec<RouteRefusal>,
    },
}

impl EmbeddingPermission {
    /// Evaluates the route of the embedding account under a sovereignty profile. The region of an account is unknown,
    /// so a profile with a list of regions refuses the route. The built-in account is allowed, because it sends no data
    /// out of this process.
    #[must_use]
    pub fn for_route(profile: Option<&SovereigntyProfile>, route: RouteTarget, residency: Option<&str>) -> Self {
        let Some(profile) = profile else { return Self::Allowed };
        if route.account_slot == LOCAL_ACCOUNT && residency.is_none() {
            return Self::Allowed;
        }
        let mut reasons = Vec::new();
        if !residency.is_some_and(|jurisdiction| profile.allows_jurisdiction(jurisdiction)) {
            reasons.push(RouteRefusal::Jurisdiction);
        }
        if !profile.allows_region(None) {
            reasons.push(RouteRefusal::Region);
        }
        if !profile.allows_provider(&route.provider) {
            reasons.push(RouteRefusal::Provider);
        }
        if reasons.is_empty() {
            return Self::Allowed;
        }
        Self::Refused { route, residency: residency.map(str::to_owned), reasons }
    }
}

/// The rules of a sovereignty profile that a route violates. A rule also refuses a route whose restricted property is
/// unknown.
fn route_refusals(profile: &SovereigntyProfile, route: &Route, account: Option<&str>) -> Vec<RouteRefusal> {
    let mut reasons = Vec::new();
    if !route.residency.as_deref().is_some_and(|jurisdiction| profile.allows_jurisdiction(jurisdiction)) {
        reasons.push(RouteRefusal::Jurisdiction);
    }
    if account.is_some_and(|jurisdiction| !profile.allows_jurisdiction(jurisdiction)) {
        reasons.push(RouteRefusal::AccountJurisdiction);
    }
    if !profile.allows_region(route.region.as_deref()) {
        reasons.push(RouteRefusal::Region);
    }
    if !profile.allows_provider(&route.provider) {
        reasons.push(RouteRefusal::Provider);
    }
    reasons
}

/// The kind of response that a model request asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequestKind {
    /// A completion of the conversation.
    Completion,
    /// An embedding of this text.
    Embedding(String),
}

/// A request of a run to a model, with the routes that may serve it.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelRequest {
    /// The kind of response that the request asks for.
    pub kind: RequestKind,
    /// The conversation to complete; unused for an embedding.
    pub conversation: Arc<CompletionInput>,
    /// The routes in order of preference; at least one.
    pub routes: Vec<RouteTarget>,
    /// Whether followers may receive the output as it arrives, because nothing in the release can withhold it.
    pub is_streamable: bool,
}

/// One attempt to serve a request on one route.
#[derive(Clone, PartialEq, Debug)]
pub struct Attempt {
    /// The index of the route among the routes of the request.
    pub route: usize,
    /// Success, or the reason why the attempt failed.
    pub result: Result<(), ProviderError>,
    /// The HTTP status of the provider's response, if the attempt failed with one.
    pub status: Option<u16>,
    /// The stable code of the cause if no provider response arrived, such as a failed connection or an API key that
    /// could not be read.
    pub cause: Option<Cow<'static, str>>,
    /// The delay that the provider asked for before a retry.
    pub retry_after: Option<Duration>,
    /// The duration of the attempt.
    pub latency: Duration,
}

/// The response to a model request, after all of its attempts.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelResponse {
    /// All attempts, in order.
    pub attempts: Vec<Attempt>,
    /// Whether followers received the output as it arrived.
    pub was_streamed: bool,
    /// The completion of the last attempt, or the error of the request.
    pub completion: Result<Completion, ProviderError>,
}

/// The route of the next attempt, and the delay before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextAttempt {
    /// The index of the route among the routes of the request.
    pub route: usize,
    /// The delay before the attempt, without jitter. It is zero for the first attempt on a route.
    pub delay: Duration,
}

impl ModelRequest {
    /// The call that sends this request on one of its routes; `None` if no route has this index.
    #[must_use]
    pub fn provider_call_on_route(&self, route: usize) -> Option<ProviderCall> {
        let route = self.routes.get(route)?.clone();
        Some(ProviderCall { route, conversation: Arc::clone(&self.conversation) })
    }

    /// The next attempt after these failed attempts; `None` if no attempt is left.
    ///
    /// Each route is first attempted once, without delay. Then each route with a transient failure is attempted once
    /// more after a delay. A failure that rejects the request itself ends the attempts.
    #[must_use]
    pub fn next_attempt(&self, attempts: &[Attempt]) -> Option<NextAttempt> {
        let last = attempts.last();
        if last.is_some_and(|last| last.result.is_err_and(|error| !error.allows_fallback())) {
            return None;
        }
        if attempts.len() < self.routes.len() {
            return Some(NextAttempt { route: attempts.len(), delay: Duration::ZERO });
        }
        let attempts_of = |route: usize| attempts.iter().filter(move |attempt| attempt.route == route);
        let retry = (0..self.routes.len()).find_map(|route| {
            let last_attempt = attempts_of(route).next_back()?;
            let is_retryable = last_attempt.result.is_err_and(ProviderError::allows_retry);
            let delay = last_attempt.retry_after.unwrap_or_default();
            (is_retryable && delay <= MAX_RETRY_AFTER && attempts_of(route).count() < MAX_ATTEMPTS_PER_ROUTE)
                .then_some((route, delay))
        });
        retry.map(|(route, delay)| NextAttempt { route, delay: delay.max(BACKOFF) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asset::{content, content::CheckedContent, kind::AssetKind};
    use serde_json::{Value, json};

    fn policy(routes: &[Value]) -> ModelPolicy {
        let content = json!({ "provider_route": routes[0], "fallback_routes": routes[1..] });
        match content::parse_existing(AssetKind::ModelPolicy, &content) {
            Ok(CheckedContent::ModelPolicy(policy)) => policy,
            other => panic!("expected a model policy: {other:?}"),
        }
    }

    fn route(id: &str, state: &str, location: Option<(&str, &str)>) -> Value {
        let (residency, region) = location.unzip();
        json!({ "route_id": id, "provider": "acme", "model": "m", "account_slot": id, "state": state,
            "residency": residency, "region": region })
    }

    fn profile(content: &Value) -> SovereigntyProfile {
        SovereigntyProfile::parse(content).unwrap()
    }

    fn allowed_and_refused(routing: &Routing) -> (Vec<&str>, Vec<(&str, Vec<&str>)>) {
        let refused = routing.refused.iter().map(|refused| {
            (refused.route.route_id.as_str(), refused.reasons.iter().map(|reason| reason.code()).collect())
        });
        (routing.allowed.iter().map(|route| route.route_id.as_str()).collect(), refused.collect())
    }

    #[test]
    fn allows_only_approved_routes() {
        let policy = policy(&[
            route("a", "approved", None),
            route("b", "pending", None),
            route("c", "active", None),
            route("d", "suspended", None),
        ]);
        let routing = Routing::for_policy(&policy, None, |_| None);
        let reasons = vec!["route_not_approved"];
        assert_eq!(allowed_and_refused(&routing), (vec!["a", "c"], vec![("b", reasons.clone()), ("d", reasons)]));
    }

    #[test]
    fn profile_refuses_foreign_and_unknown_jurisdictions() {
        let policy = policy(&[
            route("us", "approved", Some(("US", "us-east"))),
            route("nowhere", "approved", None),
            route("fr", "approved", Some(("FR", "eu-west"))),
            route("de", "approved", Some(("de", "eu-central"))),
            route("lies", "approved", Some(("DE", "eu-central"))),
            route("eu", "approved", Some(("eu", "eu-central"))),
        ]);
        let profile = profile(&json!({ "jurisdictions_allowed": ["eu"], "regions_allowed": ["eu-central"],
            "providers_allowed": ["acme"] }));
        let routing = Routing::for_policy(&policy, Some(&profile), |slot| (slot == "lies").then_some("US"));
        let refused = vec![
            ("us", vec!["jurisdiction_not_allowed", "region_not_allowed"]),
            ("nowhere", vec!["jurisdiction_not_allowed", "region_not_allowed"]),
            ("fr", vec!["region_not_allowed"]),
            ("lies", vec!["account_jurisdiction_not_allowed"]),
        ];
        assert_eq!(allowed_and_refused(&routing), (vec!["de", "eu"], refused));
    }

    #[test]
    fn empty_list_refuses_all_and_missing_list_allows_all() {
        let policy = policy(&[route("de", "approved", Some(("DE", "x")))]);
        let refused_count = |content: Value| {
            allowed_and_refused(&Routing::for_policy(&policy, Some(&profile(&content)), |_| None)).1.len()
        };
        assert_eq!(refused_count(json!({ "jurisdictions_allowed": ["DE"] })), 0);
        assert_eq!(refused_count(json!({ "jurisdictions_allowed": ["DE"], "regions_allowed": [] })), 1);
        assert_eq!(refused_count(json!({ "jurisdictions_allowed": ["DE"], "providers_allowed": [] })), 1);
        assert_eq!(refused_count(json!({ "jurisdictions_allowed": ["FR"] })), 1);
    }

    /// The reasons why an embedding account is refused, as codes.
    fn embedding_refusal_codes(content: &Value, account: &str, residency: Option<&str>) -> Vec<&'static str> {
        let route = RouteTarget {
            route_id: "embedding".to_owned(),
            provider: account.to_owned(),
            model: "m".to_owned(),
            account_slot: account.to_owned(),
        };
        match EmbeddingPermission::for_route(Some(&profile(content)), route, residency) {
            EmbeddingPermission::Allowed => Vec::new(),
            EmbeddingPermission::Refused { reasons, .. } => reasons.into_iter().map(RouteRefusal::code).collect(),
        }
    }

    #[test]
    fn embedding_needs_permission_of_every_profile_list() {
        let jurisdictions = json!({ "jurisdictions_allowed": ["DE"] });
        assert!(embedding_refusal_codes(&jurisdictions, "acme", Some("DE")).is_empty());
        assert_eq!(embedding_refusal_codes(&jurisdictions, "acme", Some("US")), ["jurisdiction_not_allowed"]);
        assert_eq!(embedding_refusal_codes(&jurisdictions, "acme", None), ["jurisdiction_not_allowed"]);
        let providers = json!({ "jurisdictions_allowed": ["DE"], "providers_allowed": ["acme"] });
        assert!(embedding_refusal_codes(&providers, "acme", Some("DE")).is_empty());
        assert_eq!(embedding_refusal_codes(&providers, "other", Some("DE")), ["provider_not_allowed"]);
        let regions = json!({ "jurisdictions_allowed": ["DE"], "regions_allowed": ["eu-central"] });
        assert_eq!(
            embedding_refusal_codes(&regions, "acme", Some("DE")),
            ["region_not_allowed"],
            "the region is unknown"
        );
        assert!(embedding_refusal_codes(&regions, LOCAL_ACCOUNT, None).is_empty(), "the data stays in this process");
    }

    fn model_request(routes: usize) -> ModelRequest {
        let route = |id: usize| RouteTarget {
            route_id: id.to_string(),
            provider: "acme".to_owned(),
            model: "m".to_owned(),
            account_slot: "a".to_owned(),
        };
        ModelRequest {
            kind: RequestKind::Completion,
            conversation: Arc::default(),
            routes: (0..routes).map(route).collect(),
            is_streamable: true,
        }
    }

    /// Returns the attempted routes and their delays in milliseconds. `failure` is the failure of each call.
    fn attempted_routes(
        routes: usize,
        failure: impl Fn(usize) -> (ProviderError, Option<Duration>),
    ) -> Vec<(usize, u128)> {
        let (request, mut attempts, mut attempted) = (model_request(routes), Vec::new(), Vec::new());
        while let Some(next) = request.next_attempt(&attempts) {
            attempted.push((next.route, next.delay.as_millis()));
            let (error, retry_after) = failure(next.route);
            let result = Err(error);
            attempts.push(Attempt {
                route: next.route,
                result,
                status: None,
                cause: None,
                retry_after,
                latency: Duration::ZERO,
            });
            assert!(attempts.len() < 100, "the attempts do not end");
        }
        attempted
    }

    #[test]
    fn tries_each_route_then_retries_each_once() {
        let busy = |_| (ProviderError::Busy, None);
        assert_eq!(attempted_routes(1, busy), [(0, 0), (0, 250)]);
        assert_eq!(attempted_routes(3, busy), [(0, 0), (1, 0), (2, 0), (0, 250), (1, 250), (2, 250)]);
    }

    #[test]
    fn stops_on_refusal_and_skips_unknown_accounts_on_retry() {
        assert_eq!(attempted_routes(3, |_| (ProviderError::Refused, None)), [(0, 0)]);
        let second_refuses = |route| (if route == 1 { ProviderError::Refused } else { ProviderError::TimedOut }, None);
        assert_eq!(attempted_routes(3, second_refuses), [(0, 0), (1, 0)]);
        let first_unknown =
            |route| (if route == 0 { ProviderError::UnknownAccount } else { ProviderError::Busy }, None);
        assert_eq!(attempted_routes(2, first_unknown), [(0, 0), (1, 0), (1, 250)]);
    }

    #[test]
    fn honors_retry_after_up_to_the_limit() {
        let busy_for = |seconds| move |_| (ProviderError::Busy, Some(Duration::from_secs(seconds)));
        assert_eq!(attempted_routes(1, busy_for(3)), [(0, 0), (0, 3_000)]);
        assert_eq!(attempted_routes(1, busy_for(60)), [(0, 0)], "a longer delay is not awaited");
    }
}
