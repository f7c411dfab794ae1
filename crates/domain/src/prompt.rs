//! Prompt templates: texts with tokens that rendering replaces in one pass.
//!
//! Rendering does not parse an inserted value, so the input of a caller cannot become a token. A refusal contains the
//! byte offset of the token, and the name of an affected argument.

pub mod composition;
pub mod grammar;

use crate::slug::Slug;
use grammar::TemplateSegment;
use serde_json::Value;
use std::collections::BTreeSet;

/// The maximum length of a rendered prompt, in bytes. A limit on the template does not suffice, because a short
/// template can repeat a long value many times.
pub const MAX_RENDERED_BYTES: usize = 4 << 20;
/// The maximum number of distinct assets that a template includes. Creating a version looks up each of them.
pub const MAX_INCLUDED_ASSETS: usize = 32;

/// A parsed prompt template.
#[derive(Clone, PartialEq, Debug)]
pub struct PromptTemplate {
    segments: Vec<TemplateSegment>,
    variables: Vec<Variable>,
    output_schema: Option<Value>,
    text_bytes: usize,
}

/// A variable that a template declares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// The name of the variable, in tokens and in arguments.
    pub name: String,
    /// The type that values of the variable must have.
    pub kind: VariableType,
}

/// The type of a variable's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VariableType {
    /// A text; the type of variables that declare none.
    String,
    /// A JSON number.
    Number,
    /// A JSON boolean.
    Boolean,
    /// A JSON array, which is rendered as JSON.
    Array,
}

impl VariableType {
    /// Every type, in the order of declaration.
    pub const ALL: [Self; 4] = [Self::String, Self::Number, Self::Boolean, Self::Array];

    /// The wire form in content, such as `string`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Array => "array",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    fn accepts(self, value: &Value) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::Array => value.is_array(),
        }
    }
}

/// A reference to an asset whose body a template includes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IncludedAsset {
    /// The slug of the asset to include.
    pub slug: Slug,
    /// The version label; `None` selects the version that is current when the release leaves draft.
    pub label: Option<String>,
}

/// The reason why a template or its rendering is refused. Each offset is the byte position of a token in the template.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PromptRefusal {
    /// A token is malformed or names an undeclared variable.
    #[error("a token is malformed or names an undeclared variable")]
    MalformedToken {
        /// The start of the malformed token.
        offset: usize,
    },
    /// A referenced asset does not exist or is not visible to the caller.
    #[error("a referenced asset is unknown")]
    UnknownAsset {
        /// The start of the token that includes the asset.
        offset: usize,
    },
    /// A referenced asset belongs to another workspace.
    #[error("a referenced asset belongs to another workspace")]
    CrossWorkspace {
        /// The start of the token that includes the asset.
        offset: usize,
    },
    /// The body of an included asset itself includes an asset, which is not allowed.
    #[error("a referenced asset contains a reference itself")]
    NestedReference {
        /// The start of the token that includes the asset.
        offset: usize,
    },
    /// The template does not list the command of a token as allowed.
    #[error("the template does not allow this command")]
    CommandNotAllowed {
        /// The start of the token with the command.
        offset: usize,
    },
    /// A value does not have the type of its variable.
    #[error("the argument `{name}` is not of type {}", .kind.as_str())]
    ArgumentType {
        /// The name of the variable. It may be shown, because the template defines it, not the caller.
        name: String,
        /// The type that the template declares.
        kind: VariableType,
        /// The start of the token with the variable.
        offset: usize,
    },
    /// The arguments contain no value for a variable.
    #[error("the argument `{name}` is missing")]
    ArgumentMissing {
        /// The name of the variable or placeholder in the template.
        name: String,
        /// The start of the token that needs the argument.
        offset: usize,
    },
    /// The template has too many tokens, or the rendered text exceeds the limit.
    #[error("the prompt is too large")]
    TooLarge {
        /// The start of the token at which the limit is exceeded.
        offset: usize,
    },
    /// The content does not have the form of a prompt template.
    #[error("the content is not a prompt template")]
    NotATemplate,
}

impl PromptRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(&self) -> &'static str {
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

    /// The byte offset of the token in the template; `None` if the content as a whole is refused.
    #[must_use]
    pub const fn offset(&self) -> Option<usize> {
        match self {
            Self::MalformedToken { offset }
            | Self::UnknownAsset { offset }
            | Self::CrossWorkspace { offset }
            | Self::NestedReference { offset }
            | Self::CommandNotAllowed { offset }
            | Self::ArgumentType { offset, .. }
            | Self::ArgumentMissing { offset, .. }
            | Self::TooLarge { offset } => Some(*offset),
            Self::NotATemplate => None,
        }
    }
}

