//! `fairway connections check`: checks an endpoint, and explains the cause of a failure and the next step.

use crate::{
    failure::Failure,
    http_client::{ServerClient, string_or_empty},
    output::{Output, eprint},
};
use fairway_domain::connection::{ConnectorKind, HealthState, probe::TOKEN_SECRET_BINDING_NAME};
use serde_json::{Value, json};

/// Checks the endpoint of a connection, and prints the connection.
///
/// # Errors
/// When the endpoint is unhealthy, so that a script can depend on the exit code.
pub(super) fn check(server: &ServerClient, output: Output, id: &str) -> Result<(), Failure> {
    let checked = server.post(&["connections", id, "check"], &json!({}))?;
    output.record(&checked)?;
    let Explanation { cause, next } = explain(string_or_empty(&checked, "health_code"), id, TokenUse::of(&checked));
    match HealthState::parse(string_or_empty(&checked, "health")) {
        Some(HealthState::Unhealthy) => {
            Err(Failure::Failed(format!("the connection is unhealthy: {cause}")).with_next(next))
        }
        Some(HealthState::NotCheckable) => {
            if output.is_for_people() {
                eprint(&format!("not checked: {cause}"));
            }
            output.hint(&next);
            Ok(())
        }
        Some(HealthState::Healthy | HealthState::Unchecked) | None => Ok(()),
    }
}

/// The cause of an unhealthy endpoint, and the next step, as sentences.
struct Explanation {
    cause: &'static str,
    next: String,
}

/// Whether the check sent the secret `token` of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TokenUse {
    /// The check sent the token.
    Sent,
    /// The check would send a token, but the connection has none.
    Missing,
    /// Checks of this kind of connection send no token.
    Unused,
}

impl TokenUse {
    fn of(connection: &Value) -> Self {
        let kind = ConnectorKind::parse(string_or_empty(connection, "connector_kind"));
        let has_token =
            connection.get("secret_bindings").is_some_and(|bindings| bindings.get(TOKEN_SECRET_BINDING_NAME).is_some());
        match kind {
            Some(ConnectorKind::Http) if has_token => Self::Sent,
            Some(ConnectorKind::Http) => Self::Missing,
            Some(ConnectorKind::Postgres | ConnectorKind::S3 | ConnectorKind::Smtp | ConnectorKind::Other) | None => {
                Self::Unused
            }
        }
    }
}

/// The cause and the next step of an endpoint that answered with an error.
fn explain_refusal(id: &str, token: TokenUse) -> (&'static str, String) {
    let set = format!("fairway connections set {id}");
    match token {
        TokenUse::Sent => (
            "the endpoint answered with an error, so its path or the secret `token` is wrong",
            format!("{set} --endpoint URL --secret token=REFERENCE"),
        ),
        TokenUse::Missing => (
            "the endpoint answered with an error, so its path is wrong, or it requires a token and the connection has \
             no secret `token`",
            format!("`{set} --endpoint URL`, or `{set} --secret token=REFERENCE`"),
        ),
        TokenUse::Unused => (
            "the endpoint answered with an error, so its address is wrong or the system is not working",
            format!("{set} --endpoint URL"),
        ),
    }
}

fn explain(code: &str, id: &str, token: TokenUse) -> Explanation {
    let set = |options: &str| format!("fairway connections set {id} {options}");
    let (cause, next) = match code {
        "endpoint_forbidden" => (
            "the server does not send requests to this address",
            "an operator adds the address to FAIRWAY_EGRESS_ALLOW and restarts the server".to_owned(),
        ),
        "endpoint_unreachable" => (
            "no connection to the endpoint could be made, so its host or port is wrong or it is down",
            set("--endpoint URL"),
        ),
        "endpoint_timeout" => {
            ("the endpoint did not answer within 10 s", format!("`fairway connections check {id}` asks again"))
        }
        "endpoint_refused" => explain_refusal(id, token),
        "endpoint_malformed_answer" => {
            ("the answer does not follow the protocol of the connection's kind", set("--kind KIND"))
        }
        "secret_unavailable" => {
            ("the server cannot read the secret `token` that the connection refers to", set("--secret token=REFERENCE"))
        }
        "not_checkable" => {
            ("the connection has no endpoint, or its kind cannot be checked", set("--kind KIND --endpoint URL"))
        }
        _ => ("docs/errors.md describes the code", format!("fairway connections show {id}")),
    };
    Explanation { cause, next }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_code_of_a_check_has_an_explanation() {
        let errors = include_str!("../../../../docs/errors.md");
        let (_, rest) = errors.split_once("<!-- codes:checks -->").unwrap();
        let (table, _) = rest.split_once("<!-- /codes:checks -->").unwrap();
        let codes: Vec<&str> =
            table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(code, _)| code)).collect();
        assert!(codes.len() >= 7, "{codes:?}");
        for code in codes {
            let cause = |code: &str| explain(code, "0", TokenUse::Sent).cause;
            assert_ne!(cause(code), cause("a code of another version"), "{code}");
        }
    }

    #[test]
    fn blames_the_token_only_if_the_connection_has_one() {
        let explain_refused = |kind: &str, bindings: Value| {
            let connection = json!({ "connector_kind": kind, "secret_bindings": bindings });
            explain("endpoint_refused", "019a", TokenUse::of(&connection))
        };
        let with_token = explain_refused("http", json!({ "token": "env:CRM_TOKEN" }));
        assert!(with_token.cause.ends_with("so its path or the secret `token` is wrong"), "{}", with_token.cause);
        let without_token = explain_refused("http", json!({ "password": "env:CRM_PASSWORD" }));
        assert!(without_token.cause.ends_with("and the connection has no secret `token`"), "{}", without_token.cause);
        assert!(
            without_token.next.contains("--endpoint URL`, or `fairway connections set 019a --secret"),
            "{}",
            without_token.next
        );
        let s3 = explain_refused("s3", json!({ "token": "env:CRM_TOKEN" }));
        assert!(!s3.cause.contains("token") && !s3.next.contains("token"), "{} {}", s3.cause, s3.next);
    }
}
