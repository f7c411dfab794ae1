//! Prompt composition: combines a template with the bodies of the assets that it includes.
//!
//! Composition parses each body once, and rendering does not parse values. A body or a value can therefore not become a
//! token of the template that contains it.

use super::{
    IncludedAsset, MAX_RENDERED_BYTES, PromptRefusal, PromptTemplate, Variable, VariableType,
    grammar::{self, TemplateSegment},
};
use crate::asset::{
    content::embedded_schema::{EmbeddedSchema, SchemaCheckFailure},
    kind::AssetKind,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The body of an asset that a template can include. The body of a prompt template is its text, with its own variables.
/// The body of a skill is literal text.
#[derive(Clone, PartialEq, Debug)]
pub struct IncludedBody {
    parts: Vec<Part>,
    bytes: usize,
}

/// The reason why an asset cannot be included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IncludeRefusal {
    /// Assets of this kind have no body, or the content is malformed.
    NotComposable,
    /// The body itself includes another asset.
    Nested,
}

impl IncludeRefusal {
    /// Converts the refusal to a refusal of the including template. `offset` is the start of the token that includes
    /// the asset.
    #[must_use]
    pub const fn to_prompt_refusal(self, offset: usize) -> PromptRefusal {
        match self {
            Self::NotComposable => PromptRefusal::UnknownAsset { offset },
            Self::Nested => PromptRefusal::NestedReference { offset },
        }
    }
}

impl IncludedBody {
    /// Extracts the body from the content of a version.
    ///
    /// # Errors
    /// Returns a refusal when the content has no body, or the body includes another asset.
    pub fn of(kind: AssetKind, content: &Value) -> Result<Self, IncludeRefusal> {
        let (parts, bytes) = match kind {
            AssetKind::PromptTemplate => {
                let template = PromptTemplate::parse(content).map_err(|_| IncludeRefusal::NotComposable)?;
                if template.references().next().is_some() {
                    return Err(IncludeRefusal::Nested);
                }
                let bytes = template.text_bytes;
                (build_parts(template.segments, &template.variables, |_| None), bytes)
            }
            AssetKind::Skill => {
                let text = content.get("body").and_then(Value::as_str).ok_or(IncludeRefusal::NotComposable)?;
                if grammar::contains_asset_reference(text) {
                    return Err(IncludeRefusal::Nested);
                }
                (vec![Part::Literal(text.to_owned())], text.len())
            }
            AssetKind::KnowledgeBase
            | AssetKind::ModelPolicy
            | AssetKind::ModelConfig
            | AssetKind::PolicyBundle
            | AssetKind::ToolDefinition
            | AssetKind::HookDefinition
            | AssetKind::McpServer
            | AssetKind::Agent
            | AssetKind::OrchestrationFlow
            | AssetKind::Memory
            | AssetKind::EvaluationSuite
            | AssetKind::GuardrailConfig
            | AssetKind::ConnectorDefinition
            | AssetKind::SovereigntyProfile
            | AssetKind::WorkloadProfile
            | AssetKind::SandboxProfile
            | AssetKind::WorkloadHarness => return Err(IncludeRefusal::NotComposable),
        };
        Ok(Self { parts, bytes })
    }

