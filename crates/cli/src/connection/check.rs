//! `fairway connections check`: checks an endpoint, and explains the cause of a failure and the next step.

use crate::{
    failure::Failure,
    http_client::{ServerClient, string_or_empty},
    output::{Output, eprint},
};
use fairway_domain::connection::HealthState;
use serde_json::json;

/// Checks the endpoint of a connection, and prints the connection.
///
/// # Errors
/// When the endpoint is unhealthy, so that a script can depend on the exit code.
pub(super) fn check(server: &ServerClient, output: Output, id: &str) -> Result<(), Failure> {
    let checked = server.post(&["connections", id, "check"], &json!({}))?;
    output.record(&checked)?;
    let Explanation { cause, next } = explain(string_or_empty(&checked, "health_code"), id);
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

fn explain(code: &str, id: &str) -> Explanation {
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
        "endpoint_refused" => (
            "the endpoint answered with an error, so its path or the secret `token` is wrong",
            set("--endpoint URL --secret token=REFERENCE"),
        ),
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
            assert_ne!(explain(code, "0").cause, explain("a code of another version", "0").cause, "{code}");
        }
    }
}
