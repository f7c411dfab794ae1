//! Resolves plain scalars by the YAML 1.2 core schema (YAML 1.2.2, section 10.3.2). Unlike in older YAML versions,
//! `no`, `on` and `1_000` are strings, and `017` is seventeen.

// A flow becomes canonical JSON, which represents integers exactly only up to `LARGEST_EXACT_INTEGER`.
use crate::number::LARGEST_EXACT_INTEGER;
use serde_json::{Number, Value};

/// A number that canonical JSON cannot represent: it is not finite, or an integer that would be rounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OutOfRange;

/// Resolves a plain scalar to a JSON value.
///
/// # Errors
/// When JSON cannot represent the number exactly.
pub(super) fn resolve(text: &str) -> Result<Value, OutOfRange> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Ok(Value::Null),
        "true" | "True" | "TRUE" => Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => Ok(Value::Bool(false)),
        ".nan" | ".NaN" | ".NAN" => Err(OutOfRange),
        _ => number(text).unwrap_or_else(|| Ok(Value::String(text.to_owned()))),
    }
}

/// Parses a number; `None` when the text is not a number.
fn number(text: &str) -> Option<Result<Value, OutOfRange>> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let negative = text.starts_with('-');
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        return Some(Err(OutOfRange));
    }
    // Octal and hexadecimal numbers have no sign.
    if let Some(digits) = text.strip_prefix("0o") {
        return integer(digits, 8, false);
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return integer(digits, 16, false);
    }
    integer(unsigned, 10, negative).or_else(|| float(text, unsigned))
}

fn integer(digits: &str, radix: u32, negative: bool) -> Option<Result<Value, OutOfRange>> {
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    // All digits are valid, so parsing fails only if the number overflows.
    let value = u64::from_str_radix(digits, radix).ok().filter(|value| *value <= LARGEST_EXACT_INTEGER);
    Some(value.and_then(|value| i64::try_from(value).ok()).ok_or(OutOfRange).map(|value| {
        let signed = if negative { -value } else { value };
        Value::Number(signed.into())
    }))
}

/// Parses a decimal number of the form `[-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?`.
fn float(text: &str, unsigned: &str) -> Option<Result<Value, OutOfRange>> {
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_well_formed = digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty());
    if !is_well_formed || exponent.is_some_and(|exponent| exponent.is_empty() || !digits(exponent)) {
        return None;
    }
    // A text of this form always parses. If the number overflows, it is infinite, and `from_f64` refuses it.
    let value = text.parse::<f64>().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "2^53 - 1 is exactly a double")]
    let bound = LARGEST_EXACT_INTEGER as f64;
    let is_exact = value.fract() != 0.0 || value.abs() <= bound;
    Some(Number::from_f64(value).filter(|_| is_exact).map(Value::Number).ok_or(OutOfRange))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn resolves_scalars_by_core_schema_only() {
        let cases = [
            ("", json!(null)),
            ("~", json!(null)),
            ("Null", json!(null)),
            ("nULL", json!("nULL")),
            ("True", json!(true)),
            ("FALSE", json!(false)),
            ("tRUE", json!("tRUE")),
            ("0", json!(0)),
            ("-0", json!(0)),
            ("+12", json!(12)),
            ("017", json!(17)),
            ("0o17", json!(15)),
            ("0o18", json!("0o18")),
            ("0x1F", json!(31)),
            ("-0x1F", json!("-0x1F")),
            ("0b1", json!("0b1")),
            ("9007199254740991", json!(9_007_199_254_740_991_i64)),
            ("1.", json!(1.0)),
            (".5", json!(0.5)),
            ("-1.5e+3", json!(-1500.0)),
            ("1e", json!("1e")),
            (".", json!(".")),
            (".e1", json!(".e1")),
            ("1.2.3", json!("1.2.3")),
            ("inf", json!("inf")),
            ("nan", json!("nan")),
        ];
        for (text, expected) in cases {
            assert_eq!(resolve(text), Ok(expected), "{text:?}");
        }
        // Scalars that are strings here, although older YAML versions or other languages interpret them differently.
        for text in ["no", "No", "on", "off", "yes", "y", "1_000", "1:30", "2026-11-21", "<<", "=", "0.1.0", "１２"] {
            assert_eq!(resolve(text), Ok(json!(text)), "{text:?}");
        }
        for text in
            [".inf", "-.Inf", ".nan", "1e400", "9007199254740992", "-9007199254740992", "1e17", "0xFFFFFFFFFFFFFFFFF"]
        {
            assert_eq!(resolve(text), Err(OutOfRange), "{text:?}");
        }
    }
}
