//! References in a flow: `{{trigger.<input>}}`, `{{release.<role>}}` and `{{steps.<step>.output}}`.
//!
//! References are parsed together with the flow and resolved in one pass. Text that a reference inserts is not searched
//! for further references.

mod charge_budget;

use super::value_budget::{ValueBudget, ValueLimitExceeded};
use crate::asset::kind::AssetKind;
use serde_json::{Map, Value};
use std::{
    borrow::Cow,
    fmt::{self, Write as _},
};

/// The maximum length of the name of an input, step or field, in characters.
pub const MAX_NAME: usize = 63;

/// A reference in a flow, which a run resolves to a value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ValueReference {
    /// An input of the run.
    Trigger {
        /// The name of the input.
        input: String,
    },
    /// The asset that the release binds in a role.
    Release {
        /// The role in which the asset is bound.
        role: AssetKind,
    },
    /// The output of a step.
    Step {
        /// The identifier of the step.
        step: String,
        /// The path inside the output, outermost member first; empty for the whole output.
        fields: Vec<String>,
    },
}

impl fmt::Display for ValueReference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trigger { input } => write!(formatter, "trigger.{input}"),
            Self::Release { role } => write!(formatter, "release.{role}"),
            Self::Step { step, fields } => {
                write!(formatter, "steps.{step}.output")?;
                fields.iter().try_for_each(|field| write!(formatter, ".{field}"))
            }
        }
    }
}

/// The reason why a text with references is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
pub enum ReferenceRefusal {
    /// The double braces are not closed, or their text is not a reference.
    #[error("double braces must hold `trigger.<input>`, `release.<role>` or `steps.<step>.output`")]
    Malformed,
    /// The reference names an unknown role.
    #[error("a reference names an unknown role; the roles are asset kinds, such as `model_policy`")]
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

/// The reason why a template cannot be resolved in a run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResolveError {
    /// No value exists for this reference.
    #[error("a referenced value is missing")]
    Missing(ValueReference),
    /// The resolved value exceeds the value budget of the run.
    #[error(transparent)]
    TooLarge(#[from] ValueLimitExceeded),
}

/// Provides the values of references in a run.
pub trait ReferenceResolver {
    /// The value of a reference, if it exists. The value is borrowed, so that a copy can be charged to the budget
    /// before it is made.
    fn value(&self, reference: &ValueReference) -> Option<Cow<'_, Value>>;
}

fn lookup<'s>(scope: &'s dyn ReferenceResolver, reference: &ValueReference) -> Result<Cow<'s, Value>, ResolveError> {
    scope.value(reference).ok_or_else(|| ResolveError::Missing(reference.clone()))
}

/// A text that may contain references.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextTemplate {
    source: String,
    parts: Vec<TextPart>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum TextPart {
    Literal(String),
    Reference(ValueReference),
}

impl TextTemplate {
    /// Parses a text with references.
    ///
    /// # Errors
    /// When double braces contain anything other than a reference.
    pub fn parse(source: &str) -> Result<Self, ReferenceRefusal> {
        let mut parts = Vec::new();
        let mut rest = source;
        while let Some((before, after)) = rest.split_once("{{") {
            let (inner, tail) = after.split_once("}}").ok_or(ReferenceRefusal::Malformed)?;
            if !before.is_empty() {
                parts.push(TextPart::Literal(before.to_owned()));
            }
            parts.push(TextPart::Reference(parse_reference(inner.trim_matches(' '))?));
            rest = tail;
        }
        if !rest.is_empty() {
            parts.push(TextPart::Literal(rest.to_owned()));
        }
        Ok(Self { source: source.to_owned(), parts })
    }

    /// Parses each pair of double braces from left to right. A malformed reference does not end the scan.
    pub(super) fn scan(source: &str) -> impl Iterator<Item = Result<ValueReference, ReferenceRefusal>> {
        let mut rest = source;
        std::iter::from_fn(move || {
            let (_, after) = rest.split_once("{{")?;
            let Some((inner, tail)) = after.split_once("}}") else {
                rest = "";
                return Some(Err(ReferenceRefusal::Malformed));
            };
            rest = tail;
            Some(parse_reference(inner.trim_matches(' ')))
        })
    }

    /// A text that consists only of one reference.
    #[must_use]
    pub fn from_reference(reference: ValueReference) -> Self {
        Self { source: format!("{{{{{reference}}}}}"), parts: vec![TextPart::Reference(reference)] }
    }

    /// The text as written in the content.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The references, from left to right.
    pub fn references(&self) -> impl Iterator<Item = &ValueReference> {
        self.parts.iter().filter_map(|part| match part {
            TextPart::Literal(_) => None,
            TextPart::Reference(reference) => Some(reference),
        })
    }

