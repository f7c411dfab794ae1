//! Model policies: the model routes of a run, and the parameters of its model calls.

use super::ContentProblem;
use crate::number;
use serde::Deserialize;
use serde_json::Value;

/// Primary route, fallback routes and call parameters of a run.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct ModelPolicy {
    /// Primary route.
    pub provider_route: Route,
    /// Fallback routes, in the order in which they are tried.
    #[serde(default)]
    pub fallback_routes: Vec<Route>,
    /// Whether the routes support streaming.
    #[serde(default)]
    pub supports_streaming: bool,
    /// Whether the routes support tool calls.
    #[serde(default)]
    pub supports_tool_use: bool,
    /// Sampling temperature, 0 to 2; `None` uses the provider's default.
    pub temperature: Option<f64>,
    /// Maximum tokens of a response, 1 to 1 000 000; `None` uses the provider's default.
    #[serde(default, deserialize_with = "number::deserialize_optional_whole")]
    pub max_tokens: Option<u64>,
}

/// A route to a model.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Route {
    /// Identifier, unique within the policy.
    pub route_id: String,
    /// Provider that serves the model.
    pub provider: String,
    /// The provider's identifier of the model.
    pub model: String,
    /// Name of the configured provider account for the calls (account slot).
    pub account_slot: String,
    /// Region in which the provider processes the data.
    pub region: Option<String>,
    /// Jurisdiction in which the data resides.
    pub residency: Option<String>,
    /// Approval state.
    #[serde(default)]
    pub state: RouteState,
    /// Sensitivity tiers of data for which the route is intended.
    #[serde(default)]
    pub sensitivity_tiers: Vec<String>,
    /// Tags of the model's capabilities.
    #[serde(default)]
    pub capability_tags: Vec<String>,
    /// Name of the route's cost class.
    pub cost_class: Option<String>,
}

/// Approval state of a route.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteState {
    /// The route is approved, and calls are permitted.
    Approved,
    /// Synonym of `Approved`.
    Active,
    /// The route is not approved yet; the default.
    #[default]
    Pending,
    /// The approval is temporarily withdrawn.
    Suspended,
    /// The approval is permanently withdrawn.
    Retired,
}

impl RouteState {
    /// Whether a route in this state revokes an approval by an earlier version of the policy.
    #[must_use]
    pub const fn is_withdrawal(self) -> bool {
        match self {
            Self::Suspended | Self::Retired => true,
            Self::Approved | Self::Active | Self::Pending => false,
        }
    }
}

impl Route {
    /// Whether the policy permits calls over this route.
    #[must_use]
    pub const fn is_approved(&self) -> bool {
        match self.state {
            RouteState::Approved | RouteState::Active => true,
            RouteState::Pending | RouteState::Suspended | RouteState::Retired => false,
        }
    }
}

impl ModelPolicy {
    /// Reads content that passed validation.
    ///
    /// # Errors
    /// Returns a problem when the content is not a model policy.
    pub fn parse(content: &Value) -> Result<Self, Vec<ContentProblem>> {
        Self::deserialize(content)
            .map_err(|_| vec![ContentProblem::new("", "invalid_content", "the content is not a model policy")])
    }

    /// Every route, the primary one first.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        std::iter::once(&self.provider_route).chain(&self.fallback_routes)
    }
}