    /// The length of the body, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A part of a composed template. Offsets are positions of tokens in the template that contains the part.
#[derive(Clone, PartialEq, Debug)]
enum Part {
    Literal(String),
    /// An argument that must have this type.
    Argument {
        name: String,
        kind: VariableType,
        offset: usize,
    },
    /// A placeholder in the legacy form. It accepts a value of any type, even if a variable of its name declares a
    /// type, so that old templates render as before.
    Placeholder {
        name: String,
        offset: usize,
    },
    /// The body of an included asset, as an index in the list of bodies.
    Body {
        index: usize,
        offset: usize,
    },
}

/// A prompt template with the bodies of all included assets, ready to render.
#[derive(Clone, Debug)]
pub struct ComposedPrompt {
    parts: Vec<Part>,
    bodies: Vec<IncludedBody>,
    response_schema: ResponseSchema,
}

/// How the responses of models to the prompt are validated.
#[derive(Clone, Debug)]
enum ResponseSchema {
    /// The template has no `output_schema`, so every response is accepted.
    Unchecked,
    /// The response must match this schema.
    Compiled(EmbeddedSchema),
    /// The schema does not compile, so every response is rejected.
    Invalid,
}

impl ResponseSchema {
    fn of(schema: Option<&Value>) -> Self {
        match schema.map(EmbeddedSchema::compile) {
            None => Self::Unchecked,
            Some(Ok(schema)) => Self::Compiled(schema),
            Some(Err(_)) => Self::Invalid,
        }
    }
}

impl PromptTemplate {
    /// Inserts the bodies of the included assets. `body` returns the body for a reference, or `None` if there is none.
    ///
    /// # Errors
    /// Returns a refusal when a body is missing, or the total length exceeds the limit.
    pub fn compose(
        self,
        body: impl Fn(&IncludedAsset) -> Option<IncludedBody>,
    ) -> Result<ComposedPrompt, PromptRefusal> {
        let mut bodies = Vec::new();
        let mut indexes: BTreeMap<IncludedAsset, usize> = BTreeMap::new();
        let mut bytes = self.text_bytes;
        for (reference, offset) in self.references() {
            if indexes.contains_key(reference) {
                continue;
            }
            let included_body = body(reference).ok_or(PromptRefusal::UnknownAsset { offset })?;
            bytes = bytes.saturating_add(included_body.bytes);
            if bytes > MAX_RENDERED_BYTES {
                return Err(PromptRefusal::TooLarge { offset });
            }
            indexes.insert(reference.clone(), bodies.len());
            bodies.push(included_body);
        }
        let parts = build_parts(self.segments, &self.variables, |reference| indexes.get(reference).copied());
        Ok(ComposedPrompt { parts, bodies, response_schema: ResponseSchema::of(self.output_schema.as_ref()) })
    }
}

/// Converts segments to parts, and merges adjacent literals. A command remains in the text, because it is an
/// instruction for the model.
fn build_parts(
    segments: Vec<TemplateSegment>,
    variables: &[Variable],
    index_of: impl Fn(&IncludedAsset) -> Option<usize>,
) -> Vec<Part> {
    let kinds: BTreeMap<&str, VariableType> =
        variables.iter().map(|variable| (variable.name.as_str(), variable.kind)).collect();
    let mut parts = Vec::with_capacity(segments.len());
    let push_text = |parts: &mut Vec<Part>, text: &str| match parts.last_mut() {
        Some(Part::Literal(preceding)) => preceding.push_str(text),
        Some(Part::Argument { .. } | Part::Placeholder { .. } | Part::Body { .. }) | None => {
            parts.push(Part::Literal(text.to_owned()));
        }
    };
    for segment in segments {
        match segment {
            TemplateSegment::Literal(text) => push_text(&mut parts, &text),
            TemplateSegment::Command { slug, .. } => push_text(&mut parts, &format!("!command:{slug}")),
            // Parsing has checked that every variable is declared, so the default type does not apply here.
            TemplateSegment::Argument { name, offset } => {
                let kind = kinds.get(name.as_str()).copied().unwrap_or(VariableType::String);
                parts.push(Part::Argument { name, kind, offset });
            }
            TemplateSegment::Placeholder { name, offset } => parts.push(Part::Placeholder { name, offset }),
            TemplateSegment::Asset { reference, offset } => {
                parts.extend(index_of(&reference).map(|index| Part::Body { index, offset }));
            }
        }
    }
    parts
}

impl ComposedPrompt {
    /// Renders the prompt with these arguments in one pass.
    ///
    /// # Errors
    /// Returns a refusal when an argument is missing or has another type than declared, or when the result is too
    /// large. A problem inside an included body is reported at the token that includes the body.
    pub fn render(&self, arguments: &Map<String, Value>) -> Result<String, PromptRefusal> {
        let mut renderer = Renderer { text: String::with_capacity(self.estimate_length()), arguments };
        for part in &self.parts {
            match part {
                Part::Body { index, offset } => {
                    for part in self.bodies.get(*index).into_iter().flat_map(|body| &body.parts) {
                        renderer.write_part(part, Some(*offset))?;
                    }
                }
                Part::Literal(_) | Part::Argument { .. } | Part::Placeholder { .. } => {
                    renderer.write_part(part, None)?
                }
            }
        }
        Ok(renderer.text)
    }

