//! Invalid files. Each is reported in one line before the first request. No server listens at the configured
//! address, so a request would end with exit code 3.

use crate::{CommandOutput, Terminal, make_directory, path_text};
use std::{
    fs::{self, File},
    os::unix::{fs::symlink, net::UnixListener},
    path::Path,
    process::Command,
};
use tempfile::TempDir;

const GOOD: &str = "kind: skill\nslug: good\nowner_ref: team:x\ncontent: {name: good, description: d, body: b}\n";

/// A file name and its text.
type NamedText<'n> = (&'n str, String);
/// Creates a file system entry at a path, for example a link or a pipe.
type CreateEntry<'m> = &'m dyn Fn(&Path);

fn unreachable_server() -> Terminal {
    Terminal { server: Some("http://127.0.0.1:9".to_owned()), ..Terminal::offline() }
}

/// The line about the only finding in a directory. Asserts that each command reports the same line.
fn single_finding(files: &TempDir) -> String {
    let mut lines: Vec<String> = Vec::new();
    for command in ["plan", "apply", "status"] {
        let CommandOutput { code, out, err } = unreachable_server().run(&["sync", command, path_text(files.path())]);
        assert_eq!((code, out.as_str(), err.lines().count()), (1, "", 1), "{command}: {err}");
        lines.push(err.trim_end().to_owned());
    }
    lines.dedup();
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines.remove(0)
}

fn assert_finding(files: &TempDir, name: &str, position: &str) {
    let line = single_finding(files);
    let path = if name.is_empty() { files.path().to_owned() } else { files.path().join(name) };
    let expected = format!("{}:{position}: ", path.display());
    assert!(line.starts_with(&expected), "{line}\nand not {expected}");
}

#[test]
fn reports_each_hostile_file_in_one_line() {
    let repeat = |repeated: &str, times: usize| vec![repeated; times].join(", ");
    let by_values =
        format!("a: &a [{}]\nb: &b [{}]\nc: [{}]\n", repeat("x", 100), repeat("*a", 100), repeat("*b", 100));
    let by_bytes = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), repeat("*a", 1000));
    let utf_16 =
        |bytes: fn(u16) -> [u8; 2]| -> Vec<u8> { "\u{feff}kind: skill\n".encode_utf16().flat_map(bytes).collect() };
    for (name, bytes, position) in [
        ("assets/b.yaml", b"kind: skill\nslug: [b\n".to_vec(), "3:1: yaml_syntax"),
        ("assets/b.json", b"{\"kind\": \"skill\",\n \"slug\": }".to_vec(), "2:10: malformed_json"),
        ("assets/b.yaml", b"".to_vec(), "1:1: yaml_syntax"),
        ("assets/b.yaml", b"just text".to_vec(), "1:1: invalid_manifest"),
        ("assets/b.yaml", b"kind: skill\nslug: b\0\n".to_vec(), "2:8: file_binary"),
        ("assets/b.yaml", b"\x7fELF\x02\x01\x01\0\0\0".to_vec(), "1:8: file_binary"),
        ("assets/b.yaml", b"kind: skill\nslug: caf\xe9\n".to_vec(), "2:10: file_encoding"),
        ("assets/b.yaml", utf_16(u16::to_le_bytes), "1:1: file_encoding"),
        ("assets/b.yaml", utf_16(u16::to_be_bytes), "1:1: file_encoding"),
        ("assets/b.yaml", by_values.into_bytes(), "3:17: yaml_expansion"),
        ("assets/b.yaml", by_bytes.into_bytes(), "2:209: yaml_expansion"),
        ("assets/b.yaml", b"a: 1\nb: &b {c: *b}\n".to_vec(), "2:11: yaml_expansion"),
        ("assets/b.yaml", format!("a: {}", "[".repeat(100)).into_bytes(), "1:67: yaml_too_deep"),
        ("assets/b.yaml", b"kind: skill\nkind: skill\n".to_vec(), "2:1: yaml_duplicate_key"),
        ("assets/b.yaml", b"kind: skill\n--- \nslug: b\n".to_vec(), "3:1: yaml_syntax"),
        ("assets/b.yaml", b"kind: !!skill x\n".to_vec(), "1:7: yaml_tag"),
        ("flows/b.yaml", b"steps: *nothing\n".to_vec(), "1:1: flow_metadata_missing"),
    ] {
        let files = make_directory(&[("assets/good.yaml", GOOD)]);
        let path = files.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        assert_finding(&files, name, position);
    }
    // The command skips a byte order mark, so the file is valid and the command sends a request.
    let files = make_directory(&[("assets/good.yaml", &format!("\u{feff}{GOOD}"))]);
    assert_eq!(unreachable_server().run(&["sync", "plan", path_text(files.path())]).code, 3);
}

