use super::*;
use serde_json::json;
use std::{fmt::Write as _, io::Write as _};

fn parsed(name: &str, text: &str) -> Result<LocatedValue, Finding> {
    Source { name: name.to_owned(), text: text.to_owned() }.try_value()
}

#[test]
fn locates_values_by_json_pointer() {
    let text = "kind: x\ncontent:\n  rules:\n    - id: a\n      any/thing: [1, {b: 2.5}]\n  base: &it {c: true}\n  same: *it\n";
    let located = parsed("a.yaml", text).unwrap();
    let content = json!({ "rules": [{ "id": "a", "any/thing": [1, { "b": 2.5 }] }], "base": { "c": true }, "same": { "c": true } });
    assert_eq!(located.value, json!({ "kind": "x", "content": content }));
    for (pointer, (line, column)) in [
        ("", (1, 1)),
        ("/content/rules/0/id", (4, 11)),
        ("/content/rules/0/any~1thing/1/b", (5, 26)),
        ("/content/rules/0/missing/below", (4, 7)),
        ("/content/same", (7, 9)),
    ] {
        assert_eq!(located.position(pointer), Some(Position { line, column }), "{pointer}");
    }
    let located = parsed("a.json", "{\n \"a\": [1,\n  {\"b\": \"\\ud83d\\ude00\"}]}").unwrap();
    assert_eq!(located.value, json!({ "a": [1, { "b": "😀" }] }));
}

#[test]
fn rejects_unsafe_documents_with_their_position() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let before = format!("*a{}", level - 1);
        writeln!(bomb, "a{level}: &a{level} [{}]", vec![before; 10].join(", ")).unwrap();
    }
    let deep = format!("a: {}{}", "[".repeat(80), "]".repeat(80));
    let wide = format!("[{}]", "[],".repeat(120_000));
    for (name, text, code, line) in [
        ("bomb.yaml", bomb.as_str(), "yaml_expansion", 5),
        ("cycle.yaml", "a: 1\nb: &b\n  c: *b\n", "yaml_expansion", 3),
        ("deep.yaml", &deep, "yaml_too_deep", 1),
        ("wide.yaml", &wide, "yaml_expansion", 1),
        ("twice.yaml", "a: 1\na: 2\n", "yaml_duplicate_key", 2),
        ("tag.yaml", "a: !!python/object:os.system x\n", "yaml_tag", 1),
        ("two.yaml", "a: 1\n---\nb: 2\n", "yaml_syntax", 3),
        ("broken.yaml", "a: [1\nb: 2\n", "yaml_syntax", 2),
        ("number.yaml", "a: .nan\n", "yaml_number", 1),
        ("key.yaml", "a: 1\n[b]: 2\n", "yaml_key_no_text", 2),
        ("twice.json", "{\"a\": 1,\n \"a\": 2}", "malformed_json", 2),
        ("broken.json", "{\"a\": 1,\n}", "malformed_json", 2),
        ("empty.json", "", "malformed_json", 1),
        ("empty.yaml", "", "yaml_syntax", 1),
    ] {
        let finding = parsed(name, text).unwrap_err();
        assert_eq!((finding.code.as_str(), finding.line), (code, Some(line)), "{finding}");
        assert_eq!(finding.to_string().lines().count(), 1);
    }
}

#[test]
fn syntax_errors_name_likely_cause() {
    for (text, position, part) in [
        ("kind: skill\ncontent:\n\tname: x\n", (3, 1), "a tab indents the line"),
        ("description: Answers: a question\n", (1, 21), "must be in quotes"),
        ("content:\n  name: x\n description: y\n", (3, 2), "fits no line above"),
        ("kind: skill\nslug: [b\n", (3, 1), "an unclosed quote or bracket may begin above"),
    ] {
        let finding = parsed("a.yaml", text).unwrap_err();
        assert_eq!(
            (finding.code.as_str(), finding.line.zip(finding.column)),
            ("yaml_syntax", Some(position)),
            "{finding}"
        );
        assert!(finding.message.contains(part), "{finding}");
    }
}

#[test]
fn rejects_files_that_are_not_bounded_utf8_text() {
    let folder = tempfile::tempdir().unwrap();
    let write_file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        File::create(&path).unwrap().write_all(bytes).unwrap();
        path
    };
    let long = vec![b'a'; usize::try_from(MAX_FILE_BYTES).unwrap() + 1];
    for (path, code, position) in [
        (folder.path().join("missing"), "file_unreadable", None),
        (folder.path().to_owned(), "file_not_regular", None),
        (Path::new("/dev/zero").to_owned(), "file_not_regular", None),
        (write_file("long.json", &long), "file_too_large", None),
        (write_file("binary.yaml", b"a: 1\nb: \0"), "file_binary", Some((2, 4))),
        (write_file("latin.yaml", b"a: caf\xe9\n"), "file_encoding", Some((1, 7))),
    ] {
        let finding = Source::read_file(&path).unwrap_err();
        assert_eq!((finding.code.as_str(), finding.line.zip(finding.column)), (code, position), "{finding}");
    }
    assert_eq!(Source::read_file(&write_file("mark.yaml", "\u{feff}a: 1\n".as_bytes())).unwrap().text, "a: 1\n");
}
