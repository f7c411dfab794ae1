//! The gate of provider accounts. A run can call a model only through an account that this server has configured.

use super::activate::{UnmetRequirement, unmet};

/// An approved route of the model policy, and whether this server has its provider account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteAccount {
    /// The identifier of the route in its model policy.
    pub route_id: String,
    /// The name of the provider account that the route uses.
    pub account_slot: String,
    /// Whether this server has configured the provider account.
    pub is_configured: bool,
}

impl RouteAccount {
    fn unmet_requirement(&self) -> UnmetRequirement {
        let Self { route_id, account_slot, .. } = self;
        let message = format!(
            "the route `{route_id}` of the model policy names the account `{account_slot}`, which this server does not \
             have: add it to `[[providers]]` in `fairway.toml`"
        );
        unmet("provider_account", "provider_account_missing", message)
    }
}

/// The unmet requirements for all routes if no route has a configured account; otherwise empty.
pub(super) fn unmet_account_requirements(routes: &[RouteAccount]) -> Vec<UnmetRequirement> {
    if routes.iter().any(|route| route.is_configured) {
        return Vec::new();
    }
    routes.iter().map(RouteAccount::unmet_requirement).collect()
}

/// The warnings about routes without a configured account, which runs skip; empty if no route has one.
pub(super) fn account_warnings(routes: &[RouteAccount]) -> Vec<UnmetRequirement> {
    if !routes.iter().any(|route| route.is_configured) {
        return Vec::new();
    }
    routes.iter().filter(|route| !route.is_configured).map(RouteAccount::unmet_requirement).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(account: &str, is_configured: bool) -> RouteAccount {
        RouteAccount { route_id: format!("to-{account}"), account_slot: account.to_owned(), is_configured }
    }

    #[test]
    fn blocks_without_any_account_and_warns_about_a_missing_one() {
        for (routes, unmet, warned) in [
            (vec![], 0, 0),
            (vec![route("a", true), route("b", true)], 0, 0),
            (vec![route("a", false), route("b", true)], 0, 1),
            (vec![route("a", true), route("b", false)], 0, 1),
            (vec![route("a", false), route("b", false)], 2, 0),
        ] {
            let (missing, warnings) = (unmet_account_requirements(&routes), account_warnings(&routes));
            assert_eq!((missing.len(), warnings.len()), (unmet, warned), "{routes:?}");
            for requirement in missing.iter().chain(&warnings) {
                assert_eq!((requirement.gate, requirement.code), ("provider_account", "provider_account_missing"));
            }
        }
    }
}
