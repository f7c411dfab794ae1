//! Whole numbers in JSON: `5`, `5.0` and `5e0` are the same number.

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Number, Value};

/// The largest integer that every JSON parser represents exactly: 2^53 - 1.
pub(crate) const LARGEST_EXACT_INTEGER: u64 = (1 << 53) - 1;

/// Converts a non-negative whole number in any JSON notation; `None` for other numbers.
#[must_use]
pub(crate) fn as_whole(number: &Number) -> Option<u64> {
    if let Some(whole) = number.as_u64() {
        return Some(whole);
    }
    #[expect(clippy::cast_precision_loss, reason = "2^53 - 1 is exactly a double")]
    let exact_range = 0.0..=LARGEST_EXACT_INTEGER as f64;
    let float = number.as_f64().filter(|float| exact_range.contains(float) && float.fract() == 0.0)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole and within the bounds")]
    let whole = float as u64;
    Some(whole)
}

/// Deserializes an optional whole number in any JSON notation.
///
/// # Errors
/// When the value is not a whole number.
pub(crate) fn deserialize_optional_whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let number = Option::<Number>::deserialize(deserializer)?;
    number.map(|number| as_whole(&number).ok_or_else(|| D::Error::custom("expected a whole number"))).transpose()
}

/// Rewrites whole numbers that are written as floats to integers, which is their canonical form in JSON.
pub(crate) fn normalize_whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let magnitude = number.as_f64().map(f64::abs).and_then(Number::from_f64).as_ref().and_then(as_whole);
            if let Some(magnitude) = magnitude.and_then(|magnitude| i64::try_from(magnitude).ok()) {
                let negative = number.as_f64().is_some_and(f64::is_sign_negative);
                *number = Number::from(if negative { -magnitude } else { magnitude });
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize_whole_numbers),
        Value::Object(members) => members.values_mut().for_each(normalize_whole_numbers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalizes_whole_numbers_to_integers() {
        let mut value = serde_json::json!({"a": [5.0, -2.0, 0.5, 1e300, -0.0], "b": "5.0"});
        normalize_whole_numbers(&mut value);
        assert_eq!(value.to_string(), r#"{"a":[5,-2,0.5,1e+300,0],"b":"5.0"}"#);
    }

    fn parse_whole(text: &str) -> Option<u64> {
        as_whole(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn reads_whole_numbers_in_any_notation() {
        for text in ["500", "500.0", "5e2", "5E+2", "5000e-1", "0.5e3"] {
            assert_eq!(parse_whole(text), Some(500), "{text}");
        }
        assert_eq!([parse_whole("0"), parse_whole("-0"), parse_whole("-0.0"), parse_whole("0e9")], [Some(0); 4]);
        assert_eq!(parse_whole("9007199254740991.0"), Some(LARGEST_EXACT_INTEGER));
        for text in ["0.5", "-1", "-1.0", "1e16", "1e300", "500.0000001"] {
            assert_eq!(parse_whole(text), None.or(text.parse::<u64>().ok()), "{text}");
        }
    }
}