impl PromptTemplate {
    /// Parses content that has passed the schema of prompt templates.
    ///
    /// # Errors
    /// Returns a refusal when a token is malformed, or names an undeclared variable or a command that is not allowed.
    pub fn parse(content: &Value) -> Result<Self, PromptRefusal> {
        let text = content.get("system_prompt").and_then(Value::as_str).ok_or(PromptRefusal::NotATemplate)?;
        let variables = parse_variables(content)?;
        let commands: BTreeSet<&str> = match content.get("allowed_commands") {
            None => BTreeSet::new(),
            Some(list) => string_set(list).ok_or(PromptRefusal::NotATemplate)?,
        };
        let segments = grammar::scan(text)?;
        let names: BTreeSet<&str> = variables.iter().map(|variable| variable.name.as_str()).collect();
        let mut included = BTreeSet::new();
        for segment in &segments {
            match segment {
                TemplateSegment::Argument { name, offset } if !names.contains(name.as_str()) => {
                    return Err(PromptRefusal::MalformedToken { offset: *offset });
                }
                TemplateSegment::Command { slug, offset } if !commands.contains(slug.as_str()) => {
                    return Err(PromptRefusal::CommandNotAllowed { offset: *offset });
                }
                TemplateSegment::Asset { reference, offset } => {
                    included.insert(reference);
                    if included.len() > MAX_INCLUDED_ASSETS {
                        return Err(PromptRefusal::TooLarge { offset: *offset });
                    }
                }
                TemplateSegment::Argument { .. }
                | TemplateSegment::Command { .. }
                | TemplateSegment::Literal(_)
                | TemplateSegment::Placeholder { .. } => {}
            }
        }
        let output_schema = content.get("output_schema").cloned();
        Ok(Self { text_bytes: text.len(), output_schema, segments, variables })
    }

    /// Every reference to an included asset with the offset of its token, in text order.
    pub fn references(&self) -> impl Iterator<Item = (&IncludedAsset, usize)> {
        self.segments.iter().filter_map(|segment| match segment {
            TemplateSegment::Asset { reference, offset } => Some((reference, *offset)),
            TemplateSegment::Literal(_)
            | TemplateSegment::Command { .. }
            | TemplateSegment::Argument { .. }
            | TemplateSegment::Placeholder { .. } => None,
        })
    }

    /// The variables that the template declares.
    #[must_use]
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// The distinct names of the arguments that the template's own text needs. Included bodies may need further
    /// arguments.
    #[must_use]
    pub fn own_argument_names(&self) -> BTreeSet<&str> {
        let names = self.segments.iter().filter_map(|segment| match segment {
            TemplateSegment::Argument { name, .. } | TemplateSegment::Placeholder { name, .. } => Some(name.as_str()),
            TemplateSegment::Literal(_) | TemplateSegment::Command { .. } | TemplateSegment::Asset { .. } => None,
        });
        names.collect()
    }

    /// The distinct references to included assets, each with the offset of its first token, in text order.
    #[must_use]
    pub fn distinct_references(&self) -> Vec<(&IncludedAsset, usize)> {
        let mut unique = BTreeSet::new();
        self.references().filter(|(reference, _)| unique.insert(*reference)).collect()
    }
}

/// The distinct names of the arguments in a template text, in text order.
///
/// # Errors
/// When a token is malformed.
pub fn argument_names(text: &str) -> Result<Vec<String>, PromptRefusal> {
    let mut names: Vec<String> = Vec::new();
    for segment in grammar::scan(text)? {
        if let TemplateSegment::Argument { name, .. } = segment
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    Ok(names)
}

fn parse_variables(content: &Value) -> Result<Vec<Variable>, PromptRefusal> {
    let Some(list) = content.get("variables") else { return Ok(Vec::new()) };
    let list = list.as_array().ok_or(PromptRefusal::NotATemplate)?;
    list.iter().map(|entry| parse_variable(entry).ok_or(PromptRefusal::NotATemplate)).collect()
}

fn parse_variable(entry: &Value) -> Option<Variable> {
    let name = entry.get("name")?.as_str()?.to_owned();
    let kind = match entry.get("type") {
        None => VariableType::String,
        Some(kind) => VariableType::parse(kind.as_str()?)?,
    };
    Some(Variable { name, kind })
}

fn string_set(list: &Value) -> Option<BTreeSet<&str>> {
    list.as_array()?.iter().map(Value::as_str).collect()
}

#[cfg(test)]
mod tests;
