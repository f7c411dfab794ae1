use super::{composition::IncludedBody, *};
use crate::asset::{content::embedded_schema::SchemaCheckFailure, kind::AssetKind};
use proptest::prelude::*;
use serde_json::json;

fn content(text: &str) -> Value {
    json!({
        "system_prompt": text,
        "variables": [
            {"name": "topic"},
            {"name": "count", "type": "number"},
            {"name": "strict", "type": "boolean"},
            {"name": "tags", "type": "array"},
        ],
        "allowed_commands": ["summarize"],
    })
}

fn template(text: &str) -> Result<PromptTemplate, PromptRefusal> {
    PromptTemplate::parse(&content(text))
}

fn body(reference: &IncludedAsset) -> Option<IncludedBody> {
    let text = |text: &str| IncludedBody::of(AssetKind::Skill, &json!({"body": text})).ok();
    match reference.slug.as_str() {
        "tone" => text(&format!("be kind{}", reference.label.as_deref().unwrap_or_default())),
        "raw" => text("{{topic}} $arg:topic !command:rm"),
        "header" => {
            IncludedBody::of(AssetKind::PromptTemplate, &content("[$arg:topic|{{free}}|!command:summarize]")).ok()
        }
        "long" => text(&"x".repeat(MAX_RENDERED_BYTES)),
        _ => None,
    }
}

fn render(text: &str, arguments: Value) -> Result<String, PromptRefusal> {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    template(text)?.compose(body)?.render(&arguments)
}

#[test]
fn fills_every_token_once() {
    let text = "A $arg:topic, @asset-ref:tone@v2. !command:summarize {{topic}} {{ free }} $arg:count/$arg:tags";
    let arguments = json!({"topic": "cats", "free": true, "count": 2, "tags": ["a", 1]});
    assert_eq!(render(text, arguments).unwrap(), "A cats, be kindv2. !command:summarize cats true 2/[\"a\",1]");
}

#[test]
fn never_parses_inserted_values() {
    let hostile = "@asset-ref:tone $arg:count !command:rm {{topic}} $arg:";
    let rendered = render("<$arg:topic>{{topic}}", json!({"topic": hostile})).unwrap();
    assert_eq!(rendered, format!("<{hostile}>{hostile}"));
}

#[test]
fn inserts_skills_literally_and_renders_included_prompts() {
    let arguments = json!({"topic": "$arg:free", "free": "@asset-ref:tone"});
    assert_eq!(
        render("@asset-ref:raw @asset-ref:header", arguments.clone()).unwrap(),
        "{{topic}} $arg:topic !command:rm [$arg:free|@asset-ref:tone|!command:summarize]"
    );
    // A problem inside an included body is reported at the token that includes the body.
    let refusal = render("x @asset-ref:header", json!({"topic": "t"})).unwrap_err();
    assert_eq!(refusal, PromptRefusal::ArgumentMissing { name: "free".to_owned(), offset: 2 });
    assert_eq!(refusal.to_string(), "the argument `free` is missing");
    let refusal = render("x @asset-ref:header", json!({"topic": 1, "free": "f"})).unwrap_err();
    let kind = VariableType::String;
    assert_eq!(refusal, PromptRefusal::ArgumentType { name: "topic".to_owned(), kind, offset: 2 });
    assert_eq!(refusal.to_string(), "the argument `topic` is not of type string");
}

#[test]
fn rejects_assets_without_body_or_with_references() {
    let refusal_code = |kind, content: Value| IncludedBody::of(kind, &content).unwrap_err().to_prompt_refusal(7).code();
    assert_eq!(refusal_code(AssetKind::PromptTemplate, content("a @asset-ref:tone")), "prompt_nested_reference");
    assert_eq!(refusal_code(AssetKind::Skill, json!({"body": "see @Asset-Ref:tone"})), "prompt_nested_reference");
    assert_eq!(refusal_code(AssetKind::Skill, json!({"text": "x"})), "prompt_unknown_asset");
    assert_eq!(refusal_code(AssetKind::PromptTemplate, json!({})), "prompt_unknown_asset");
    assert_eq!(refusal_code(AssetKind::Agent, json!({"body": "x"})), "prompt_unknown_asset");
}

#[test]
fn legacy_placeholders_ignore_declared_types() {
    for count in [json!(5), json!("5"), json!(true)] {
        let count_text = count.as_str().map_or_else(|| count.to_string(), str::to_owned);
        assert_eq!(render("<{{count}}>", json!({ "count": count })).unwrap(), format!("<{count_text}>"));
        let typed = render("<$arg:count>", json!({ "count": count }));
        assert_eq!(typed.is_ok(), count.is_number(), "{count}");
    }
}

