use super::*;
use proptest::prelude::*;
use serde_json::json;

fn read(text: &str) -> Result<Value, FlowProblem> {
    let document = parse(text).map_err(|problems| problems[0].clone())?;
    document.problems.first().map_or_else(|| Ok(document.value()), |problem| Err(problem.clone()))
}

#[test]
fn reads_the_core_types() {
    let text = "x: 'go!! !!x'\na: no\nb: [1, -2, 1.5, true, null, ~, 017, '1']\nc: {d: 'x'}\n<<: {e: 1}\n";
    let expected = json!({
        "x": "go!! !!x", "a": "no", "b": [1, -2, 1.5, true, null, null, 17, "1"], "c": {"d": "x"}, "<<": {"e": 1}
    });
    assert_eq!(read(text).unwrap(), expected);
    assert_eq!(read("a: |\n  1\n  2\nb: >\n  3\n  4\n").unwrap(), json!({"a": "1\n2\n", "b": "3 4\n"}));
    assert_eq!(read("%YAML 1.2\n---\na: 1\n...\n").unwrap(), json!({"a": 1}));
}

#[test]
fn merge_keys_stay_keys() {
    let merged = read("base: &base {x: 1}\nmore:\n  <<: *base\n  y: 2\n").unwrap();
    assert_eq!(merged, json!({"base": {"x": 1}, "more": {"<<": {"x": 1}, "y": 2}}));
}

#[test]
fn refuses_with_code_and_position() {
    let cases = [
        ("a: 1\nb: 2\na: 3\n", "yaml_duplicate_key", 3),
        ("a:\n  b: 1\n  b: 2\n", "yaml_duplicate_key", 3),
        ("a: 1\n\"a\": 2\n", "yaml_duplicate_key", 2),
        ("{a: 1, a: 2}", "yaml_duplicate_key", 1),
        ("x: &x {a: 1}\ny:\n  <<: *x\n  <<: *x\n", "yaml_duplicate_key", 4),
        ("a: !!python/object:os.system x\n", "yaml_tag", 1),
        ("a: 1\nb: !thing [1]\n", "yaml_tag", 2),
        ("a: !thing x\n", "yaml_tag", 1),
        ("a: !<tag:yaml.org,2002:str> 1\n", "yaml_tag", 1),
        ("a: [!!str 1]\n", "yaml_tag", 1),
        ("!!map {a: 1}\n", "yaml_tag", 1),
        ("!!str a: 1\n", "yaml_tag", 1),
        ("a: 99999999999999999999999\n", "yaml_number", 1),
        ("a: 9007199254740993\n", "yaml_number", 1),
        ("a: .inf\n", "yaml_number", 1),
        ("a: \"x\\0\"\n", "yaml_nul", 1),
        ("1: a\n", "yaml_key_no_text", 1),
        ("true: a\n", "yaml_key_no_text", 1),
        (": a\n", "yaml_key_no_text", 1),
        ("? [a]\n: b\n", "yaml_key_no_text", 1),
        ("a: &k key\n*k : b\n", "yaml_key_no_text", 2),
        ("a: b\n---\na: c\n", "yaml_syntax", 3),
        ("--- a\n--- b\n", "yaml_syntax", 2),
        ("a: [1\n", "yaml_syntax", 2),
        ("a:\n\t- 1\n", "yaml_syntax", 2),
        ("a: *missing\n", "yaml_syntax", 1),
        ("a: &a [*a]\n", "yaml_expansion", 1),
        ("@", "yaml_syntax", 1),
        ("", "yaml_syntax", 1),
        ("# nothing\n", "yaml_syntax", 2),
    ];
    for (text, code, line) in cases {
        let problem = read(text).unwrap_err();
        assert_eq!((problem.code, problem.line), (code, Some(line)), "{text:?}");
        assert!(problem.column.is_some());
    }
}

#[test]
fn syntax_errors_name_likely_cause() {
    for (text, position, message_part) in [
        ("a: 1\nb:\n\tc: 2\n", (3, 1), "a tab indents the line"),
        ("a: 1\n\tb: 2\n", (2, 1), "a tab indents the line"),
        ("about: Answers: a question\n", (1, 15), "must be in quotes"),
        ("a:\n  b: 1\n c: 2\n", (3, 2), "fits no line above"),
        ("a:\n  b: 1\n    c: 2\n", (3, 5), "fits no line above"),
        ("a: [1\n", (2, 1), "the text is not one YAML document"),
    ] {
        let problem = read(text).unwrap_err();
        assert_eq!((problem.code, problem.line.zip(problem.column)), ("yaml_syntax", Some(position)), "{text:?}");
        assert!(problem.message.contains(message_part), "{text:?}: {}", problem.message);
    }
}

#[test]
fn recoverable_problems_hide_no_others() {
    let codes = |text: &str| -> Vec<(&'static str, Option<u32>)> {
        let problems = parse(text).map_or_else(|problems| problems, |document| document.problems);
        problems.into_iter().map(|problem| (problem.code, problem.line)).collect()
    };
    let text = "a: 1\na: 2\nb: !x 3\nb: 4\n5: c\n? [d, 1e999]\n: !y {e: \"\\0\"}\n!!str f: .nan\n";
    let expected = [
        ("yaml_duplicate_key", Some(2)),
        ("yaml_tag", Some(3)),
        ("yaml_duplicate_key", Some(4)),
        ("yaml_key_no_text", Some(5)),
        ("yaml_key_no_text", Some(6)),
        ("yaml_number", Some(6)),
        ("yaml_tag", Some(7)),
        ("yaml_nul", Some(7)),
        ("yaml_tag", Some(8)),
        ("yaml_number", Some(8)),
    ];
    assert_eq!(codes(text), expected);
    assert_eq!(codes(&format!("{text}g: [1\n")), [expected.as_slice(), &[("yaml_syntax", Some(10))]].concat());
    assert_eq!(codes(&"a: !x 1\n".repeat(5_000)).len(), MAX_PROBLEMS);
}

