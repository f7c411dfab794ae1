//! Shows a release with the server's advice on a rollback.

use crate::{
    failure::Failure,
    http_client::{ServerClient, string_or_empty},
    output::{Output, print},
};
use fairway_domain::release::StateName;
use serde_json::Value;

/// The member of the JSON output that contains the advice.
const MEMBER: &str = "rollback_recommendation";

/// Prints a release, and the advice if the release is active, because only active releases can be rolled back.
pub(super) fn show_release(server: &ServerClient, output: Output, id: &str) -> Result<(), Failure> {
    let mut release = server.get(&["releases", id], &[])?;
    let is_active = string_or_empty(&release, "state") == StateName::Active.as_str();
    let advice = if is_active { recommendation(server, id)? } else { None };
    let Some(advice) = advice else { return output.record(&release) };
    if output.is_for_people() {
        output.record(&release)?;
        print("")?;
        return print(&describe(&advice, id));
    }
    if let Some(members) = release.as_object_mut() {
        members.insert(MEMBER.to_owned(), advice);
    }
    output.record(&release)
}

/// The server's recommendation; `None` if the caller may not read it.
fn recommendation(server: &ServerClient, id: &str) -> Result<Option<Value>, Failure> {
    match server.get(&["releases", id, "rollback-recommendation"], &[]) {
        Err(Failure::Refused(refusal)) if matches!(refusal.status, 403 | 404) => Ok(None),
        found => found.map(Some),
    }
}

fn describe(advice: &Value, id: &str) -> String {
    let percent = |name: &str| advice.get(name).and_then(Value::as_f64).unwrap_or_default() * 100.0;
    let (rate, threshold) = (percent("error_rate"), percent("threshold"));
    let runs = advice.get("sample_size").and_then(Value::as_u64).unwrap_or_default();
    let summary = format!("{rate:.1} % of the last {runs} runs failed; the threshold is {threshold:.1} %");
    if advice.get("recommended").and_then(Value::as_bool).unwrap_or_default() {
        return format!("advice: roll back, because {summary}\n  fairway releases rollback {id} --reason WHY");
    }
    if rate > threshold {
        return format!("advice: none yet, because too few runs ended to decide ({summary})");
    }
    format!("advice: no rollback ({summary})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn describes_the_advice_with_its_numbers() {
        let advice = |recommended| json!({ "recommended": recommended, "error_rate": 0.125, "threshold": 0.05, "sample_size": 40 });
        let text = describe(&advice(true), "019a");
        assert!(
            text.contains("roll back, because 12.5 % of the last 40 runs failed; the threshold is 5.0 %"),
            "{text}"
        );
        assert!(text.ends_with("fairway releases rollback 019a --reason WHY"), "{text}");
        assert!(describe(&advice(false), "019a").starts_with("advice: none yet, because too few runs"));
        let good = json!({ "recommended": false, "error_rate": 0.01, "threshold": 0.05, "sample_size": 40 });
        assert!(describe(&good, "019a").starts_with("advice: no rollback ("));
    }
}
