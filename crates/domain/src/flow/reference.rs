//! References inside a flow: `{{trigger.<input>}}`, `{{release.<role>}}` and `{{steps.<step>.output}}`.
//!
//! They are parsed once, when the flow is read, and resolved in one pass; a value that is put in is never read again.

use crate::asset::kind::AssetKind;
use serde_json::{Map, Value};
use std::fmt;

/// Longest name of an input, a step or a field, in characters.
pub const MAX_NAME: usize = 63;

/// Something that a flow reads while it runs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reference {
    /// An input of the run.
    Trigger {
        /// Its name.
        input: String,
    },
    /// What the release binds in a role.
    Release {
        /// The role.
        role: AssetKind,
    },
    /// The output of another step.
    Step {
        /// The step's id.
        step: String,
        /// Members to follow inside the output, outermost first; empty for the whole.
        fields: Vec<String>,
    },
}

impl fmt::Display for Reference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trigger { input } => write!(out, "trigger.{input}"),
            Self::Release { role } => write!(out, "release.{role}"),
            Self::Step { step, fields } => {
                write!(out, "steps.{step}.output")?;
                fields.iter().try_for_each(|field| write!(out, ".{field}"))
            }
        }
    }
}

/// Why a text with references is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReferenceRefusal {
    /// Double braces that hold no reference, or are not closed.
    #[error("double braces must hold `trigger.<input>`, `release.<role>` or `steps.<step>.output`")]
    Malformed,
    /// A role that no asset kind has.
    #[error("a reference names an unknown role")]
    UnknownRole,
}

impl ReferenceRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Malformed => "reference_malformed",
            Self::UnknownRole => "unknown_role",
        }
    }
}

/// A reference that has no value in this run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a referenced value is missing")]
pub struct MissingReference(pub Reference);

/// Where a running flow finds the values of its references.
pub trait ReferenceScope {
    /// The value of a reference, `None` where there is none.
    fn value(&self, reference: &Reference) -> Option<Value>;
}

/// A text with references in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Text {
    source: String,
    parts: Vec<Part>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Literal(String),
    Reference(Reference),
}

impl Text {
    /// Parses a text.
    ///
    /// # Errors
    /// When double braces hold anything else than a reference.
    pub fn parse(source: &str) -> Result<Self, ReferenceRefusal> {
        let mut parts = Vec::new();
        let mut rest = source;
        while let Some((before, after)) = rest.split_once("{{") {
            let (inner, tail) = after.split_once("}}").ok_or(ReferenceRefusal::Malformed)?;
            if !before.is_empty() {
                parts.push(Part::Literal(before.to_owned()));
            }
            parts.push(Part::Reference(reference(inner.trim_matches(' '))?));
            rest = tail;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        Ok(Self { source: source.to_owned(), parts })
    }

    /// A text that is exactly one reference.
    #[must_use]
    pub fn of(reference: Reference) -> Self {
        Self { source: format!("{{{{{reference}}}}}"), parts: vec![Part::Reference(reference)] }
    }

    /// The text as written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The references, from left to right.
    pub fn references(&self) -> impl Iterator<Item = &Reference> {
        self.parts.iter().filter_map(|part| match part {
            Part::Literal(_) => None,
            Part::Reference(reference) => Some(reference),
        })
    }

    /// The value of the text: a text that is exactly one reference has that reference's value, any other is a string
    /// with the values written into it (strings as they are, null as nothing, the rest as JSON).
    ///
    /// # Errors
    /// When a referenced value is missing.
    pub fn resolve(&self, scope: &dyn ReferenceScope) -> Result<Value, MissingReference> {
        let find = |reference: &Reference| scope.value(reference).ok_or_else(|| MissingReference(reference.clone()));
        if let [Part::Reference(only)] = self.parts.as_slice() {
            return find(only);
        }
        let mut written = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(text) => written.push_str(text),
                Part::Reference(reference) => match find(reference)? {
                    Value::Null => {}
                    Value::String(text) => written.push_str(&text),
                    value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                        written.push_str(&value.to_string());
                    }
                },
            }
        }
        Ok(Value::String(written))
    }
}

fn reference(inner: &str) -> Result<Reference, ReferenceRefusal> {
    let mut words = inner.split('.');
    let (Some(root), Some(name)) = (words.next(), words.next()) else { return Err(ReferenceRefusal::Malformed) };
    let rest: Vec<&str> = words.collect();
    match (root, rest.as_slice()) {
        ("trigger", []) if is_name(name) => Ok(Reference::Trigger { input: name.to_owned() }),
        ("release", []) if is_name(name) => {
            AssetKind::parse(name).map(|role| Reference::Release { role }).ok_or(ReferenceRefusal::UnknownRole)
        }
        ("steps", ["output", fields @ ..]) if is_step_id(name) && fields.iter().all(|field| is_name(field)) => {
            let fields = fields.iter().map(|field| (*field).to_owned()).collect();
            Ok(Reference::Step { step: name.to_owned(), fields })
        }
        _ => Err(ReferenceRefusal::Malformed),
    }
}

