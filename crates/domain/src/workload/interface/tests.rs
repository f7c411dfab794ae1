use super::*;
use proptest::prelude::*;
use serde_json::{Map, json};

fn problem_codes(document: &Value) -> Vec<(String, &'static str)> {
    let problems = InterfaceConfig::parse(document).expect_err("expected an invalid configuration");
    problems.into_iter().map(|problem| (problem.path, problem.kind.code())).collect()
}

fn single_problem(path: &str, code: &'static str) -> Vec<(String, &'static str)> {
    vec![(path.to_owned(), code)]
}

fn with_field(field: Value) -> Value {
    json!({ "presentation_mode": "form", "input_fields": [field] })
}

/// A configuration that sets every member.
fn full_configuration() -> Value {
    json!({
        "presentation_mode": "form",
        "description": "Sorts tickets.\nAsk again if unsure.",
        "input_fields": [
            { "name": "ticket", "label": "Ticket", "type": "textarea", "required": true, "rows": 8 },
            { "name": "title", "label": "Title", "type": "text", "default": "none" },
            { "name": "amount", "label": "Amount", "type": "number", "min": 0, "max": 99.5, "default": 1 },
            { "name": "tone", "label": "Tone", "type": "select", "options": ["dry", "warm"], "default": "dry" },
            { "name": "urgent", "label": "Urgent", "type": "boolean", "required": false, "default": false },
            { "name": "due", "label": "Due", "type": "date", "default": "2028-02-29" },
        ],
        "output_display": "markdown",
        "theme": {
            "accent_color": "#0af", "background_color": "white", "font_family": "system-ui, serif",
            "border_radius": "8px",
        },
        "rollout_config": { "sample_size": 50, "error_threshold": 0.25 },
        "access_mode": "public",
    })
}

#[test]
fn configuration_round_trips_unchanged() {
    for document in [full_configuration(), json!({ "presentation_mode": "chat" })] {
        let config = InterfaceConfig::parse(&document).unwrap();
        assert_eq!(config.to_document(), document);
        let stored: InterfaceConfig = serde_json::from_value(document).unwrap();
        assert_eq!(stored, config);
    }
    let nulls = json!({ "presentation_mode": "block", "theme": null, "rollout_config": null, "description": null });
    assert_eq!(InterfaceConfig::parse(&nulls).unwrap().to_document(), json!({ "presentation_mode": "block" }));
}

#[test]
fn applies_defaults_to_omitted_members() {
    let config = InterfaceConfig::parse(&json!({ "presentation_mode": "chat" })).unwrap();
    assert_eq!((config.rollback_thresholds().sample_size(), config.rollback_thresholds().error_threshold()), (20, 0.3));
    assert_eq!(
        config.with_defaults().to_document(),
        json!({
            "presentation_mode": "chat", "description": "", "input_fields": [], "output_display": "text",
            "theme": {}, "access_mode": "authenticated",
        })
    );
    let config = InterfaceConfig::parse(&full_configuration()).unwrap();
    assert_eq!(
        (config.rollback_thresholds().sample_size(), config.rollback_thresholds().error_threshold()),
        (50, 0.25)
    );
    assert_eq!(config.with_defaults().to_document(), full_configuration());
}