#[test]
fn refuses_special_files_and_links_without_opening() {
    let pipe = |path: &Path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    let socket = |path: &Path| drop(UnixListener::bind(path).unwrap());
    let large_file = |path: &Path| File::create(path).unwrap().set_len(6 << 20).unwrap();
    let large_yaml_file = |path: &Path| fs::write(path, "#".repeat((1 << 20) + 1)).unwrap();
    let entries: [(&str, CreateEntry<'_>, &str); 8] = [
        ("assets/b.yaml", &pipe, "1:1: file_not_regular"),
        ("assets/b.yaml", &socket, "1:1: file_not_regular"),
        ("assets/b.json", &large_file, "1:1: file_too_large"),
        ("assets/b.yaml", &large_yaml_file, "1:1: file_too_large"),
        ("assets/b.yaml", &|path| symlink("/dev/zero", path).unwrap(), "1:1: link_leads_out"),
        ("assets/b.yaml", &|path| symlink("../../outside.yaml", path).unwrap(), "1:1: link_leads_out"),
        ("assets/b.yaml", &|path| symlink("b.yaml", path).unwrap(), "1:1: link_leads_out"),
        ("flows", &|path| symlink("assets", path).unwrap(), "1:1: link_leads_out"),
    ];
    for (name, create_entry, position) in entries {
        let files = make_directory(&[("assets/good.yaml", GOOD)]);
        create_entry(&files.path().join(name));
        assert_finding(&files, name, position);
    }
    // The text of a sidecar must also be in a regular file.
    let prompt = "kind: prompt_template\nslug: b\nowner_ref: team:x\ncontent: {}\ntexts: {/system_prompt: b.md}\n";
    let files = make_directory(&[("assets/b.yaml", prompt)]);
    pipe(&files.path().join("assets/b.md"));
    assert_finding(&files, "assets/b.md", "1:1: file_not_regular");
}

#[test]
fn refuses_directories_beyond_the_limits() {
    let files = make_directory(&[("assets/good.yaml", GOOD)]);
    for number in 0..100_000 {
        File::create(files.path().join(format!("assets/{number}.txt"))).unwrap();
    }
    assert_finding(&files, "", "1:1: directory_too_large");
    let files = make_directory(&[("assets/good.yaml", GOOD)]);
    // Each file is within the limit for one file. The files are sparse, so they occupy no disk space.
    for number in 0..14 {
        let file = File::create(files.path().join(format!("assets/b{number}.json"))).unwrap();
        file.set_len(5 << 20).unwrap();
    }
    assert_finding(&files, "", "1:1: directory_too_large");
}

/// A file has many values below long keys, so their JSON pointers are long. Storing all pointers would take
/// gigabytes for a file of 140 KB.
#[test]
fn bounds_memory_for_long_nested_keys() {
    let mut text = String::new();
    for depth in 0..50 {
        text.push_str(&format!("{}{}:\n", " ".repeat(depth), "k".repeat(1_000)));
    }
    text.push_str(&format!("{}a: [{}]\n", " ".repeat(50), vec!["1"; 40_000].join(",")));
    assert!(text.len() < 140_000, "{}", text.len());
    let files = make_directory(&[("skill.yaml", &text)]);
    let check = format!(
        "ulimit -v 1000000 && exec {} asset check --kind skill {}",
        env!("CARGO_BIN_EXE_fairway"),
        path_text(&files.path().join("skill.yaml"))
    );
    let output = CommandOutput::of(Command::new("bash").args(["-c", &check]).output().unwrap());
    assert!(output.code == 1 && output.err.contains("skill.yaml:1:1: "), "{} {}", output.code, output.err);
}

/// The client detects errors before the first request that the server would report during `apply`.
#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn detects_server_refusals_before_any_request() {
    let skill = |slug: &str, owner: &str| {
        format!("kind: skill\nslug: {slug}\nowner_ref: {owner}\ncontent: {{name: n, description: d, body: b}}\n")
    };
    let prompt = |slug: &str, text: &str| {
        format!("kind: prompt_template\nslug: {slug}\nowner_ref: team:x\ncontent: {{system_prompt: '{text}'}}\n")
    };
    let workload = |fields: &str| format!("slug: w\nowner_ref: team:x\ninvocation_mode: form\n{fields}");
    let release =
        |environment: &str, bindings: &str| format!("workload: w\nenvironment: {environment}\nbindings:\n{bindings}");
    let flow = "entry_step: x\nsteps: [{id: x, type: return, output: {a: 1}}]\n".to_owned();
    let policy = "kind: policy_bundle\nslug: p\nowner_ref: team:x\ncontent: {rules: [{id: a, condition: always, outcome: allow, reason_code: a}]}\n";
    let (policy, other) = (policy.to_owned(), policy.replace("slug: p", "slug: q"));
    let two_policies = "  - {role: policy_bundle, asset: p}\n  - {role: policy_bundle, asset: q}\n";
    let repeated_binding = "  - {role: skill, asset: good}\n  - {role: skill, asset: good}\n";
    let cases: Vec<(Vec<NamedText<'_>>, &str, &str)> = vec![
        (vec![("assets/b.yaml", skill("b", "risk"))], "assets/b.yaml", "3:12: invalid_manifest"),
        (vec![("assets/v1.yaml", skill("v1", "team:x"))], "assets/v1.yaml", "2:7: reserved_slug"),
        (
            vec![("flows/f.yaml", flow.clone()), ("flows/f.meta.yaml", "owner_ref: group:x\n".to_owned())],
            "flows/f.meta.yaml",
            "1:12: invalid_manifest",
        ),
        (
            vec![
                ("flows/f.yaml", flow),
                ("flows/f.meta.yaml", "owner_ref: team:x\n".to_owned()),
                ("flows/f.meta.yml", "owner_ref: team:y\n".to_owned()),
            ],
            "flows/f.meta.yml",
            "1:1: duplicate_slug",
        ),
        (
            vec![("workloads/w.yaml", workload("").replace("form", "dance"))],
            "workloads/w.yaml",
            "3:18: invalid_manifest",
        ),
        (vec![("workloads/w.yaml", workload("").replace("team:x", "x"))], "workloads/w.yaml", "2:12: invalid_manifest"),
        (vec![("workloads/w.yaml", workload("name: ''\n"))], "workloads/w.yaml", "4:7: invalid_name"),
        (
            vec![
                (
                    "workloads/w.json",
                    "{\"slug\": \"w\", \"owner_ref\": \"team:x\", \"invocation_mode\": \"form\"}".to_owned(),
                ),
                ("workloads/w.yaml", workload("")),
            ],
            "workloads/w.yaml",
            "1:7: duplicate_slug",
        ),
        (
            vec![("releases/w.Dev.yaml", release("Dev", repeated_binding).replace(repeated_binding, "  []\n"))],
            "releases/w.Dev.yaml",
            "2:14: invalid_slug",
        ),
        (
            vec![("releases/w.dev.yaml", release("dev", "  []\n")), ("releases/w.dev.yml", release("dev", "  []\n"))],
            "releases/w.dev.yml",
            "2:14: duplicate_release",
        ),
        (
            vec![
                ("assets/p.yaml", policy),
                ("assets/q.yaml", other),
                ("releases/w.dev.yaml", release("dev", two_policies)),
            ],
            "releases/w.dev.yaml",
            "5:12: duplicate_role",
        ),
        (
            vec![("releases/w.dev.yaml", release("dev", repeated_binding))],
            "releases/w.dev.yaml",
            "5:5: duplicate_binding",
        ),
        (
            vec![("releases/w.dev.yaml", release("dev", "  - {role: memory, asset: good, version: v1}\n"))],
            "releases/w.dev.yaml",
            "4:12: role_kind_mismatch",
        ),
        (
            vec![("releases/w.dev.yaml", release("dev", "  - {role: skill, asset: good, version: 'v 1'}\n"))],
            "releases/w.dev.yaml",
            "4:41: invalid_manifest",
        ),
    ];
    for (files, name, position) in cases {
        let mut all_files = vec![("assets/good.yaml", GOOD)];
        all_files.extend(files.iter().map(|(name, text)| (*name, text.as_str())));
        assert_finding(&make_directory(&all_files), name, position);
    }
    // All errors of a file are reported together.
    let invalid_workload = workload("name: ''\n").replace("form", "dance").replace("team:x", "x");
    let files =
        make_directory(&[("workloads/w.yaml", &invalid_workload), ("assets/b.yaml", &prompt("b", "$arg:nothing"))]);
    let output = unreachable_server().run(&["sync", "plan", path_text(files.path())]);
    assert_eq!(output.err.lines().count(), 4, "{}", output.err);
}