    /// Checks a model response against the `output_schema` of the template, if there is one.
    ///
    /// # Errors
    /// Returns a rejection when the response does not match the schema, or is too large to be checked.
    pub fn check_response(&self, response: &str) -> Result<(), SchemaCheckFailure> {
        match &self.response_schema {
            ResponseSchema::Unchecked => Ok(()),
            ResponseSchema::Compiled(schema) => schema.check_text(response),
            ResponseSchema::Invalid => Err(SchemaCheckFailure::Mismatch),
        }
    }

    /// The compiled `output_schema` of the template, if it has one that compiles.
    #[must_use]
    pub const fn response_schema(&self) -> Option<&EmbeddedSchema> {
        match &self.response_schema {
            ResponseSchema::Compiled(schema) => Some(schema),
            ResponseSchema::Unchecked | ResponseSchema::Invalid => None,
        }
    }

    /// The total length of the included bodies, in bytes.
    #[must_use]
    pub fn included_bytes(&self) -> usize {
        self.bodies.iter().map(IncludedBody::bytes).fold(0, usize::saturating_add)
    }

    /// The estimated memory of the compiled `output_schema`, in bytes.
    #[must_use]
    pub fn compiled_response_schema_bytes(&self) -> usize {
        match &self.response_schema {
            ResponseSchema::Compiled(schema) => schema.compiled_bytes(),
            ResponseSchema::Unchecked | ResponseSchema::Invalid => 0,
        }
    }

    /// The maximum length of the rendered prompt, in bytes, if each argument has at most `max_argument_bytes`.
    #[must_use]
    pub fn max_rendered_bytes(&self, max_argument_bytes: usize) -> usize {
        let argument_bytes = |part: &Part| match part {
            Part::Literal(_) | Part::Body { .. } => 0,
            Part::Argument { .. } | Part::Placeholder { .. } => max_argument_bytes,
        };
        let part_bytes = |part: &Part| match part {
            Part::Body { index, .. } => self
                .bodies
                .get(*index)
                .map_or(0, |body| body.parts.iter().map(argument_bytes).fold(0, usize::saturating_add)),
            Part::Literal(_) | Part::Argument { .. } | Part::Placeholder { .. } => argument_bytes(part),
        };
        self.parts.iter().map(part_bytes).fold(self.estimate_length(), usize::saturating_add).min(MAX_RENDERED_BYTES)
    }

    /// The estimated length of the rendered prompt, in bytes.
    fn estimate_length(&self) -> usize {
        let part_bytes = |part: &Part| match part {
            Part::Literal(text) => text.len(),
            Part::Body { index, .. } => self.bodies.get(*index).map_or(0, IncludedBody::bytes),
            Part::Argument { .. } | Part::Placeholder { .. } => 32,
        };
        self.parts.iter().map(part_bytes).fold(0_usize, usize::saturating_add).min(MAX_RENDERED_BYTES)
    }
}

/// The state of a rendering in progress.
struct Renderer<'a> {
    text: String,
    arguments: &'a Map<String, Value>,
}

impl Renderer<'_> {
    fn write_part(&mut self, part: &Part, included_at: Option<usize>) -> Result<(), PromptRefusal> {
        let error_offset = |offset: &usize| included_at.unwrap_or(*offset);
        let (name, kind, offset) = match part {
            Part::Literal(text) => {
                self.text.push_str(text);
                return self.check_length(included_at.unwrap_or(0));
            }
            Part::Argument { name, kind, offset } => (name, Some(*kind), error_offset(offset)),
            Part::Placeholder { name, offset } => (name, None, error_offset(offset)),
            // A body contains no other body.
            Part::Body { .. } => return Ok(()),
        };
        let value = self.arguments.get(name).filter(|value| !value.is_null());
        let value = value.ok_or_else(|| PromptRefusal::ArgumentMissing { name: name.clone(), offset })?;
        if let Some(kind) = kind.filter(|kind| !kind.accepts(value)) {
            return Err(PromptRefusal::ArgumentType { name: name.clone(), kind, offset });
        }
        match value {
            Value::String(text) => self.text.push_str(text),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                self.text.push_str(&value.to_string());
            }
        }
        self.check_length(offset)
    }

    /// Checks the length of the text rendered so far, because a short template can repeat a long value many times.
    const fn check_length(&self, offset: usize) -> Result<(), PromptRefusal> {
        if self.text.len() > MAX_RENDERED_BYTES { Err(PromptRefusal::TooLarge { offset }) } else { Ok(()) }
    }
}
