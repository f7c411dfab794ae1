//! The protocol between server and child: each side writes one JSON document and closes its pipe.

use fairway_domain::execution::script::{GatewayFailure, MAX_OUTPUT_BYTES, Script, ScriptFailure, ScriptResult};
use fairway_domain::json::{self, JsonRefusal};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Maximum size of a response, in bytes. JSON needs up to six bytes for a character of output; the remainder is for
/// member names.
pub(crate) const MAX_RESPONSE_BYTES: usize = 6 * MAX_OUTPUT_BYTES + 1_024;

/// Maximum nesting of a result. The strict JSON reader permits 64 levels, and the response object is one of them.
const MAX_NESTING: usize = 63;

/// The request to a child. It names no language, because the child was started for one language.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    pub(crate) code: String,
}

impl Request {
    pub(crate) fn of(script: &Script) -> Self {
        Self { code: script.code.clone() }
    }
}

/// The limits as one command-line argument of the child: wall time and processor time in milliseconds, memory and
/// output in bytes.
pub(crate) mod limits {
    use fairway_domain::execution::script::ScriptLimits;
    use std::time::Duration;

    pub(crate) fn to_argument(limits: &ScriptLimits) -> String {
        let ScriptLimits { wall_time: wall, cpu_time: cpu, memory_bytes: memory, output_bytes: output } = limits;
        format!("{}:{}:{memory}:{output}", wall.as_millis(), cpu.as_millis())
    }

    pub(crate) fn parse(text: &str) -> Option<ScriptLimits> {
        let mut parts = text.split(':');
        let limits = ScriptLimits {
            wall_time: Duration::from_millis(parts.next()?.parse().ok()?),
            cpu_time: Duration::from_millis(parts.next()?.parse().ok()?),
            memory_bytes: parts.next()?.parse().ok()?,
            output_bytes: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(limits)
    }
}

/// The response of a child or an external gateway.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Response {
    /// The code of the failure; null if the script succeeded.
    #[serde(default)]
    pub(crate) failure: Option<String>,
    /// The script's result. Required if `failure` is null: an explicit null is a valid result, but a missing member
    /// is malformed.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Value>,
    #[serde(default)]
    pub(crate) stdout: String,
}

impl Response {
    pub(crate) fn of(script_result: ScriptResult) -> Self {
        let (failure, result) = match script_result.result {
            Ok(result) => (None, Some(result)),
            Err(failure) => (Some(failure.code().to_owned()), None),
        };
        Self { failure, result, stdout: script_result.stdout }
    }

    /// Parses and validates a response from an untrusted source. `result` and `stdout` may together have at most
    /// `max_output_bytes` bytes.
    pub(crate) fn read(bytes: &[u8], max_output_bytes: usize) -> Result<ScriptResult, GatewayFailure> {
        let members = match json::read(bytes) {
            Ok(members @ Value::Object(_)) => members,
            Err(JsonRefusal::TooLarge) => {
                return Ok(ScriptResult { result: Err(ScriptFailure::TooMuchOutput), stdout: String::new() });
            }
            Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_))
            | Err(JsonRefusal::Malformed) => return Err(GatewayFailure::Lost),
        };
        let response = Self::deserialize(members).map_err(|_| GatewayFailure::Lost)?;
        let result = match (response.failure, response.result) {
            (None, Some(result)) => Ok(result),
            (Some(code), None | Some(Value::Null)) => Err(ScriptFailure::from_code(&code).ok_or(GatewayFailure::Lost)?),
            (None, None) | (Some(_), Some(_)) => return Err(GatewayFailure::Lost),
        };
        let stdout = response.stdout;
        Ok(validate_result(ScriptResult { result, stdout }, max_output_bytes))
    }
}

fn present<'de, D: Deserializer<'de>>(member: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(member).map(Some)
}

/// Validates a result. A result that is too long or that cannot be stored becomes a failure.
pub(crate) fn validate_result(outcome: ScriptResult, max_output_bytes: usize) -> ScriptResult {
    let ScriptResult { result, mut stdout } = outcome;
    let size = result.as_ref().map_or(0, |result| result.to_string().len());
    let is_too_long = stdout.len().saturating_add(size) > max_output_bytes;
    truncate(&mut stdout, max_output_bytes);
    let stdout = stdout.replace('\0', "\u{fffd}");
    let result = match result {
        Err(failure) => Err(failure),
        Ok(_) if is_too_long => Err(ScriptFailure::TooMuchOutput),
        // PostgreSQL cannot store a NUL character. It is not replaced, because a changed result would not be the
        // script's result.
        Ok(result) if !is_storable(&result, MAX_NESTING) => Err(ScriptFailure::ResultNotJson),
        Ok(result) => Ok(result),
    };
    ScriptResult { result, stdout }
}

/// Whether a value has at most `nesting` levels and PostgreSQL can store all its texts.
fn is_storable(value: &Value, nesting: usize) -> bool {
    let remaining_levels = nesting.checked_sub(1);
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => !text.contains('\0'),
        Value::Array(items) => remaining_levels
            .is_some_and(|remaining_levels| items.iter().all(|item| is_storable(item, remaining_levels))),
        Value::Object(members) => remaining_levels.is_some_and(|remaining_levels| {
            members.iter().all(|(name, value)| !name.contains('\0') && is_storable(value, remaining_levels))
        }),
    }
}

