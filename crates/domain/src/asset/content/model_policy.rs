//! Model policies: the routes to models that a run may use, and the parameters of its model calls.

use super::ContentProblem;
use crate::number;
use serde::Deserialize;
use serde_json::Value;

/// The content of a model policy: a primary route, fallback routes and call parameters.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct ModelPolicy {
    /// The route that is tried first.
    pub provider_route: Route,
    /// The routes that are tried after the primary one, in this order.
    #[serde(default)]
    pub fallback_routes: Vec<Route>,
    /// Whether the models of the routes can stream their output.
    #[serde(default)]
    pub supports_streaming: bool,
    /// Whether the models of the routes can call tools.
    #[serde(default)]
    pub supports_tool_use: bool,
    /// The sampling temperature, from 0 to 2; `None` leaves it to the provider.
    pub temperature: Option<f64>,
    /// The maximum number of tokens in a response, from 1 to 1,000,000; `None` leaves it to the provider.
    #[serde(default, deserialize_with = "number::deserialize_optional_whole")]
    pub max_tokens: Option<u64>,
}

/// One way to a model: provider, model and account.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Route {
    /// The identifier of the route, which is unique in the policy.
    pub route_id: String,
    /// The name of the provider.
    pub provider: String,
    /// The name of the model at the provider.
    pub model: String,
    /// The name under which the provider account is configured.
    pub account_slot: String,
    /// The region in which the provider processes data, if it is known.
    pub region: Option<String>,
    /// The jurisdiction in which the data resides, if it is known.
    pub residency: Option<String>,
    /// Whether calls on the route are approved.
    #[serde(default)]
    pub state: RouteState,
    /// The sensitivity tiers of the data for which the route is meant.
    #[serde(default)]
    pub sensitivity_tiers: Vec<String>,
    /// The tags that describe the capabilities of the model.
    #[serde(default)]
    pub capability_tags: Vec<String>,
    /// The cost class of the route, if it has one.
    pub cost_class: Option<String>,
}

/// Whether calls on a route are approved.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteState {
    /// Calls on the route are approved.
    Approved,
    /// Calls on the route are approved; a synonym of `Approved`.
    Active,
    /// Calls on the route are not approved yet. This is the default.
    #[default]
    Pending,
    /// The approval was withdrawn temporarily.
    Suspended,
    /// The approval was withdrawn permanently.
    Retired,
}

impl RouteState {
    /// Whether this state withdraws the approval that an earlier version of the policy gave to the route.
    #[must_use]
    pub const fn is_withdrawal(self) -> bool {
        match self {
            Self::Suspended | Self::Retired => true,
            Self::Approved | Self::Active | Self::Pending => false,
        }
    }
}

impl Route {
    /// Whether the policy approves calls on this route.
    #[must_use]
    pub const fn is_approved(&self) -> bool {
        match self.state {
            RouteState::Approved | RouteState::Active => true,
            RouteState::Pending | RouteState::Suspended | RouteState::Retired => false,
        }
    }
}

impl ModelPolicy {
    /// Parses content that passed the validation of its kind.
    ///
    /// # Errors
    /// Returns a problem when the content is not a model policy.
    pub fn parse(content: &Value) -> Result<Self, Vec<ContentProblem>> {
        Self::deserialize(content)
            .map_err(|_| vec![ContentProblem::new("", "invalid_content", "the content is not a model policy")])
    }

    /// All routes of the policy, the primary one first.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        std::iter::once(&self.provider_route).chain(&self.fallback_routes)
    }
}