#[test]
fn reports_all_problems_at_once() {
    let document = json!({
        "presentation_mode": "window",
        "description": "a\u{202e}b",
        "input_fields": [
            { "name": "A", "type": "text" },
            { "name": "a", "type": "colour" },
            { "name": "a", "type": "select", "options": [] },
            "none",
            { "type": "number", "min": 2, "max": 1, "rows": 3 },
            { "name": "b", "type": "textarea", "rows": 51, "label": "", "required": "yes", "surprise": 1 },
        ],
        "output_display": 1,
        "theme": { "accent_color": "var(--x)", "border_radius": "65px", "shadow": "none" },
        "rollout_config": { "sample_size": 0, "error_threshold": 1.5 },
        "access_mode": "everybody",
        "__proto__": {},
    });
    let mut actual = problem_codes(&document);
    actual.sort();
    let expected = [
        ("__proto__", "unknown_field"),
        ("access_mode", "not_one_of"),
        ("description", "invalid_text"),
        ("input_fields[0].name", "invalid_field_name"),
        ("input_fields[1].type", "not_one_of"),
        ("input_fields[2].name", "duplicate_name"),
        ("input_fields[2].options", "options_missing"),
        ("input_fields[3]", "invalid"),
        ("input_fields[4].min", "min_beyond_max"),
        ("input_fields[4].name", "missing"),
        ("input_fields[4].rows", "not_for_this_type"),
        ("input_fields[5].label", "invalid_text"),
        ("input_fields[5].required", "invalid"),
        ("input_fields[5].rows", "out_of_bounds"),
        ("input_fields[5].surprise", "unknown_field"),
        ("output_display", "invalid"),
        ("presentation_mode", "not_one_of"),
        ("rollout_config.error_threshold", "out_of_bounds"),
        ("rollout_config.sample_size", "out_of_bounds"),
        ("theme.accent_color", "invalid_color"),
        ("theme.border_radius", "invalid_length"),
        ("theme.shadow", "unknown_field"),
    ];
    let expected: Vec<_> = expected.into_iter().map(|(path, code)| (path.to_owned(), code)).collect();
    assert_eq!(actual, expected);
}

#[test]
fn names_known_fields_and_values() {
    let document = json!({ "presentation_mode": "dance", "theme": { "shadow": 1 } });
    let problems = InterfaceConfig::parse(&document).unwrap_err();
    let messages: Vec<_> = problems.iter().map(|problem| problem.kind.to_string()).collect();
    assert_eq!(
        messages,
        [
            "the value is not one of the known values: form, chat, block",
            "there is no such field; the fields are accent_color, background_color, font_family, border_radius",
        ]
    );
    // The names of a run's inputs are not fixed, so the message lists none.
    assert_eq!(ProblemKind::Unknown(&[]).to_string(), "there is no such field");
}

