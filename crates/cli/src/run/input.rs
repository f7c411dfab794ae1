//! Inputs from a command line: texts that mean what the workload's form says.

use crate::{failure::Failure, file};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, path::Path};

/// Longest file whose text is an input.
const LONGEST: u64 = 1 << 20;

/// What a command line gives, before it is known what it means.
#[derive(Debug)]
pub(super) struct Given {
    /// Values that are what they are.
    settled: Map<String, Value>,
    /// Texts that may mean a number, or true or false.
    texts: BTreeMap<String, String>,
}

impl Given {
    /// Reads what was given one by one, over what stands in the file.
    pub(super) fn read(single: &[String], all: Option<&Path>) -> Result<Self, Failure> {
        let mut settled = match all {
            Some(path) => match file::Source::open(path)?.value()?.value {
                Value::Object(members) => members,
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    return Err(Failure::Usage("a file of inputs holds one mapping of names to values".to_owned()));
                }
            },
            None => Map::new(),
        };
        let mut texts = BTreeMap::new();
        for input in single {
            let (name, value) = input.split_once('=').ok_or_else(|| misspelled(input))?;
            if let Some(name) = name.strip_suffix(':') {
                let value = serde_json::from_str(value)
                    .map_err(|_| Failure::Usage(format!("`{name}:=` is followed by JSON")))?;
                settled.insert(name.to_owned(), value);
                texts.remove(name);
                continue;
            }
            if let Some(path) = value.strip_prefix('@') {
                let text = file::Source::open_within(Path::new(path), LONGEST)?.text;
                settled.insert(name.to_owned(), Value::String(text));
                texts.remove(name);
            } else {
                settled.remove(name);
                texts.insert(name.to_owned(), value.to_owned());
            }
        }
        Ok(Self { settled, texts })
    }

    /// The inputs, each text as its field of the form says; the form is asked for where there are texts.
    pub(super) fn typed(
        self,
        form: impl FnOnce() -> Result<Option<Value>, Failure>,
    ) -> Result<Map<String, Value>, Failure> {
        let Self { mut settled, texts } = self;
        if texts.is_empty() {
            return Ok(settled);
        }
        let form = form()?.unwrap_or_default();
        let fields = form.pointer("/interface_config/input_fields").and_then(Value::as_array);
        let kind = |name: &str| {
            let named = |field: &&Value| field.get("name").and_then(Value::as_str) == Some(name);
            fields.into_iter().flatten().find(named)?.get("type")?.as_str()
        };
        for (name, text) in texts {
            let value = match kind(&name) {
                // What is neither is sent as it is: the server says best what is wrong with it.
                Some("number") => match serde_json::from_str(&text) {
                    Ok(number @ Value::Number(_)) => number,
                    Ok(_) | Err(_) => Value::String(text),
                },
                Some("boolean") => text.parse().map_or(Value::String(text), Value::Bool),
                Some(_) | None => Value::String(text),
            };
            settled.insert(name, value);
        }
        Ok(settled)
    }
}

fn misspelled(input: &str) -> Failure {
    let name: String = input.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').take(40).collect();
    Failure::Usage(format!("the input `{name}` is given as NAME=TEXT, NAME=@FILE or NAME:=JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn typed(single: &[&str], fields: &Value) -> Value {
        let single: Vec<String> = single.iter().map(|input| (*input).to_owned()).collect();
        let form = json!({ "interface_config": { "input_fields": fields } });
        Value::Object(Given::read(&single, None).unwrap().typed(|| Ok(Some(form))).unwrap())
    }

    #[test]
    fn texts_mean_what_the_form_says() {
        let fields = json!([
            { "name": "count", "type": "number" }, { "name": "loud", "type": "boolean" }, { "name": "word", "type": "text" },
        ]);
        let given = ["count=3.5", "loud=true", "word=5", "other=7", "any:=[1, null]", "empty="];
        let expected = json!({ "count": 3.5, "loud": true, "word": "5", "other": "7", "any": [1, null], "empty": "" });
        assert_eq!(typed(&given, &fields), expected);
        assert_eq!(typed(&["count=three", "loud=yes"], &fields), json!({ "count": "three", "loud": "yes" }));
        assert_eq!(typed(&["a:=1", "a=x"], &fields), json!({ "a": "x" }), "the last one counts");
        assert_eq!(typed(&["a=x", "a:=1"], &fields), json!({ "a": 1 }));
    }

    #[test]
    fn what_is_no_input_is_a_wrong_usage() {
        for wrong in ["ticket", "a:=nonsense"] {
            assert!(matches!(Given::read(&[wrong.to_owned()], None), Err(Failure::Usage(_))), "{wrong}");
        }
    }
}
