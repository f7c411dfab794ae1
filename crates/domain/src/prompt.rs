//! Prompt templates: text with tokens that are filled in one pass.
//!
//! A value that is put in is never looked at again, so nothing that a caller supplies can become a token. Refusals name
//! the byte offset of the token and never its text (spec: prompt template grammar).

pub mod grammar;

use crate::slug::Slug;
use grammar::Piece;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Longest rendered prompt, in bytes. A short template can repeat a long value many times.
pub const MAX_RENDERED: usize = 4 << 20;

/// A prompt template, parsed once.
#[derive(Clone, PartialEq, Debug)]
pub struct PromptTemplate {
    pieces: Vec<Piece>,
    variables: Vec<Variable>,
    output_schema: Option<Value>,
}

/// A declared variable of a template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// What tokens and arguments call it.
    pub name: String,
    /// What values it takes.
    pub kind: VariableKind,
}

/// The type of a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VariableKind {
    /// A text; the type of a variable that declares none.
    String,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// A list, written as JSON.
    Array,
}

impl VariableKind {
    /// Every type.
    pub const ALL: [Self; 4] = [Self::String, Self::Number, Self::Boolean, Self::Array];

    /// The spelling in content.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Array => "array",
        }
    }

    /// The type of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    fn takes(self, value: &Value) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::Array => value.is_array(),
        }
    }
}

/// Another governed asset that a template includes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AssetReference {
    /// The asset.
    pub slug: Slug,
    /// The version, or `None` for the one that is current when the release leaves draft.
    pub label: Option<String>,
}

/// Why a template or its rendering is refused. Offsets count bytes from the start of the template.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PromptRefusal {
    /// A token that is begun but not well formed, or that names an undeclared variable.
    #[error("a token is malformed or names an undeclared variable")]
    MalformedToken {
        /// Where the token begins.
        offset: usize,
    },
    /// A reference to an asset that does not exist or that the caller may not see.
    #[error("a referenced asset is unknown")]
    UnknownAsset {
        /// Where the token begins.
        offset: usize,
    },
    /// A reference to an asset of another workspace.
    #[error("a referenced asset belongs to another workspace")]
    CrossWorkspace {
        /// Where the token begins.
        offset: usize,
    },
    /// A reference to an asset whose body holds a reference itself.
    #[error("a referenced asset references another one")]
    NestedReference {
        /// Where the outer token begins.
        offset: usize,
    },
    /// A command that the template does not allow.
    #[error("a command is not among the allowed ones")]
    CommandNotAllowed {
        /// Where the token begins.
        offset: usize,
    },
    /// A value of another type than the variable's.
    #[error("an argument does not have the declared type")]
    ArgumentType {
        /// Where the token begins.
        offset: usize,
    },
    /// No value for a variable.
    #[error("an argument is missing")]
    ArgumentMissing {
        /// Where the token begins.
        offset: usize,
    },
    /// Too many tokens, or a rendered text beyond the limit.
    #[error("the prompt is too large")]
    TooLarge {
        /// The token at which the limit was passed.
        offset: usize,
    },
    /// Content that is no prompt template at all.
    #[error("the content is no prompt template")]
    NotATemplate,
}

impl PromptRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::MalformedToken { .. } => "prompt_malformed_token",
            Self::UnknownAsset { .. } => "prompt_unknown_asset",
            Self::CrossWorkspace { .. } => "prompt_cross_workspace",
            Self::NestedReference { .. } => "prompt_nested_reference",
            Self::CommandNotAllowed { .. } => "prompt_command_not_allowed",
            Self::ArgumentType { .. } => "prompt_argument_type",
            Self::ArgumentMissing { .. } => "prompt_argument_missing",
            Self::TooLarge { .. } => "prompt_too_large",
            Self::NotATemplate => "invalid_content",
        }
    }

    /// The byte offset of the token in the template.
    #[must_use]
    pub const fn offset(self) -> Option<usize> {
        match self {
            Self::MalformedToken { offset }
            | Self::UnknownAsset { offset }
            | Self::CrossWorkspace { offset }
            | Self::NestedReference { offset }
            | Self::CommandNotAllowed { offset }
            | Self::ArgumentType { offset }
            | Self::ArgumentMissing { offset }
            | Self::TooLarge { offset } => Some(offset),
            Self::NotATemplate => None,
        }
    }
}

