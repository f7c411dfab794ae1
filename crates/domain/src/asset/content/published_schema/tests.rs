use super::*;
use crate::asset::{content::schema, kind::AssetKind};
use proptest::{prelude::*, sample::Index};
use std::collections::BTreeSet;

/// The errors of the whole validator, converted to problems.
fn validator_problems(schema: &PublishedSchema, value: &Value) -> BTreeSet<(String, &'static str)> {
    let errors = schema.validator.iter_errors(value).flat_map(|error| to_problems(&error, "", &[]));
    errors.map(|problem| (problem.pointer, problem.code)).collect()
}

fn part_problems(schema: &PublishedSchema, value: &Value) -> BTreeSet<(String, &'static str)> {
    schema.find_problems(value).into_iter().map(|problem| (problem.pointer, problem.code)).collect()
}

/// A keyword that no part handles would make the whole schema refuse a value without a specific problem.
#[test]
fn every_schema_keyword_belongs_to_a_part() {
    fn assert_known_keywords(schema: &Value, path: &str) {
        let Value::Object(keywords) = schema else { return };
        for (keyword, operand) in keywords {
            let is_annotation = matches!(keyword.as_str(), "$schema" | "title" | "description" | "default");
            let is_known = OWN_KEYWORDS.contains(&keyword.as_str()) || SUBSCHEMA_KEYWORDS.contains(&keyword.as_str());
            assert!(is_annotation || is_known || keyword.starts_with("x-"), "{path}/{keyword}");
            let is_beside_reference = keywords.contains_key("$ref") && OWN_KEYWORDS.contains(&keyword.as_str());
            assert!(!is_beside_reference, "{path}/{keyword} is a sibling of a reference, which leads to another part");
            match keyword.as_str() {
                "properties" | "$defs" => {
                    let subschemas = operand.as_object().unwrap();
                    subschemas
                        .iter()
                        .for_each(|(name, subschema)| assert_known_keywords(subschema, &format!("{path}/{name}")));
                }
                "items" | "additionalProperties" | "propertyNames" => {
                    assert_known_keywords(operand, &format!("{path}/{keyword}"))
                }
                _ => {}
            }
            // The validator collects one error for each name, so a schema with `propertyNames` must limit the number of
            // members.
            assert!(keyword != "propertyNames" || keywords.contains_key("maxProperties"), "{path}/{keyword}");
        }
    }
    for kind in AssetKind::ALL {
        assert_known_keywords(schema::compiled_schema(kind).unwrap().value(), kind.as_str());
    }
}

#[test]
fn reports_at_most_one_hundred_problems() {
    let schema = PublishedSchema::compile(r#"{"items": {"items": {"type": "string"}}, "type": "array"}"#).unwrap();
    let list = json!(vec![json!(vec![0; 1_000]); 50]);
    let problems = schema.find_problems(&list);
    assert_eq!(problems.len(), MAX_PROBLEMS);
    assert_eq!((problems[0].pointer.as_str(), problems[99].pointer.as_str()), ("/0/0", "/0/99"));
    assert_eq!(problems[0].code, "wrong_type");
}

/// The published example of an asset kind.
#[expect(clippy::disallowed_methods, reason = "the domain itself reads no files")]
fn example(kind: AssetKind) -> Value {
    let path = format!("{}/../../examples/assets/{}.json", env!("CARGO_MANIFEST_DIR"), kind.as_str());
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn collect_pointers(value: &Value, pointer: String, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, member)| collect_pointers(member, member_pointer(&pointer, name), found));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, item)| collect_pointers(item, format!("{pointer}/{index}"), found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    found.push(pointer);
}

fn mutate(value: &mut Value, target: &Index, mutation: u8) {
    let mut found_pointers = Vec::new();
    collect_pointers(value, String::new(), &mut found_pointers);
    let Some(selected) = value.pointer_mut(target.get(&found_pointers).as_str()) else { return };
    match (mutation, &mut *selected) {
        (0, Value::Object(members)) => drop(members.insert("a name that is not there".to_owned(), json!({}))),
        (1, Value::Object(members)) => {
            let first = members.keys().next().cloned();
            first.map(|name| members.remove(&name));
        }
        (2, Value::Array(items)) => items.extend(items.first().cloned()),
        (3, Value::Array(items)) => items.push(json!([{ "x": null }])),
        (4, _) => *selected = json!("\u{1}not a name"),
        (5, _) => *selected = json!(-1.5),
        (6, _) => *selected = json!({}),
        (7, _) => *selected = json!([null, null]),
        _ => *selected = Value::Null,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn parts_report_the_same_problems_as_the_validator(
        kind in prop::sample::select(AssetKind::ALL.to_vec()),
        changes in prop::collection::vec((any::<Index>(), 0_u8..9), 0..6),
    ) {
        let mut content = example(kind);
        changes.iter().for_each(|(target, mutation)| mutate(&mut content, target, *mutation));
        let schema = schema::compiled_schema(kind).unwrap();
        prop_assert_eq!(part_problems(schema, &content), validator_problems(schema, &content));
    }
}
