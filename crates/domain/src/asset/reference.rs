//! References to other assets within content.
//!
//! The schema determines where a reference can occur. An object of the same form within a free map or an embedded JSON
//! Schema is not a reference. Source: specification, prompt template grammar and kinds (`{slug, version?}`).

use super::{
    VersionLabel,
    content::{
        content_walk::{self, VisitFlow},
        schema_value,
    },
    kind::AssetKind,
};
use crate::{
    prompt::grammar::{self, TemplateSegment},
    slug::Slug,
};
use serde_json::Value;

/// The `$ref` by which the published schemas mark a reference.
const REFERENCE_SCHEMA: &str = "#/$defs/reference";

/// A reference in the content of one asset to another asset of the same tenant.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AssetReference {
    /// The slug of the referenced asset.
    pub slug: Slug,
    /// The label of the referenced version. If it is `None`, the reference resolves to the current version when the
    /// release leaves draft.
    pub version: Option<VersionLabel>,
    /// The JSON pointer to the reference within the content (RFC 6901). For a token in a prompt, it is the pointer to
    /// the prompt's text.
    pub pointer: String,
    /// The kinds that the referenced asset may have, from the annotation `x-asset-kinds` of the schema. Without that
    /// annotation, no kind is permitted.
    pub kinds: Vec<AssetKind>,
}

impl AssetReference {
    /// Whether the referenced asset may have this kind. The check takes place when the reference is resolved, because
    /// the asset may be created after the reference.
    #[must_use]
    pub fn can_target_kind(&self, kind: AssetKind) -> bool {
        self.kinds.contains(&kind)
    }
}

/// The kinds of assets that a prompt may include.
const PROMPT_KINDS: [AssetKind; 2] = [AssetKind::PromptTemplate, AssetKind::Skill];

/// Finds every reference in content of this kind, in document order and with repetitions. Malformed references are
/// skipped, because the validation of the content refuses them.
#[must_use]
pub fn find_references(kind: AssetKind, content: &Value) -> Vec<AssetReference> {
    let mut found = Vec::new();
    if let Some(root) = schema_value(kind) {
        collect_references(root, content, &mut found);
    }
    if kind == AssetKind::PromptTemplate {
        found.extend(prompt_references(content));
    }
    found
}

fn collect_references(root: &Value, content: &Value, found: &mut Vec<AssetReference>) {
    content_walk::visit(root, content, &mut |visited| {
        if visited.schema.get("$ref").and_then(Value::as_str) != Some(REFERENCE_SCHEMA) {
            return VisitFlow::Descend;
        }
        found.extend(parse_reference(visited.value, visited.pointer, visited.schema));
        VisitFlow::Skip
    });
}

fn parse_reference(value: &Value, pointer: &str, schema: &Value) -> Option<AssetReference> {
    let slug = Slug::parse(value.get("slug")?.as_str()?).ok()?;
    let version = match value.get("version") {
        None => None,
        Some(label) => Some(VersionLabel::parse(label.as_str()?)?),
    };
    let kinds = schema.get("x-asset-kinds").and_then(Value::as_array).into_iter().flatten();
    let kinds = kinds.filter_map(|kind| AssetKind::parse(kind.as_str()?)).collect();
    Some(AssetReference { slug, version, pointer: pointer.to_owned(), kinds })
}