impl PromptTemplate {
    /// Parses content that has passed the schema of its kind.
    ///
    /// # Errors
    /// When a token is malformed, names an undeclared variable, or a command that is not allowed.
    pub fn parse(content: &Value) -> Result<Self, PromptRefusal> {
        let text = content.get("system_prompt").and_then(Value::as_str).ok_or(PromptRefusal::NotATemplate)?;
        let variables = declared(content)?;
        let commands: BTreeSet<&str> = match content.get("allowed_commands") {
            None => BTreeSet::new(),
            Some(list) => strings(list).ok_or(PromptRefusal::NotATemplate)?,
        };
        let pieces = grammar::scan(text)?;
        for piece in &pieces {
            match piece {
                Piece::Argument { name, offset } if !variables.iter().any(|variable| variable.name == *name) => {
                    return Err(PromptRefusal::MalformedToken { offset: *offset });
                }
                Piece::Command { slug, offset } if !commands.contains(slug.as_str()) => {
                    return Err(PromptRefusal::CommandNotAllowed { offset: *offset });
                }
                Piece::Argument { .. }
                | Piece::Command { .. }
                | Piece::Literal(_)
                | Piece::Asset { .. }
                | Piece::Placeholder { .. } => {}
            }
        }
        Ok(Self { pieces, variables, output_schema: content.get("output_schema").cloned() })
    }

    /// The assets that the template includes, each with the offset of its token, in the order of the text.
    pub fn references(&self) -> impl Iterator<Item = (&AssetReference, usize)> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Asset { reference, offset } => Some((reference, *offset)),
            Piece::Literal(_) | Piece::Command { .. } | Piece::Argument { .. } | Piece::Placeholder { .. } => None,
        })
    }

    /// The declared variables.
    #[must_use]
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// The JSON Schema that a run's output must satisfy, where the template has one.
    #[must_use]
    pub const fn output_schema(&self) -> Option<&Value> {
        self.output_schema.as_ref()
    }

    /// Fills the template in one pass. `composed` gives the body of a referenced asset, `None` when the caller cannot
    /// see one; bodies and arguments are put in as they are.
    ///
    /// # Errors
    /// When a referenced asset or a value is missing, has another type than declared, or the result is too large.
    pub fn render(
        &self,
        composed: impl Fn(&AssetReference) -> Option<String>,
        arguments: &Map<String, Value>,
    ) -> Result<String, PromptRefusal> {
        let mut rendered = String::new();
        for piece in &self.pieces {
            let offset = match piece {
                Piece::Literal(text) => {
                    rendered.push_str(text);
                    continue;
                }
                Piece::Asset { reference, offset } => {
                    let body = composed(reference).ok_or(PromptRefusal::UnknownAsset { offset: *offset })?;
                    if grammar::mentions_asset(&body) {
                        return Err(PromptRefusal::NestedReference { offset: *offset });
                    }
                    rendered.push_str(&body);
                    *offset
                }
                // The command stays in the text: it is an instruction to whoever runs it, not a value.
                Piece::Command { slug, offset } => {
                    rendered.push_str("!command:");
                    rendered.push_str(slug.as_str());
                    *offset
                }
                Piece::Argument { name, offset } => {
                    let value = argument(arguments, name, *offset)?;
                    if !self.variables.iter().any(|variable| variable.name == *name && variable.kind.takes(value)) {
                        return Err(PromptRefusal::ArgumentType { offset: *offset });
                    }
                    push_value(&mut rendered, value);
                    *offset
                }
                // The older placeholder never had a type, so any value is written.
                Piece::Placeholder { name, offset } => {
                    push_value(&mut rendered, argument(arguments, name, *offset)?);
                    *offset
                }
            };
            if rendered.len() > MAX_RENDERED {
                return Err(PromptRefusal::TooLarge { offset });
            }
        }
        Ok(rendered)
    }
}

fn argument<'a>(arguments: &'a Map<String, Value>, name: &str, offset: usize) -> Result<&'a Value, PromptRefusal> {
    arguments.get(name).filter(|value| !value.is_null()).ok_or(PromptRefusal::ArgumentMissing { offset })
}

fn push_value(rendered: &mut String, value: &Value) {
    match value {
        Value::String(text) => rendered.push_str(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            rendered.push_str(&value.to_string());
        }
    }
}

fn declared(content: &Value) -> Result<Vec<Variable>, PromptRefusal> {
    let Some(list) = content.get("variables") else { return Ok(Vec::new()) };
    let list = list.as_array().ok_or(PromptRefusal::NotATemplate)?;
    list.iter().map(|entry| variable(entry).ok_or(PromptRefusal::NotATemplate)).collect()
}

fn variable(entry: &Value) -> Option<Variable> {
    let name = entry.get("name")?.as_str()?.to_owned();
    let kind = match entry.get("type") {
        None => VariableKind::String,
        Some(kind) => VariableKind::parse(kind.as_str()?)?,
    };
    Some(Variable { name, kind })
}