    /// Resolves the text at the nesting level `depth`. A text that consists of one reference resolves to the value of
    /// that reference. Any other text resolves to a string with inserted values: strings verbatim, null as nothing,
    /// other values as JSON.
    fn resolve(
        &self,
        scope: &dyn ReferenceResolver,
        budget: &mut ValueBudget,
        depth: usize,
    ) -> Result<Value, ResolveError> {
        if let [TextPart::Reference(only)] = self.parts.as_slice() {
            let value = lookup(scope, only)?;
            budget.charge_at(&value, depth)?;
            return Ok(value.into_owned());
        }
        budget.charge_level(depth)?;
        let mut writer = BudgetedWriter { text: String::new(), budget };
        for part in &self.parts {
            match part {
                TextPart::Literal(text) => writer.push(text)?,
                TextPart::Reference(reference) => match lookup(scope, reference)?.as_ref() {
                    Value::Null => {}
                    Value::String(text) => writer.push(text)?,
                    value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                        // The writer fails only if the budget is exhausted.
                        write!(writer, "{value}").map_err(|_| ValueLimitExceeded)?;
                    }
                },
            }
        }
        Ok(Value::String(writer.text))
    }
}

/// A writer that charges the budget before it appends text.
struct BudgetedWriter<'a> {
    text: String,
    budget: &'a mut ValueBudget,
}

impl BudgetedWriter<'_> {
    fn push(&mut self, text: &str) -> Result<(), ValueLimitExceeded> {
        self.budget.charge_text(text)?;
        self.text.push_str(text);
        Ok(())
    }
}

impl fmt::Write for BudgetedWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text).map_err(|_| fmt::Error)
    }
}

fn parse_reference(inner: &str) -> Result<ValueReference, ReferenceRefusal> {
    let mut segments = inner.split('.');
    let (Some(root), Some(name)) = (segments.next(), segments.next()) else { return Err(ReferenceRefusal::Malformed) };
    let path: Vec<&str> = segments.collect();
    match (root, path.as_slice()) {
        ("trigger", []) if is_name(name) => Ok(ValueReference::Trigger { input: name.to_owned() }),
        ("release", []) if is_name(name) => {
            AssetKind::parse(name).map(|role| ValueReference::Release { role }).ok_or(ReferenceRefusal::UnknownRole)
        }
        ("steps", ["output", fields @ ..]) if is_step_id(name) && fields.iter().all(|field| is_name(field)) => {
            let fields = fields.iter().map(|field| (*field).to_owned()).collect();
            Ok(ValueReference::Step { step: name.to_owned(), fields })
        }
        _ => Err(ReferenceRefusal::Malformed),
    }
}

/// Whether a text is a valid name of an input or field: a letter or underscore, then letters, digits and underscores.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let starts_like_name = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    starts_like_name && text.len() <= MAX_NAME && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Whether a text is a valid step identifier: like a name, but hyphens are allowed after the first character.
#[must_use]
pub fn is_step_id(text: &str) -> bool {
    is_name(&text.replace('-', "_")) && !text.starts_with('-')
}

/// A JSON value whose strings can contain references.
#[derive(Clone, PartialEq, Debug)]
pub enum Template {
    /// Null, a boolean or a number.
    Scalar(Value),
    /// A string, which can contain references.
    Text(TextTemplate),
    /// A list whose items are templates.
    List(Vec<Template>),
    /// An object whose values are templates.
    Object(Vec<(String, Template)>),
}

impl Template {
    /// Resolves every reference, and charges the budget for the resulting value.
    ///
    /// # Errors
    /// When a referenced value is missing, or the result exceeds the budget.
    pub fn resolve(&self, scope: &dyn ReferenceResolver, budget: &mut ValueBudget) -> Result<Value, ResolveError> {
        self.resolve_at(scope, budget, 0)
    }

    fn resolve_at(
        &self,
        scope: &dyn ReferenceResolver,
        budget: &mut ValueBudget,
        depth: usize,
    ) -> Result<Value, ResolveError> {
        match self {
            Self::Scalar(value) => {
                budget.charge_at(value, depth)?;
                Ok(value.clone())
            }
            Self::Text(text) => text.resolve(scope, budget, depth),
            Self::List(items) => {
                budget.charge_level(depth)?;
                items.iter().map(|item| item.resolve_at(scope, &mut *budget, depth + 1)).collect()
            }
            Self::Object(members) => {
                budget.charge_level(depth)?;
                let mut resolved = Map::new();
                for (key, member) in members {
                    budget.charge_key(key)?;
                    resolved.insert(key.clone(), member.resolve_at(scope, &mut *budget, depth + 1)?);
                }
                Ok(Value::Object(resolved))
            }
        }
    }

    /// The template as written in the content, with unresolved references.
    #[must_use]
    pub fn source(&self) -> Value {
        match self {
            Self::Scalar(value) => value.clone(),
            Self::Text(text) => Value::String(text.source().to_owned()),
            Self::List(items) => items.iter().map(Self::source).collect(),
            Self::Object(members) => members.iter().map(|(key, member)| (key.clone(), member.source())).collect(),
        }
    }

    /// Whether the template contains literal content besides its references.
    #[must_use]
    pub fn has_literals(&self) -> bool {
        match self {
            Self::Text(text) => text.parts.iter().any(|part| matches!(part, TextPart::Literal(_))),
            Self::Scalar(_) | Self::List(_) | Self::Object(_) => true,
        }
    }