#[test]
fn refuses_with_the_code_and_the_offset() {
    let cases = [
        ("x $arg:unknown", json!({}), "prompt_malformed_token", 2),
        ("é !command:delete", json!({}), "prompt_command_not_allowed", 3),
        ("!command:summarize-all", json!({}), "prompt_command_not_allowed", 0),
        ("!command:summar", json!({}), "prompt_command_not_allowed", 0),
        ("!command:Summarize", json!({}), "prompt_malformed_token", 0),
        ("!command:ѕummarize", json!({}), "prompt_malformed_token", 0),
        ("a $arg:topic", json!({}), "prompt_argument_missing", 2),
        ("a $arg:topic", json!({"topic": null}), "prompt_argument_missing", 2),
        ("{{gone}}", json!({}), "prompt_argument_missing", 0),
        ("$arg:count", json!({"count": "2"}), "prompt_argument_type", 0),
        ("$arg:strict", json!({"strict": 1}), "prompt_argument_type", 0),
        ("$arg:tags", json!({"tags": "a,b"}), "prompt_argument_type", 0),
        ("$arg:topic", json!({"topic": 1}), "prompt_argument_type", 0),
        ("12 @asset-ref:missing", json!({}), "prompt_unknown_asset", 3),
    ];
    for (text, arguments, code, offset) in cases {
        let refusal = render(text, arguments).unwrap_err();
        assert_eq!((refusal.code(), refusal.offset()), (code, Some(offset)), "{text}");
    }
}

#[test]
fn keeps_text_without_tokens() {
    let text = "Mail me@example.org! Costs $5 {\"a\": {}} {{\"b\": 1}} 100% {{}}";
    assert_eq!(render(text, json!({})).unwrap(), text);
}

#[test]
fn limits_rendered_length_and_included_assets() {
    let refusal = render(&"$arg:topic".repeat(5), json!({"topic": "x".repeat(1 << 20)})).unwrap_err();
    assert_eq!(refusal.code(), "prompt_too_large");
    assert_eq!(render("@asset-ref:long", json!({})).unwrap_err().code(), "prompt_too_large");
    let text: String = (0..=MAX_INCLUDED_ASSETS).map(|index| format!("@asset-ref:tone@v{index} ")).collect();
    assert_eq!(template(&text).unwrap_err().code(), "prompt_too_large");
    // Repeated references count as one included asset, but its text counts at each occurrence.
    assert!(render(&"@asset-ref:tone ".repeat(1_000), json!({})).is_ok());
    let body = |_: &IncludedAsset| IncludedBody::of(AssetKind::Skill, &json!({"body": "x".repeat(1 << 20)})).ok();
    let repeated = template(&"@asset-ref:big ".repeat(10_000)).unwrap().compose(body).unwrap();
    assert_eq!(repeated.render(&serde_json::Map::new()).unwrap_err().code(), "prompt_too_large");
}

#[test]
fn rejects_responses_that_violate_the_output_schema() {
    let composed = |schema: Option<Value>| {
        let mut content = content("x");
        content["output_schema"] = schema.unwrap_or_default();
        if content["output_schema"].is_null() {
            content.as_object_mut().unwrap().remove("output_schema");
        }
        PromptTemplate::parse(&content).unwrap().compose(|_| None).unwrap()
    };
    let mismatch = Err(SchemaCheckFailure::Mismatch);
    let without_schema = composed(None);
    assert!(without_schema.check_response("anything").is_ok() && without_schema.compiled_response_schema_bytes() == 0);
    let with_object_schema = composed(Some(json!({"type": "object", "required": ["a"]})));
    assert!(with_object_schema.check_response("{\"a\": 1}").is_ok());
    // Some parsers use the first of two equal names and others the last, so such a response is rejected.
    for response in ["{}", "a", "{\"a\": 1, \"a\": 2}"] {
        assert_eq!(with_object_schema.check_response(response), mismatch, "{response}");
    }
    let with_pattern = composed(Some(json!({"type": "string", "pattern": "^a+$"})));
    assert!(with_pattern.check_response("\"aa\"").is_ok() && with_pattern.check_response("\"b\"") == mismatch);
    assert!(
        with_object_schema.compiled_response_schema_bytes() > 0
            && with_pattern.compiled_response_schema_bytes()
                > with_object_schema.compiled_response_schema_bytes() + (64 << 10)
    );
    // A schema that does not compile rejects every response.
    assert!(composed(Some(json!({"type": "sting"}))).check_response("1") == mismatch);
}

#[test]
fn lists_its_references() {
    let template = template("@asset-ref:tone @asset-ref:tone@v2 @asset-ref:tone").unwrap();
    let listed: Vec<_> =
        template.references().map(|(reference, offset)| (reference.label.as_deref(), offset)).collect();
    assert_eq!(listed, [(None, 0), (Some("v2"), 16), (None, 35)]);
    assert_eq!(template.distinct_references().len(), 2);
}

#[test]
fn rejects_content_of_another_shape() {
    for content in [json!({}), json!({"system_prompt": 1}), json!({"system_prompt": "", "variables": [{"name": 1}]})] {
        assert_eq!(PromptTemplate::parse(&content), Err(PromptRefusal::NotATemplate));
    }
}

proptest! {
    #[test]
    fn inserts_any_value_literally(
        value in "(\\PC|@asset-ref:tone|\\$arg:topic|!command:summarize|\\{\\{topic\\}\\}|\\{\\{|\u{200b}){0,40}",
        tags in proptest::collection::vec("\\PC{0,8}", 0..4),
    ) {
        let arguments = json!({"topic": value, "tags": tags, "free": value});
        let rendered = render("[$arg:topic|{{free}}|$arg:tags|@asset-ref:header]", arguments).unwrap();
        let tags = json!(tags);
        prop_assert_eq!(rendered, format!("[{value}|{value}|{tags}|[{value}|{value}|!command:summarize]]"));
    }

    #[test]
    fn parsing_never_panics(text in "([@!${}:a-z \u{200b}]|asset-ref:|command:|arg:|\\PC){0,60}") {
        let _ = template(&text);
    }
}