#[test]
fn enforces_configuration_bounds() {
    for document in [json!(null), json!([]), json!("form"), json!(1)] {
        assert_eq!(problem_codes(&document), single_problem("", "invalid"));
    }
    assert_eq!(problem_codes(&json!({})), single_problem("presentation_mode", "missing"));
    assert_eq!(problem_codes(&json!({ "presentation_mode": null })), single_problem("presentation_mode", "invalid"));
    let fields = |count: usize| -> Vec<Value> {
        (0..count).map(|index| json!({ "name": format!("f{index}"), "type": "text" })).collect()
    };
    assert!(InterfaceConfig::parse(&json!({ "presentation_mode": "form", "input_fields": fields(50) })).is_ok());
    let too_many_fields = json!({ "presentation_mode": "form", "input_fields": fields(51) });
    assert_eq!(problem_codes(&too_many_fields), single_problem("input_fields", "too_long"));
    let unknown_members: Map<String, Value> = (0..1_000).map(|index| (format!("k{index}"), json!(1))).collect();
    assert_eq!(problem_codes(&Value::Object(unknown_members)).len(), MAX_PROBLEMS);
    for (name, is_valid) in [
        ("a", true),
        ("constructor", true),
        ("a_1", true),
        (&*format!("a{}", "0".repeat(62)), true),
        (&*format!("a{}", "0".repeat(63)), false),
        ("", false),
        ("1a", false),
        ("_a", false),
        ("__proto__", false),
        ("aB", false),
        ("a-b", false),
        ("\u{430}", false),
    ] {
        let result = InterfaceConfig::parse(&with_field(json!({ "name": name, "type": "text" })));
        assert_eq!(result.is_ok(), is_valid, "{name}");
    }
    for spelling in ["7", "7.0", "7e0", "70e-1"] {
        let text = format!(r#"{{"presentation_mode": "form", "rollout_config": {{"sample_size": {spelling}}}}}"#);
        let config = InterfaceConfig::parse(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(config.with_defaults().to_document()["rollout_config"]["sample_size"], json!(7), "{spelling}");
    }
    for (rollout, path) in [
        (json!({ "sample_size": 1001 }), "rollout_config.sample_size"),
        (json!({ "sample_size": -1 }), "rollout_config.sample_size"),
        (json!({ "sample_size": 1.5 }), "rollout_config.sample_size"),
        (json!({ "sample_size": 9_007_199_254_740_993_u64 }), "rollout_config.sample_size"),
        (json!({ "sample_size": "20" }), "rollout_config.sample_size"),
        (json!({ "error_threshold": -0.1 }), "rollout_config.error_threshold"),
        (json!({ "error_threshold": "0.3" }), "rollout_config.error_threshold"),
        (json!([]), "rollout_config"),
    ] {
        let codes = problem_codes(&json!({ "presentation_mode": "form", "rollout_config": rollout }));
        assert_eq!(codes.len(), 1, "{codes:?}");
        assert_eq!(codes[0].0, path);
    }
    for rollout in [json!({}), json!({ "sample_size": 1, "error_threshold": 0 }), json!({ "error_threshold": 1 })] {
        assert!(InterfaceConfig::parse(&json!({ "presentation_mode": "form", "rollout_config": rollout })).is_ok());
    }
}

#[test]
fn refuses_settings_of_other_field_types() {
    for field_type in FieldType::SPELLINGS {
        for (setting, value, owner) in [
            ("options", json!(["a"]), "select"),
            ("min", json!(1), "number"),
            ("max", json!(1), "number"),
            ("rows", json!(5), "textarea"),
        ] {
            let mut field = json!({ "name": "x", "type": field_type, setting: value });
            if *field_type == "select" {
                field["options"] = json!(["a"]);
            }
            let result = InterfaceConfig::parse(&with_field(field));
            assert_eq!(result.is_ok(), owner == *field_type, "{field_type} {setting}");
        }
    }
    for (field, code) in [
        (json!({ "type": "select" }), "options_missing"),
        (json!({ "type": "select", "options": "a" }), "invalid"),
        (json!({ "type": "select", "options": ["a", "a"] }), "duplicate_item"),
        (json!({ "type": "select", "options": ["a", 1] }), "invalid"),
        (json!({ "type": "select", "options": ["a\u{200b}"] }), "invalid_text"),
        (json!({ "type": "select", "options": ["a"], "default": "b" }), "not_an_option"),
        (json!({ "type": "text", "default": 1 }), "invalid"),
        (json!({ "type": "text", "default": "x".repeat(32 * 1024 + 1) }), "too_long"),
        (json!({ "type": "number", "default": "1" }), "invalid"),
        (json!({ "type": "number", "min": 2, "default": 1 }), "out_of_bounds"),
        (json!({ "type": "number", "min": "2" }), "invalid"),
        (json!({ "type": "boolean", "default": "true" }), "invalid"),
        (json!({ "type": "date", "default": "2026-02-30" }), "invalid_date"),
        (json!({ "type": "textarea", "rows": 0 }), "out_of_bounds"),
    ] {
        let mut field = field;
        field["name"] = json!("x");
        let codes = problem_codes(&with_field(field.clone()));
        assert_eq!(codes.len(), 1, "{field}: {codes:?}");
        assert_eq!(codes[0].1, code, "{field}");
    }
}

#[test]
fn problems_of_inputs_name_the_expected_type() {
    let config = InterfaceConfig::parse(&full_configuration()).unwrap();
    for (name, value, expected) in [
        ("ticket", json!(["a"]), "expected a text"),
        ("amount", json!("1"), "expected a number"),
        ("urgent", json!("true"), "expected true or false"),
        ("tone", json!(1), "expected a text"),
        ("due", json!(1), "expected a text"),
    ] {
        let mut inputs = json!({ "ticket": "refund" });
        inputs[name] = value;
        let problems = config.effective_inputs(inputs.as_object().unwrap()).unwrap_err();
        let messages: Vec<_> = problems.iter().map(|problem| problem.kind.to_string()).collect();
        assert_eq!(messages, [expected], "{name}");
    }
}

#[test]
fn validates_inputs_against_the_form() {
    let config = InterfaceConfig::parse(&full_configuration()).unwrap();
    let check_inputs = |inputs: Value| config.effective_inputs(inputs.as_object().unwrap());
    let filled =
        check_inputs(json!({ "ticket": "refund", "due": "0001-01-01", "amount": 99.5, "tone": "warm" })).unwrap();
    assert_eq!(
        Value::Object(filled),
        json!({
            "ticket": "refund", "due": "0001-01-01", "amount": 99.5, "tone": "warm", "title": "none", "urgent": false,
        })
    );
    assert!(check_inputs(json!({ "ticket": "x".repeat(32 * 1024), "title": "" })).is_ok());
    for (name, value, code) in [
        ("ticket", json!(""), "missing"),
        ("ticket", json!(null), "invalid"),
        ("ticket", json!(["a"]), "invalid"),
        ("ticket", json!("x".repeat(32 * 1024 + 1)), "too_long"),
        ("amount", json!("1"), "invalid"),
        ("amount", json!(true), "invalid"),
        ("amount", json!(-0.5), "out_of_bounds"),
        ("amount", json!(100), "out_of_bounds"),
        ("tone", json!("loud"), "not_an_option"),
        ("tone", json!("Dry"), "not_an_option"),
        ("tone", json!(["dry"]), "invalid"),
        ("urgent", json!("true"), "invalid"),
        ("urgent", json!(1), "invalid"),
        ("due", json!("2026-02-30"), "invalid_date"),
        ("due", json!("2025-02-29"), "invalid_date"),
        ("due", json!("0000-01-01"), "invalid_date"),
        ("due", json!("10000-01-01"), "invalid_date"),
        ("due", json!("2026-1-1"), "invalid_date"),
        ("due", json!("2026-01-01T00:00:00Z"), "invalid_date"),
        ("due", json!("2026-01-01+12:00"), "invalid_date"),
        ("due", json!("+026-01-01"), "invalid_date"),
        ("due", json!("-001-01-01"), "invalid_date"),
        ("due", json!(" 2026-01-01"), "invalid_date"),
        ("due", json!("２０２６-01-01"), "invalid_date"),
        ("due", json!(""), "invalid_date"),
        ("due", json!(20_260_101), "invalid"),
        ("__proto__", json!({}), "unknown_field"),
        ("constructor", json!("x"), "unknown_field"),
        ("Ticket", json!("x"), "unknown_field"),
    ] {
        let mut inputs = json!({ "ticket": "refund" });
        inputs[name] = value;
        let problems = check_inputs(inputs.clone()).unwrap_err();
        let codes: Vec<_> = problems.iter().map(|problem| (problem.path.as_str(), problem.kind.code())).collect();
        assert_eq!(codes, [(format!("inputs.{name}").as_str(), code)], "{inputs}");
    }
    let problems = check_inputs(json!({ "tone": 1, "due": "x", "y": 1, "z": 1 })).unwrap_err();
    let paths: Vec<_> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["inputs.ticket", "inputs.tone", "inputs.due", "inputs.y", "inputs.z"]);
}

/// A configuration with this number of `select` fields. Each field has 200 options of three characters.
fn selects(count: usize) -> Value {
    let options: Vec<String> = (0..200).map(|number| format!("{number:03}")).collect();
    let field = |number: usize| json!({ "name": format!("s{number}"), "type": "select", "options": options });
    json!({ "presentation_mode": "form", "input_fields": (0..count).map(field).collect::<Vec<_>>() })
}

#[test]
fn rejects_configuration_beyond_64_kib() {
    let config = InterfaceConfig::parse(&selects(50)).unwrap();
    assert!(config.to_document().to_string().len() <= MAX_INTERFACE_BYTES);
    assert!(config.heap_bytes() > config.to_document().to_string().len(), "short texts take more memory than JSON");
    let mut oversized = selects(50);
    oversized["input_fields"][0] = json!({ "name": "text", "type": "textarea", "default": "x".repeat(30_000) });
    assert_eq!(problem_codes(&oversized), single_problem("", "too_long"));
}

proptest! {
    /// A date field accepts exactly the days that exist in the calendar.
    #[test]
    fn accepts_exactly_calendar_days(year in 0..=9_999_i32, month in 0..=13_u8, day in 0..=32_u8) {
        let config = InterfaceConfig::parse(&with_field(json!({ "name": "d", "type": "date" }))).unwrap();
        let inputs = json!({ "d": format!("{year:04}-{month:02}-{day:02}") });
        let exists = year > 0 && time::Month::try_from(month)
            .is_ok_and(|month| day >= 1 && day <= month.length(year));
        prop_assert_eq!(config.effective_inputs(inputs.as_object().unwrap()).is_ok(), exists);
    }
}