/// Names of inputs and fields: a letter or underscore, then letters, digits and underscores.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    begins && text.len() <= MAX_NAME && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Ids of steps: like names, with hyphens after the first character.
#[must_use]
pub fn is_step_id(text: &str) -> bool {
    is_name(&text.replace('-', "_")) && !text.starts_with('-')
}

/// Any JSON value in which texts may hold references.
#[derive(Clone, PartialEq, Debug)]
pub enum Template {
    /// Null, a boolean or a number.
    Plain(Value),
    /// A text.
    Text(Text),
    /// A list.
    List(Vec<Template>),
    /// An object.
    Object(Vec<(String, Template)>),
}

impl Template {
    /// The value with every reference resolved.
    ///
    /// # Errors
    /// When a referenced value is missing.
    pub fn resolve(&self, scope: &dyn ReferenceScope) -> Result<Value, MissingReference> {
        match self {
            Self::Plain(value) => Ok(value.clone()),
            Self::Text(text) => text.resolve(scope),
            Self::List(items) => items.iter().map(|item| item.resolve(scope)).collect(),
            Self::Object(members) => {
                let resolved: Result<Map<String, Value>, _> =
                    members.iter().map(|(key, member)| Ok((key.clone(), member.resolve(scope)?))).collect();
                Ok(Value::Object(resolved?))
            }
        }
    }

    /// The value as written.
    #[must_use]
    pub fn source(&self) -> Value {
        match self {
            Self::Plain(value) => value.clone(),
            Self::Text(text) => Value::String(text.source().to_owned()),
            Self::List(items) => items.iter().map(Self::source).collect(),
            Self::Object(members) => members.iter().map(|(key, member)| (key.clone(), member.source())).collect(),
        }
    }

    /// Every reference in the value.
    #[must_use]
    pub fn references(&self) -> Vec<&Reference> {
        match self {
            Self::Plain(_) => Vec::new(),
            Self::Text(text) => text.references().collect(),
            Self::List(items) => items.iter().flat_map(Self::references).collect(),
            Self::Object(members) => members.iter().flat_map(|(_, member)| member.references()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    struct Scope;

    impl ReferenceScope for Scope {
        fn value(&self, reference: &Reference) -> Option<Value> {
            match reference.to_string().as_str() {
                "trigger.question" => Some(json!("why {{trigger.secret}}?")),
                "release.model_policy" => Some(json!({"slug": "mp"})),
                "steps.ask-1.output" => Some(json!([1, 2])),
                "steps.ask-1.output.text.first" => Some(json!(null)),
                _ => None,
            }
        }
    }

    fn resolve(text: &str) -> Result<Value, MissingReference> {
        Text::parse(text).unwrap().resolve(&Scope)
    }

    #[test]
    fn one_reference_keeps_its_value() {
        assert_eq!(resolve("{{steps.ask-1.output}}").unwrap(), json!([1, 2]));
        assert_eq!(resolve("{{ release.model_policy }}").unwrap(), json!({"slug": "mp"}));
        assert_eq!(resolve("plain }} text").unwrap(), json!("plain }} text"));
        assert_eq!(resolve("").unwrap(), json!(""));
    }

    #[test]
    fn others_are_written_into_the_text_once() {
        let text = "Q: {{trigger.question}} {{steps.ask-1.output}}{{steps.ask-1.output.text.first}}!";
        assert_eq!(resolve(text).unwrap(), json!("Q: why {{trigger.secret}}? [1,2]!"));
    }

    #[test]
    fn a_missing_value_is_named() {
        let missing = resolve("x {{trigger.gone}}").unwrap_err();
        assert_eq!(missing.0, Reference::Trigger { input: "gone".to_owned() });
    }

    #[test]
    fn templates_resolve_inside_lists_and_objects() {
        let text = |source: &str| Template::Text(Text::parse(source).unwrap());
        let template = Template::Object(vec![
            ("a".to_owned(), Template::List(vec![text("{{steps.ask-1.output}}"), Template::Plain(json!(3))])),
            ("b".to_owned(), text("x")),
        ]);
        assert_eq!(template.resolve(&Scope).unwrap(), json!({"a": [[1, 2], 3], "b": "x"}));
        assert_eq!(template.source(), json!({"a": ["{{steps.ask-1.output}}", 3], "b": "x"}));
        assert_eq!(template.references().len(), 1);
    }

    #[test]
    fn refuses_everything_else_in_braces() {
        for text in [
            "{{",
            "{{}}",
            "{{x}}",
            "{{trigger}}",
            "{{trigger.}}",
            "{{trigger.a.b}}",
            "{{trigger.a-b}}",
            "{{Trigger.a}}",
            "{{trigger. a}}",
            "{{steps.a}}",
            "{{steps.a.outputs}}",
            "{{steps.-a.output}}",
            "{{steps.a.output.}}",
            "{{ {{trigger.a}} }}",
            "{{trigger.a\u{200b}}}",
        ] {
            assert_eq!(Text::parse(text), Err(ReferenceRefusal::Malformed), "{text}");
        }
        assert_eq!(Text::parse("{{release.bogus}}"), Err(ReferenceRefusal::UnknownRole));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "([{}. a]|trigger\\.|steps\\.|\\PC){0,40}") {
            if let Ok(parsed) = Text::parse(&text) {
                prop_assert_eq!(parsed.source(), text);
            }
        }
    }
}