fn strings(list: &Value) -> Option<BTreeSet<&str>> {
    list.as_array()?.iter().map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn template(text: &str) -> Result<PromptTemplate, PromptRefusal> {
        PromptTemplate::parse(&json!({
            "system_prompt": text,
            "variables": [
                {"name": "topic"},
                {"name": "count", "type": "number"},
                {"name": "strict", "type": "boolean"},
                {"name": "tags", "type": "array"},
            ],
            "allowed_commands": ["summarize"],
        }))
    }

    fn render(text: &str, arguments: Value) -> Result<String, PromptRefusal> {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let body = |reference: &AssetReference| match reference.slug.as_str() {
            "tone" => Some(format!("be kind{}", reference.label.as_deref().unwrap_or_default())),
            "nested" => Some("see @asset-ref:tone".to_owned()),
            _ => None,
        };
        template(text)?.render(body, &arguments)
    }

    #[test]
    fn fills_every_token_once() {
        let text = "A $arg:topic, @asset-ref:tone@v2. !command:summarize {{topic}} {{ free }} $arg:count/$arg:tags";
        let arguments = json!({"topic": "cats", "free": true, "count": 2, "tags": ["a", 1]});
        assert_eq!(render(text, arguments).unwrap(), "A cats, be kindv2. !command:summarize cats true 2/[\"a\",1]");
    }

    #[test]
    fn a_value_is_never_parsed_again() {
        let hostile = "@asset-ref:tone $arg:count !command:rm {{topic}} $arg:";
        let rendered = render("<$arg:topic>{{topic}}", json!({"topic": hostile})).unwrap();
        assert_eq!(rendered, format!("<{hostile}>{hostile}"));
    }

    #[test]
    fn refuses_with_the_code_and_the_offset() {
        let cases = [
            ("x $arg:unknown", json!({}), "prompt_malformed_token", 2),
            ("é !command:delete", json!({}), "prompt_command_not_allowed", 3),
            ("!command:summarize-all", json!({}), "prompt_command_not_allowed", 0),
            ("a $arg:topic", json!({}), "prompt_argument_missing", 2),
            ("a $arg:topic", json!({"topic": null}), "prompt_argument_missing", 2),
            ("{{gone}}", json!({}), "prompt_argument_missing", 0),
            ("$arg:count", json!({"count": "2"}), "prompt_argument_type", 0),
            ("$arg:strict", json!({"strict": 1}), "prompt_argument_type", 0),
            ("$arg:tags", json!({"tags": "a,b"}), "prompt_argument_type", 0),
            ("$arg:topic", json!({"topic": 1}), "prompt_argument_type", 0),
            ("12 @asset-ref:missing", json!({}), "prompt_unknown_asset", 3),
            ("12 @asset-ref:nested", json!({}), "prompt_nested_reference", 3),
        ];
        for (text, arguments, code, offset) in cases {
            let refusal = render(text, arguments).unwrap_err();
            assert_eq!((refusal.code(), refusal.offset()), (code, Some(offset)), "{text}");
        }
    }

    #[test]
    fn a_template_without_tokens_stays_as_it_is() {
        let text = "Mail me@example.org! Costs $5 {\"a\": {}} {{\"b\": 1}} 100% {{}}";
        assert_eq!(render(text, json!({})).unwrap(), text);
    }

    #[test]
    fn a_rendering_is_bounded() {
        let refusal = render(&"$arg:topic".repeat(5), json!({"topic": "x".repeat(1 << 20)})).unwrap_err();
        assert_eq!(refusal.code(), "prompt_too_large");
    }

    #[test]
    fn lists_its_references() {
        let template = template("@asset-ref:tone @asset-ref:tone@v2").unwrap();
        let listed: Vec<_> =
            template.references().map(|(reference, offset)| (reference.label.as_deref(), offset)).collect();
        assert_eq!(listed, [(None, 0), (Some("v2"), 16)]);
    }

    #[test]
    fn content_of_another_shape_is_no_template() {
        for content in
            [json!({}), json!({"system_prompt": 1}), json!({"system_prompt": "", "variables": [{"name": 1}]})]
        {
            assert_eq!(PromptTemplate::parse(&content), Err(PromptRefusal::NotATemplate));
        }
    }

    proptest! {
        #[test]
        fn any_value_appears_literally(value in "\\PC*") {
            let rendered = render("[$arg:topic]", json!({"topic": value})).unwrap();
            prop_assert_eq!(rendered, format!("[{value}]"));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "([@!${}:a-z \u{200b}]|asset-ref:|command:|arg:|\\PC){0,60}") {
            let _ = template(&text);
        }
    }
}
