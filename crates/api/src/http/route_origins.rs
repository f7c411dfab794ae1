//! The table of runtime routes with the origins that may use them in a browser: the routes of pages, share links and
//! sign-in. Origin checks and frame policies read it. A test fails for a runtime route without a row.

use crate::embeddable_page::EmbedPolicy;
use std::borrow::Cow;

/// The origins that may use a route in a browser. The server sends no CORS headers, so another site cannot read a
/// response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RouteOrigins {
    /// Pages of this server alone. No other site may frame the response or send a change.
    Own,
    /// Like [`Self::Own`], but the configured ancestors may frame the page.
    Framed,
    /// The server of an identity provider sends the request, not a browser.
    NoBrowser,
}

/// The path patterns of runtime routes.
const ROUTES: [(&str, RouteOrigins); 19] = [
    ("/", RouteOrigins::Own),
    ("/_app/{file}", RouteOrigins::Own),
    ("/console", RouteOrigins::Own),
    ("/console/{view:.*}", RouteOrigins::Own),
    ("/sign-in", RouteOrigins::Own),
    ("/sign-in/callback", RouteOrigins::Own),
    ("/sign-in/test", RouteOrigins::Own),
    ("/sign-out", RouteOrigins::Own),
    ("/sign-out/backchannel", RouteOrigins::NoBrowser),
    ("/v1/executions/{execution_id}", RouteOrigins::Own),
    ("/v1/executions/{execution_id}/cancel", RouteOrigins::Own),
    ("/v1/executions/{execution_id}/events", RouteOrigins::Own),
    ("/v1/session/logout", RouteOrigins::Own),
    ("/v1/workloads/by-slug/{slug}", RouteOrigins::Own),
    ("/v1/workloads/by-slug/{slug}/execute", RouteOrigins::Own),
    ("/v1/workloads/{workload_id}/sessions/{session_id}/memory", RouteOrigins::Own),
    ("/workload-runtime", RouteOrigins::Own),
    ("/workload-runtime/{slug}", RouteOrigins::Own),
    ("/{slug}", RouteOrigins::Framed),
];

impl RouteOrigins {
    /// The origins of a route by its documented path pattern. Only this server's pages may use a route outside the
    /// table.
    pub(crate) fn of(pattern: &str) -> Self {
        ROUTES.iter().find(|(row_pattern, _)| *row_pattern == pattern).map_or(Self::Own, |(_, origins)| *origins)
    }

    /// The value of `frame-ancestors` for a page of the route.
    pub(crate) fn frame_ancestors(self, policy: &EmbedPolicy) -> Cow<'static, str> {
        match self {
            Self::Framed => Cow::Owned(policy.ancestors().to_string()),
            Self::Own | Self::NoBrowser => Cow::Borrowed("'none'"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        embeddable_page::{EMBED_PATTERN, FrameAncestors},
        openapi::{document, operations},
        portal::routes::PORTAL_PATTERNS,
        sign_in::SIGN_IN_PATTERNS,
    };
    use std::collections::BTreeSet;
    use utoipa::openapi::RefOr;

    /// The routes that holders of share links use, by the API document.
    fn share_link_routes() -> Vec<String> {
        let document = document();
        let takes_token = |operation: &utoipa::openapi::path::Operation| {
            let is_share_token = |parameter: &RefOr<utoipa::openapi::path::Parameter>| match parameter {
                RefOr::T(parameter) => parameter.name == "X-Share-Token",
                RefOr::Ref(_) => false,
            };
            operation.parameters.iter().flatten().any(is_share_token)
        };
        let paths = document.paths.paths.iter();
        let runtime = paths.filter(|(_, item)| operations(item).any(|(_, operation)| takes_token(operation)));
        runtime.map(|(pattern, _)| pattern.clone()).collect()
    }

    #[test]
    fn every_runtime_route_has_a_row() {
        let mut expected: BTreeSet<String> = share_link_routes().into_iter().collect();
        assert!(expected.len() > 5, "{expected:?}");
        expected.extend(PORTAL_PATTERNS.iter().chain(&SIGN_IN_PATTERNS).map(|pattern| (*pattern).to_owned()));
        expected.insert("/v1/session/logout".to_owned());
        let table_patterns: BTreeSet<String> = ROUTES.iter().map(|(pattern, _)| (*pattern).to_owned()).collect();
        assert_eq!(table_patterns, expected);
    }

    #[test]
    fn only_embeddable_pages_are_framed() {
        let policy = EmbedPolicy::new(Vec::new(), FrameAncestors::parse("https://portal.example").unwrap());
        let framed = |pattern: &str| RouteOrigins::of(pattern).frame_ancestors(&policy) != "'none'";
        let framed_patterns: Vec<&str> =
            ROUTES.iter().map(|(pattern, _)| *pattern).filter(|pattern| framed(pattern)).collect();
        assert_eq!(framed_patterns, [EMBED_PATTERN]);
        assert_eq!(RouteOrigins::of(EMBED_PATTERN).frame_ancestors(&policy), "https://portal.example");
        assert!(!framed("/v1/unknown"));
    }
}
