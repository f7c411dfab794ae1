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
    #[serde(default, deserialize_with = "number::optional_whole")]
    pub max_tokens: Option<u64>,
}

/// A route to a model.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Route {
    /// Identifier, unique within the policy.
    pub route_id: String,
    /// Provider that serves the model.
    pub provider: String,
    /// Model, in the provider's spelling.
    pub model: String,
    /// Configured account for the calls.
    pub account_slot: String,
    /// Provider's region.
    pub region: Option<String>,
    /// Data residency.
    pub residency: Option<String>,
    /// Approval state.
    #[serde(default)]
    pub state: RouteState,
    /// Sensitivity tiers of the data that the route is meant for.
    #[serde(default)]
    pub sensitivity_tiers: Vec<String>,
    /// Capabilities.
    #[serde(default)]
    pub capability_tags: Vec<String>,
    /// Short name of its cost class.
    pub cost_class: Option<String>,
}

/// Approval state of a route.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteState {
    /// Calls are permitted.
    Approved,
    /// Synonym of `Approved`.
    Active,
    /// No decision yet; the default.
    #[default]
    Pending,
    /// Temporarily withdrawn.
    Suspended,
    /// Permanently withdrawn.
    Retired,
}

impl RouteState {
    /// Whether the state withdraws an approval of an earlier version.
    #[must_use]
    pub const fn is_withdrawal(self) -> bool {
        match self {
            Self::Suspended | Self::Retired => true,
            Self::Approved | Self::Active | Self::Pending => false,
        }
    }
}

impl Route {
    /// Whether the policy permits calls by this route.
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
