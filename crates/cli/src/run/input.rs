//! Parses inputs from the command line. The workload's form determines their types.

use crate::{failure::Failure, untrusted_file};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, path::Path};

/// Maximum size in bytes of a file whose text is the value of an input.
const MAX_INPUT_BYTES: u64 = 1 << 20;

/// Inputs before their types are known.
#[derive(Debug)]
pub(super) struct RawInputs {
    /// Values of known type, from `NAME:=JSON` or an input file.
    values: Map<String, Value>,
    /// Texts that may represent a number or a boolean.
    texts: BTreeMap<String, String>,
}

impl RawInputs {
    /// Parses single inputs and the inputs of a file. Single inputs override those of the file.
    pub(super) fn parse(pairs: &[String], file: Option<&Path>) -> Result<Self, Failure> {
        let mut values = match file {
            Some(path) => match untrusted_file::Source::open(path)?.value()?.value {
                Value::Object(members) => members,
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    return Err(Failure::Usage("an inputs file must be a mapping of names to values".to_owned()));
                }
            },
            None => Map::new(),
        };
        let mut texts = BTreeMap::new();
        for input in pairs {
            let (name, value) = input.split_once('=').ok_or_else(|| malformed_input(input))?;
            if let Some(name) = name.strip_suffix(':') {
                let value = serde_json::from_str(value)
                    .map_err(|_| Failure::Usage(format!("`{name}:=` must be followed by JSON")))?;
                values.insert(name.to_owned(), value);
                texts.remove(name);
                continue;
            }
            if let Some(path) = value.strip_prefix('@') {
                let text = untrusted_file::Source::open_limited(Path::new(path), MAX_INPUT_BYTES)?.text;
                values.insert(name.to_owned(), Value::String(text));
                texts.remove(name);
            } else {
                values.remove(name);
                texts.insert(name.to_owned(), value.to_owned());
            }
        }
        Ok(Self { values, texts })
    }

    /// Converts texts to the field types of the form. Requests the form only if there are texts.
    pub(super) fn resolve_types(
        self,
        form: impl FnOnce() -> Result<Option<Value>, Failure>,
    ) -> Result<Map<String, Value>, Failure> {
        let Self { mut values, texts } = self;
        if texts.is_empty() {
            return Ok(values);
        }
        let form = form()?.unwrap_or_default();
        let fields = form.pointer("/interface_config/input_fields").and_then(Value::as_array);
        let kind = |name: &str| {
            let has_name = |field: &&Value| field.get("name").and_then(Value::as_str) == Some(name);
            fields.into_iter().flatten().find(has_name)?.get("type")?.as_str()
        };
        for (name, text) in texts {
            let value = match kind(&name) {
                // A text that is not a number is sent unchanged, because the server reports the error with the field.
                Some("number") => match serde_json::from_str(&text) {
                    Ok(number @ Value::Number(_)) => number,
                    Ok(_) | Err(_) => Value::String(text),
                },
                Some("boolean") => text.parse().map_or(Value::String(text), Value::Bool),
                Some(_) | None => Value::String(text),
            };
            values.insert(name, value);
        }
        Ok(values)
    }
}

fn malformed_input(input: &str) -> Failure {
    let name: String =
        input.chars().take_while(|character| character.is_alphanumeric() || *character == '_').take(40).collect();
    Failure::Usage(format!("the input `{name}` must be NAME=TEXT, NAME=@FILE or NAME:=JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn typed(pairs: &[&str], fields: &Value) -> Value {
        let pairs: Vec<String> = pairs.iter().map(|input| (*input).to_owned()).collect();
        let form = json!({ "interface_config": { "input_fields": fields } });
        Value::Object(RawInputs::parse(&pairs, None).unwrap().resolve_types(|| Ok(Some(form))).unwrap())
    }

    #[test]
    fn converts_text_inputs_by_form_types() {
        let fields = json!([
            { "name": "count", "type": "number" }, { "name": "loud", "type": "boolean" }, { "name": "word", "type": "text" },
        ]);
        let inputs = ["count=3.5", "loud=true", "word=5", "other=7", "any:=[1, null]", "empty="];
        let expected = json!({ "count": 3.5, "loud": true, "word": "5", "other": "7", "any": [1, null], "empty": "" });
        assert_eq!(typed(&inputs, &fields), expected);
        assert_eq!(typed(&["count=three", "loud=yes"], &fields), json!({ "count": "three", "loud": "yes" }));
        assert_eq!(typed(&["a:=1", "a=x"], &fields), json!({ "a": "x" }), "the last value applies");
        assert_eq!(typed(&["a=x", "a:=1"], &fields), json!({ "a": 1 }));
    }

    #[test]
    fn rejects_malformed_inputs() {
        for input in ["ticket", "a:=nonsense"] {
            assert!(matches!(RawInputs::parse(&[input.to_owned()], None), Err(Failure::Usage(_))), "{input}");
        }
    }
}
