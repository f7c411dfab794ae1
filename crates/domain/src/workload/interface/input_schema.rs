//! The input form of a workload as a JSON Schema, for programs that run the workload.

use super::{FieldType, InputField, InterfaceConfig};
use serde_json::{Map, Value, json};

impl InterfaceConfig {
    /// The JSON Schema (2020-12) of a run's inputs. It accepts all inputs that the validation of a run accepts.
    #[must_use]
    pub fn input_schema(&self) -> Value {
        let properties: Map<String, Value> =
            self.input_fields().iter().map(|field| (field.name.clone(), field.to_schema())).collect();
        // A required field may be omitted if it has a default, so the schema does not require such a field.
        let required: Vec<&str> = self
            .input_fields()
            .iter()
            .filter(|field| field.is_required() && field.default.is_none())
            .map(|field| field.name.as_str())
            .collect();
        json!({ "type": "object", "additionalProperties": false, "properties": properties, "required": required })
    }
}

impl InputField {
    fn to_schema(&self) -> Value {
        let mut schema = match self.field_type {
            FieldType::Text | FieldType::Textarea if self.is_required() => json!({ "type": "string", "minLength": 1 }),
            FieldType::Text | FieldType::Textarea => json!({ "type": "string" }),
            FieldType::Number => json!({ "type": "number" }),
            FieldType::Select => json!({ "type": "string", "enum": self.options }),
            FieldType::Boolean => json!({ "type": "boolean" }),
            FieldType::Date => json!({ "type": "string", "format": "date" }),
        };
        if let Some(members) = schema.as_object_mut() {
            let bound = |bound: &Option<serde_json::Number>| bound.clone().map(Value::Number);
            let settings = [
                ("title", self.label.clone().map(Value::String)),
                ("minimum", bound(&self.min)),
                ("maximum", bound(&self.max)),
                ("default", self.default.clone()),
            ];
            members.extend(settings.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        }
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_form_to_json_schema() {
        let form = json!({ "presentation_mode": "form", "input_fields": [
            { "name": "ticket", "type": "textarea", "label": "The ticket", "required": true },
            { "name": "urgency", "type": "number", "min": 1, "max": 5, "required": true, "default": 3 },
            { "name": "team", "type": "select", "options": ["a", "b"] },
            { "name": "seen", "type": "boolean" },
            { "name": "day", "type": "date" },
        ] });
        let schema = InterfaceConfig::parse(&form).unwrap().input_schema();
        let expected = json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["ticket"],
            "properties": {
                "ticket": { "type": "string", "minLength": 1, "title": "The ticket" },
                "urgency": { "type": "number", "minimum": 1, "maximum": 5, "default": 3 },
                "team": { "type": "string", "enum": ["a", "b"] },
                "seen": { "type": "boolean" },
                "day": { "type": "string", "format": "date" },
            },
        });
        assert_eq!(schema, expected);
    }
}