#[test]
fn limits_alias_expansion() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let item = format!("*a{}", level - 1);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![item; 9].join(", ")));
    }
    assert_eq!(read(&bomb).unwrap_err().code, "yaml_expansion");
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), vec!["*a"; 20].join(", "));
    assert_eq!(read(&long).unwrap_err().code, "yaml_expansion");
    let wide = read(&format!("a: 1\nb: [{}]", "0,".repeat(MAX_INDICATORS))).unwrap_err();
    // Line 2 exceeds the limit at column 80000: two colons and an opening bracket precede the commas, and they also
    // count as indicators.
    assert_eq!((wide.code, wide.line, wide.column), ("yaml_expansion", Some(2), Some(80_000)));
    assert_eq!(read("a: &a {x: 1}\nb: *a\n").unwrap(), json!({"a": {"x": 1}, "b": {"x": 1}}));
}

#[test]
fn references_do_not_count_as_indicators() {
    let inputs = |count: usize, value: &str| -> String {
        let inputs: Vec<String> = (0..count).map(|index| format!("k{index}: \"{value}\"")).collect();
        format!("{{{}}}", inputs.join(","))
    };
    let list = |items: usize, item: &str| format!("[{}]", vec![item; items].join(","));
    // The braces of twelve thousand references alone would exceed the maximum number of indicators if they counted.
    assert!(read(&list(200, &inputs(60, "{{trigger.q}}"))).is_ok());
    assert!(read(&list(200, &inputs(45, "{{ steps.a.output}}"))).is_ok());
    for value in ["{{trigger q}}", "{{{{{{", "{{x.q}}", "{{trigger.q}"] {
        let code = read(&list(200, &inputs(60, value))).map_err(|problem| problem.code);
        assert_eq!(code.err(), Some("yaml_expansion"), "{value}");
    }
    // Keys do not count as values.
    let members = |count: usize| (0..count).map(|index| format!("k{index}: 1\n")).collect::<String>();
    assert!(read(&members(MAX_VALUES - 1)).is_ok());
    assert_eq!(read(&members(MAX_VALUES)).unwrap_err().code, "yaml_expansion");
}

#[test]
fn limits_length_and_depth() {
    assert_eq!(read(&"x".repeat(MAX_TEXT_BYTES + 1)).unwrap_err().code, "flow_too_large");
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(read(&nested(MAX_DEPTH)).is_ok());
    for text in [nested(MAX_DEPTH + 1), nested(5_000), "[".repeat(20_000), "- ".repeat(20_000), "? ".repeat(20_000)] {
        let code = read(&text).unwrap_err().code;
        // The parser's own limit of nesting applies first to a text without closing brackets.
        assert!(["yaml_too_deep", "yaml_key_no_text", "yaml_syntax"].contains(&code), "{code}");
    }
    // Each anchor nests the previous anchor. The text is flat, but the document is deep.
    let mut chain = "a0: &a0 [x]\n".to_owned();
    for level in 1..2_000 {
        chain.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
    }
    assert_eq!(read(&chain).unwrap_err().code, "yaml_too_deep");
}

#[test]
fn finds_position_of_value() {
    let text = "name: x\nsteps:\n  - id: a\n    inputs: {q: 1}\n  - id: b\n    extra:\n      - 1\n";
    let document = parse(text).unwrap();
    let locate = |path: &[Segment]| {
        let position = document.position(path, MemberPart::Value).unwrap();
        (position.line, position.column)
    };
    let key = |name: &str| Segment::Key(name.to_owned());
    let steps = |index| vec![key("steps"), Segment::Index(index)];
    let step_key = |index, name: &str| [steps(index), vec![key(name)]].concat();
    assert_eq!(locate(&step_key(1, "id")), (5, 9));
    assert_eq!(locate(&[step_key(0, "inputs"), vec![key("q")]].concat()), (4, 17));
    assert_eq!(locate(&step_key(0, "missing")), locate(&steps(0)));
    assert_eq!(locate(&steps(7)), locate(&[key("steps")]));
    assert_eq!(locate(&[key("nothing")]), (1, 1));
    let extra = document.position(&step_key(1, "extra"), MemberPart::Key).unwrap();
    assert_eq!((extra.line, extra.column), (6, 5));
}

proptest! {
    #[test]
    fn reads_or_refuses_any_text(text in "([-:\\[\\]{}&*! \n'\"#|>a?%]|\\PC){0,80}") {
        let _ = read(&text);
    }

    #[test]
    fn reads_any_json_document(
        members in proptest::collection::btree_map("[a-z]{1,4}", "[ -~é]{0,12}", 0..6),
        number in -9_007_199_254_740_991_i64..=9_007_199_254_740_991,
    ) {
        let document = json!({"texts": members, "number": number});
        prop_assert_eq!(read(&document.to_string()).unwrap(), document);
    }
}