/// Truncates a text to at most `max_bytes` bytes, at a character boundary.
fn truncate(text: &mut String, max_bytes: usize) {
    let mut end = max_bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.truncate(end);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn responses_round_trip() {
        let script_result = ScriptResult { result: Ok(json!({ "a": [1, 2.5, null] })), stdout: "hello\n".to_owned() };
        let bytes = serde_json::to_vec(&Response::of(script_result.clone())).unwrap();
        assert_eq!(Response::read(&bytes, MAX_OUTPUT_BYTES), Ok(script_result));
        let null_result = ScriptResult { result: Ok(Value::Null), stdout: String::new() };
        assert_eq!(
            Response::read(&serde_json::to_vec(&Response::of(null_result.clone())).unwrap(), MAX_OUTPUT_BYTES),
            Ok(null_result)
        );
        let failed = ScriptResult { result: Err(ScriptFailure::Memory), stdout: String::new() };
        let bytes = serde_json::to_vec(&Response::of(failed.clone())).unwrap();
        assert_eq!(Response::read(&bytes, MAX_OUTPUT_BYTES), Ok(failed));
    }

    #[test]
    fn malformed_responses_are_lost() {
        for garbage in [
            "",
            "{",
            "null",
            "[]",
            "[null,1,\"\"]",
            "{}",
            r#"{"stdout":"so far"}"#,
            r#"{"failure":"nobody_knows"}"#,
            r#"{"failure":"script_error","result":1}"#,
            r#"{"result":1,"stdout":1}"#,
            r#"{"result":1,"root":"sh"}"#,
            r#"{"result":1,"result":2}"#,
            r#"{"failure":"script_error","f\u0061ilure":null,"result":1}"#,
            r#"{"result":{"a":1,"a":2}}"#,
            r#"{"result":"a\u0000b"}"#,
        ] {
            assert_eq!(Response::read(garbage.as_bytes(), MAX_OUTPUT_BYTES), Err(GatewayFailure::Lost), "{garbage}");
        }
        let deep = format!("{{\"result\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(Response::read(deep.as_bytes(), MAX_OUTPUT_BYTES), Err(GatewayFailure::Lost));
    }

    #[test]
    fn oversized_output_is_truncated_and_fails() {
        let long = ScriptResult { result: Ok(json!("é".repeat(MAX_OUTPUT_BYTES))), stdout: String::new() };
        assert_eq!(validate_result(long, MAX_OUTPUT_BYTES).result, Err(ScriptFailure::TooMuchOutput));
        let long = ScriptResult { result: Ok(json!(1)), stdout: format!("x{}", "é".repeat(MAX_OUTPUT_BYTES)) };
        let ScriptResult { result, stdout } = validate_result(long, MAX_OUTPUT_BYTES);
        assert_eq!(result, Err(ScriptFailure::TooMuchOutput));
        assert_eq!(stdout.len(), MAX_OUTPUT_BYTES - 1);
        let long_together = ScriptResult { result: Ok(json!("x".repeat(40_000))), stdout: "x".repeat(40_000) };
        assert_eq!(validate_result(long_together, MAX_OUTPUT_BYTES).result, Err(ScriptFailure::TooMuchOutput));
    }

    #[test]
    fn results_that_cannot_be_stored_fail() {
        let nul = ScriptResult { result: Ok(json!({ "a\u{0}": 1 })), stdout: "\u{0}".to_owned() };
        let ScriptResult { result, stdout } = validate_result(nul, MAX_OUTPUT_BYTES);
        assert_eq!((result, stdout.as_str()), (Err(ScriptFailure::ResultNotJson), "\u{fffd}"));
        for inner in [json!(1), json!([])] {
            let inner_depth = usize::from(inner.is_array());
            let nested = |depth| (inner_depth..depth).fold(inner.clone(), |inner, _| json!([inner]));
            let validated = |depth| {
                validate_result(ScriptResult { result: Ok(nested(depth)), stdout: String::new() }, MAX_OUTPUT_BYTES)
            };
            let deepest = validated(MAX_NESTING);
            assert_eq!(deepest.result, Ok(nested(MAX_NESTING)));
            assert_eq!(validated(MAX_NESTING + 1).result, Err(ScriptFailure::ResultNotJson));
            let bytes = serde_json::to_vec(&Response::of(deepest.clone())).unwrap();
            assert_eq!(
                Response::read(&bytes, MAX_OUTPUT_BYTES),
                Ok(deepest),
                "every valid response of a child is accepted"
            );
        }
    }

    #[test]
    fn oversized_values_fail_as_too_long() {
        let many_members = format!("{{\"result\":[{}1]}}", "{},".repeat(120_000));
        assert_eq!(
            Response::read(many_members.as_bytes(), MAX_OUTPUT_BYTES).unwrap().result,
            Err(ScriptFailure::TooMuchOutput)
        );
    }
}