    /// Every reference in the template.
    #[must_use]
    pub fn references(&self) -> Vec<&ValueReference> {
        match self {
            Self::Scalar(_) => Vec::new(),
            Self::Text(text) => text.references().collect(),
            Self::List(items) => items.iter().flat_map(Self::references).collect(),
            Self::Object(members) => members.iter().flat_map(|(_, member)| member.references()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::value_budget::MAX_NESTING;
    use proptest::prelude::*;
    use serde_json::json;

    struct Scope;

    impl ReferenceResolver for Scope {
        fn value(&self, reference: &ValueReference) -> Option<Cow<'_, Value>> {
            let value = match reference.to_string().as_str() {
                "trigger.question" => json!("why {{trigger.secret}}?"),
                "release.model_policy" => json!({"slug": "mp"}),
                "steps.ask-1.output" => json!([1, 2]),
                "steps.ask-1.output.text.first" => json!(null),
                _ => return None,
            };
            Some(Cow::Owned(value))
        }
    }

    fn resolve_within(template: &Template, bytes: usize) -> Result<Value, ResolveError> {
        template.resolve(&Scope, &mut ValueBudget::new(bytes))
    }

    fn resolve(text: &str) -> Result<Value, ResolveError> {
        resolve_within(&Template::Text(TextTemplate::parse(text).unwrap()), 1 << 20)
    }

    #[test]
    fn single_reference_keeps_value_type() {
        assert_eq!(resolve("{{steps.ask-1.output}}").unwrap(), json!([1, 2]));
        assert_eq!(resolve("{{ release.model_policy }}").unwrap(), json!({"slug": "mp"}));
        assert_eq!(resolve("plain }} text").unwrap(), json!("plain }} text"));
        assert_eq!(resolve("").unwrap(), json!(""));
    }

    #[test]
    fn inserts_values_without_reparsing() {
        let text = "Q: {{trigger.question}} {{steps.ask-1.output}}{{steps.ask-1.output.text.first}}!";
        assert_eq!(resolve(text).unwrap(), json!("Q: why {{trigger.secret}}? [1,2]!"));
    }

    #[test]
    fn reports_missing_reference() {
        let missing = resolve("x {{trigger.gone}}").unwrap_err();
        assert_eq!(missing, ResolveError::Missing(ValueReference::Trigger { input: "gone".to_owned() }));
    }

    #[test]
    fn templates_resolve_inside_lists_and_objects() {
        let text = |source: &str| Template::Text(TextTemplate::parse(source).unwrap());
        let template = Template::Object(vec![
            ("a".to_owned(), Template::List(vec![text("{{steps.ask-1.output}}"), Template::Scalar(json!(3))])),
            ("b".to_owned(), text("x")),
        ]);
        assert_eq!(resolve_within(&template, 1 << 20).unwrap(), json!({"a": [[1, 2], 3], "b": "x"}));
        assert_eq!(template.source(), json!({"a": ["{{steps.ask-1.output}}", 3], "b": "x"}));
        assert_eq!(template.references().len(), 1);
    }

    #[test]
    fn charges_every_copy() {
        let text = |source: &str| Template::Text(TextTemplate::parse(source).unwrap());
        let keyed = |key: &str| Template::Object(vec![(key.to_owned(), Template::Scalar(json!(1)))]);
        for (short, long) in [
            (text("x"), text(&"x".repeat(50_000))),
            (text("{{trigger.question}}"), Template::List(vec![text("{{trigger.question}}"); 1_000])),
            (text("x{{trigger.question}}"), text(&"{{trigger.question}}".repeat(1_000))),
            (text("x{{steps.ask-1.output}}"), text(&"{{steps.ask-1.output}}".repeat(2_000))),
            (Template::Scalar(json!(1)), Template::List(vec![Template::Scalar(json!(1)); 1_000])),
            (keyed("k"), keyed(&"k".repeat(50_000))),
        ] {
            assert!(resolve_within(&short, 10_000).is_ok(), "{short:?}");
            assert_eq!(
                resolve_within(&long, 10_000),
                Err(ResolveError::TooLarge(ValueLimitExceeded)),
                "{:?}",
                long.source()
            );
        }
        let deep = |levels: usize| (1..levels).fold(Template::Scalar(json!(1)), |inner, _| Template::List(vec![inner]));
        assert!(resolve_within(&deep(MAX_NESTING), 1 << 20).is_ok());
        assert_eq!(resolve_within(&deep(MAX_NESTING + 1), 1 << 20), Err(ResolveError::TooLarge(ValueLimitExceeded)));
    }

    #[test]
    fn refuses_malformed_references() {
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
            assert_eq!(TextTemplate::parse(text), Err(ReferenceRefusal::Malformed), "{text}");
        }
        assert_eq!(TextTemplate::parse("{{release.bogus}}"), Err(ReferenceRefusal::UnknownRole));
    }

    proptest! {
        #[test]
        fn parses_or_refuses_any_text(text in "([{}. a]|trigger\\.|steps\\.|\\PC){0,40}") {
            if let Ok(parsed) = TextTemplate::parse(&text) {
                prop_assert_eq!(parsed.source(), text);
            }
        }
    }
}