/// Messages about unknown names contain the valid names or the nearest one.
#[test]
fn suggests_names_for_unknown_keys_fields_and_values() {
    let owner = "owner_ref: team:x\n";
    let flow = "entry_step: x\nsteps:\n  - id: x\n    type: return\n    ouput: {a: 1}\n    output: {a: 1}\n";
    let form = |interface: &str| format!("slug: w\n{owner}invocation_mode: form\ninterface_config: {interface}\n");
    let release = |role: &str, slug: &str| {
        format!("workload: w\nenvironment: dev\nbindings: [{{role: {role}, asset: {slug}}}]\n")
    };
    let misspelt = GOOD.replace("body: b}", "body: b, descripton: d}");
    for (files, expected, parts) in [
        (
            vec![("flows/f.yaml", flow.to_owned()), ("flows/f.meta.yaml", owner.to_owned())],
            "5:5: unknown_key: ",
            vec!["the keys are id, type, output;", "there is no key `ouput`; did you mean `output`?"],
        ),
        (
            vec![("workloads/w.yaml", form("{presentation_mode: form, input_feilds: []}"))],
            "invalid_interface: there is no such field; the fields are presentation_mode, ",
            vec!["; did you mean `input_fields`? (interface_config.input_feilds)"],
        ),
        (
            vec![("workloads/w.yaml", form("{presentation_mode: form, input_fields: [{name: a, type: dropdown}]}"))],
            "invalid_interface: the value is not one of the known values: ",
            vec!["text, number, select, textarea, boolean, date (interface_config.input_fields[0].type)"],
        ),
        (
            vec![("assets/good.yaml", misspelt)],
            "unknown_field: unknown field; the fields are ",
            vec!["; did you mean `description`? (content.descripton)"],
        ),
        (
            vec![
                ("flows/f.yaml", flow.replace("    ouput: {a: 1}\n", "").replace("{a: 1}", "'{{release.prompt}}'")),
                ("flows/f.meta.yaml", owner.to_owned()),
            ],
            "5:13: unknown_role: ",
            vec!["; there is no role `prompt`; did you mean `prompt_template`?"],
        ),
        (
            vec![("assets/good.yaml", GOOD.to_owned()), ("releases/w.dev.yaml", release("skill", "goood"))],
            "unknown_asset: the directory has no skill `goood`",
            vec!["; did you mean `good`?"],
        ),
        (
            vec![("assets/good.yaml", GOOD.to_owned()), ("releases/w.dev.yaml", release("memory", "good"))],
            "unknown_asset: `good` of the directory is a skill, not a memory",
            vec![],
        ),
    ] {
        let texts: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let line = single_finding(&make_directory(&texts));
        assert!(line.contains(expected) && parts.iter().all(|part| line.contains(part)), "{line}");
    }
}