fn prompt_references(content: &Value) -> Vec<AssetReference> {
    let text = content.get("system_prompt").and_then(Value::as_str).unwrap_or_default();
    let to_reference = |segment: TemplateSegment| match segment {
        TemplateSegment::Asset { reference, .. } => {
            let version = match reference.label {
                None => None,
                Some(label) => Some(VersionLabel::parse(&label)?),
            };
            let pointer = "/system_prompt".to_owned();
            Some(AssetReference { slug: reference.slug, version, pointer, kinds: PROMPT_KINDS.to_vec() })
        }
        TemplateSegment::Literal(_)
        | TemplateSegment::Command { .. }
        | TemplateSegment::Argument { .. }
        | TemplateSegment::Placeholder { .. } => None,
    };
    grammar::scan(text).unwrap_or_default().into_iter().filter_map(to_reference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn describe(references: Vec<AssetReference>) -> Vec<String> {
        let describe_one = |reference: AssetReference| {
            let version = reference.version.map(|version| format!("@{version}")).unwrap_or_default();
            format!("{} {}{version}", reference.pointer, reference.slug)
        };
        references.into_iter().map(describe_one).collect()
    }

    #[test]
    fn finds_references_where_the_schema_declares_them() {
        let root = json!({
            "properties": {
                "one": {"$ref": "#/$defs/reference"},
                "many": {"items": {"$ref": "#/$defs/reference"}},
                "inner": {"$ref": "#/$defs/inner"},
                "either": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/reference"}]},
                "named": {"additionalProperties": {"$ref": "#/$defs/reference"}},
                "free": {"type": "object"},
            },
            "$defs": {
                "reference": {"type": "object"},
                "inner": {"properties": {"deep": {"$ref": "#/$defs/reference"}}},
            },
        });
        let content = json!({
            "one": {"slug": "a", "version": "v2"},
            "many": [{"slug": "b"}, {"slug": "Not A Slug"}, "c", {"slug": "d", "version": "v 1"}],
            "inner": {"deep": {"slug": "e"}},
            "either": {"slug": "f"},
            "named": {"x/y": {"slug": "g"}},
            "free": {"slug": "h"},
            "unknown": {"slug": "i"},
        });
        let mut found = Vec::new();
        collect_references(&root, &content, &mut found);
        let expected = ["/either f", "/inner/deep e", "/many/0 b", "/named/x~1y g", "/one a@v2"];
        let mut found = describe(found);
        found.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn takes_permitted_kinds_from_the_schema() {
        let agent = json!({
            "name": "Lead", "instructions": "Solve it.",
            "memory_ref": {"slug": "notes"}, "sub_agents": [{"ref": {"slug": "helper"}}],
        });
        let found = find_references(AssetKind::Agent, &agent);
        let kinds = |pointer: &str| {
            found.iter().find(|reference| reference.pointer == pointer).map(|reference| &*reference.kinds)
        };
        assert_eq!(kinds("/memory_ref"), Some(&[AssetKind::Memory][..]));
        assert_eq!(kinds("/sub_agents/0/ref"), Some(&[AssetKind::Agent][..]));
        // The schema describes `handler` by several branches.
        let hook = json!({"handler": {"type": "prompt", "ref": {"slug": "ask"}}});
        let [handler] = &*find_references(AssetKind::HookDefinition, &hook) else { panic!("one reference") };
        assert!(handler.can_target_kind(AssetKind::PromptTemplate) && !handler.can_target_kind(AssetKind::Memory));
    }

    /// A reference without kinds would permit no asset, and a misspelled kind would have no effect.
    #[test]
    fn every_schema_reference_lists_known_kinds() {
        fn count_references(schema: &Value, count: &mut usize) {
            if schema.get("$ref").and_then(Value::as_str) == Some(REFERENCE_SCHEMA) {
                *count += 1;
                let kinds = schema["x-asset-kinds"].as_array().unwrap();
                assert!(!kinds.is_empty());
                assert!(kinds.iter().all(|kind| AssetKind::parse(kind.as_str().unwrap()).is_some()), "{schema}");
            }
            match schema {
                Value::Object(members) => members.values().for_each(|member| count_references(member, count)),
                Value::Array(items) => items.iter().for_each(|item| count_references(item, count)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        let mut count = 0;
        AssetKind::ALL.into_iter().filter_map(schema_value).for_each(|schema| count_references(schema, &mut count));
        assert!(count > 20, "{count}");
    }

    #[test]
    fn finds_references_in_prompt_tokens() {
        let prompt = json!({"system_prompt": "@asset-ref:tone @asset-ref:terms@v2 @asset-ref:tone."});
        let found = describe(find_references(AssetKind::PromptTemplate, &prompt));
        assert_eq!(found, ["/system_prompt tone", "/system_prompt terms@v2", "/system_prompt tone"]);
        assert!(find_references(AssetKind::PromptTemplate, &json!({"system_prompt": "@asset-ref:"})).is_empty());
        assert!(find_references(AssetKind::PromptTemplate, &json!([])).is_empty());
    }
}
