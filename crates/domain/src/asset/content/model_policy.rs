//! Model policies: which model a run calls, and by which routes.

use super::ContentProblem;
use crate::number;
use serde::Deserialize;
use serde_json::Value;

/// Which model a run calls, by which route, and which routes stand in for it.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct ModelPolicy {
    /// The route that is tried first.
    pub provider_route: Route,
    /// The routes that are tried when the one before them cannot answer, in this order.
    #[serde(default)]
    pub fallback_routes: Vec<Route>,
    /// Whether the routes can stream.
    #[serde(default)]
    pub supports_streaming: bool,
    /// Whether the routes can call tools.
    #[serde(default)]
    pub supports_tool_use: bool,
    /// Sampling temperature, 0 to 2; without one, the provider's own.
    pub temperature: Option<f64>,
    /// Most tokens of an answer, 1 to 1 000 000; without one, the provider's own.
    #[serde(default, deserialize_with = "number::optional_whole")]
    pub max_tokens: Option<u64>,
}

/// One way to a model.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Route {
    /// Its name, unique within the policy.
    pub route_id: String,
    /// Who serves the model.
    pub provider: String,
    /// The model, in the provider's spelling.
    pub model: String,
    /// The configured account that calls it.
    pub account_slot: String,
    /// The provider's region.
    pub region: Option<String>,
    /// Where the data stays.
    pub residency: Option<String>,
    /// Whether it may be called.
    #[serde(default)]
    pub state: RouteState,
    /// Tiers of data it is meant for.
    #[serde(default)]
    pub sensitivity_tiers: Vec<String>,
    /// What it can do.
    #[serde(default)]
    pub capability_tags: Vec<String>,
    /// What it costs, as a short name.
    pub cost_class: Option<String>,
}

/// Whether a route may be called.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteState {
    /// It may.
    Approved,
    /// It may; another word for approved.
    Active,
    /// Nobody has decided yet, which is also what silence means.
    #[default]
    Pending,
    /// Not for now.
    Suspended,
    /// Not any more.
    Retired,
}

impl RouteState {
    /// Whether the state withdraws an approval that an earlier version gave.
    #[must_use]
    pub const fn withdraws(self) -> bool {
        match self {
            Self::Suspended | Self::Retired => true,
            Self::Approved | Self::Active | Self::Pending => false,
        }
    }
}

impl Route {
    /// Whether the version says that the route may be called.
    #[must_use]
    pub const fn is_approved(&self) -> bool {
        match self.state {
            RouteState::Approved | RouteState::Active => true,
            RouteState::Pending | RouteState::Suspended | RouteState::Retired => false,
        }
    }
}

impl ModelPolicy {
    /// Reads content that has passed the checks of its kind.
    ///
    /// # Errors
    /// When it is no model policy.
    pub fn parse(content: &Value) -> Result<Self, Vec<ContentProblem>> {
        Self::deserialize(content)
            .map_err(|_| vec![ContentProblem::new("", "invalid_content", "the content is no model policy")])
    }

    /// Every route, the first one first.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        std::iter::once(&self.provider_route).chain(&self.fallback_routes)
    }
}