/// An invalid file is reported once. References to it cause no further findings.
#[test]
fn reports_an_invalid_file_once_despite_references() {
    let workload = "slug: w\nowner_ref: team:x\ninvocation_mode: form\n";
    let release =
        "workload: w\nenvironment: dev\nbindings: [{role: skill, asset: b}, {role: orchestration_flow, asset: f}]\n";
    let skill = GOOD.replace("good", "b");
    let (flow, owner) = ("entry_step: x\nsteps: [{id: x, type: return, output: {a: 1}}]\n", "owner_ref: team:x\n");
    for (name, text, expected) in [
        ("assets/b.yaml", "kind: [".to_owned(), "2:1: yaml_syntax"),
        ("assets/b.yaml", skill.replace("body: b", "body: [1]"), "4:"),
        ("assets/b.yaml", skill.replace("kind: skill", "kind: dance"), "1:7: invalid_manifest"),
        ("flows/f.yaml", "entry_step: [".to_owned(), "2:1: yaml_syntax"),
        ("flows/f.meta.yaml", "owner_ref: {}".to_owned(), "1:12: invalid_manifest"),
    ] {
        let files = make_directory(&[
            ("assets/b.yaml", &skill),
            ("flows/f.yaml", flow),
            ("flows/f.meta.yaml", owner),
            ("workloads/w.yaml", workload),
            ("releases/w.dev.yaml", release),
        ]);
        fs::write(files.path().join(name), text).unwrap();
        let line = single_finding(&files);
        assert!(line.starts_with(&format!("{}:{expected}", files.path().join(name).display())), "{line}");
    }
    // If a file is missing, the finding is reported at the reference.
    let files = make_directory(&[
        ("workloads/w.yaml", workload),
        ("releases/w.dev.yaml", &release.replace(", {role: orchestration_flow, asset: f}", "")),
    ]);
    assert_finding(&files, "releases/w.dev.yaml", "3:33: unknown_asset");
}

/// Messages shorten long names from a file.
#[test]
fn shortens_messages_with_huge_keys() {
    let key = "k".repeat(900_000);
    let content = "content:\n  name: good\n  description: d\n  body: b\n";
    let block_style = GOOD.replace("content: {name: good, description: d, body: b}\n", content);
    for (name, text, code) in [
        ("assets/good.yaml", format!("{GOOD}? {key}\n: 1\n"), "invalid_manifest: unknown field `kkk"),
        ("assets/good.yaml", format!("{block_style}  ? {key}\n  : 1\n"), "unknown_field: "),
        ("assets/good.json", format!("{{\"{key}\": 1}}"), "invalid_manifest: unknown field `kkk"),
    ] {
        let files = make_directory(&[(name, &text)]);
        let line = single_finding(&files);
        assert!(line.len() < 1_500 && line.contains(code), "{} {line:.300}", line.len());
        let output =
            unreachable_server().run(&["asset", "check", "--output", "json", path_text(&files.path().join(name))]);
        assert!(output.out.len() < 3_000 && output.err.len() < 1_500, "{} {}", output.out.len(), output.err.len());
    }
}
