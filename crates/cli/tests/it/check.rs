//! `asset check` and `prompt render`: files without a server.

use crate::{Came, Terminal, directory, shown};

const SKILL: &str = "kind: skill\nslug: s\nowner_ref: team:x\ncontent: {}\n";

#[test]
fn a_file_of_no_known_kind_does_not_hide_the_others() {
    let files = directory(&[("notes.yaml", "a: 1\n"), ("other.yaml", "kind: skil\ncontent: {}\n"), ("s.yaml", SKILL)]);
    let names = ["notes.yaml", "other.yaml", "s.yaml"].map(|name| files.path().join(name));
    let [notes, other, skill] = names.each_ref().map(shown);
    let came = Terminal::offline().run(&["asset", "check", notes, other, skill]);
    assert_eq!(came.code, 1, "{}", came.err);
    for line in [
        format!("{notes}:1:1: invalid_asset_kind: neither the file nor its name says the kind"),
        format!("{other}:1:7: invalid_asset_kind: "),
        format!("{skill}:4:10: "),
    ] {
        assert!(came.err.lines().any(|told| told.starts_with(&line)), "{line}: {}", came.err);
    }
    let came = Terminal::offline().run(&["asset", "check", "--kind", "skil", skill]);
    assert!(came.code == 2 && came.err.contains("a kind is one of"), "a word of the command itself: {}", came.err);
}

#[test]
fn texts_beside_a_manifest_are_part_of_its_content() {
    let terminal = Terminal::offline();
    let manifest = "examples/sync/assets/letters-prompt.yaml";
    assert_eq!(terminal.done(&["asset", "check", manifest]), "valid\n");
    let said = terminal.done(&["prompt", "render", manifest, "--arg", "letter=Where is my parcel?"]);
    assert!(said.contains("Where is my parcel?"), "{said}");

    let manifest = |texts: &str| {
        format!("kind: prompt_template\nslug: p\nowner_ref: team:x\ncontent: {{variables: []}}\ntexts: {texts}\n")
    };
    let (wrong, apart, list) =
        (manifest("{/system_prompt: p.md}"), manifest("{/system_prompt: ../p.md}"), manifest("[p.md]"));
    let files = directory(&[
        ("wrong.yaml", &wrong),
        ("apart.yaml", &apart),
        ("list.yaml", &list),
        ("p.md", "a $arg:gone"),
        ("here/main.yaml", &manifest("{/system_prompt: main.md}")),
        ("here/main.md", "Hello @asset-ref:beside"),
        ("here/beside.yaml", "kind: skill\ncontent: {name: beside, description: How}\ntexts: {/body: beside.md}\n"),
        ("here/beside.md", "from beside."),
    ]);
    for (name, code) in [
        ("wrong.yaml", "4:10: prompt_malformed_token"),
        ("apart.yaml", "5:8: link_leads_out"),
        ("list.yaml", "5:8: invalid_manifest"),
    ] {
        let path = files.path().join(name);
        for words in [["asset", "check"], ["prompt", "render"]] {
            let came = terminal.run(&[words[0], words[1], shown(&path)]);
            assert!(came.code == 1 && came.err.contains(&format!("{name}:{code}: ")), "{words:?}: {}", came.err);
        }
    }
    // In the folder itself, where the path of a manifest names none.
    let mut command = terminal.command(&["prompt", "render", "main.yaml"]);
    let came = Came::of(command.current_dir(files.path().join("here")).output().unwrap());
    assert_eq!((came.code, came.out.as_str()), (0, "Hello from beside.\n"), "{}", came.err);
}

#[test]
fn a_variable_without_a_value_is_not_set() {
    let terminal = Terminal::offline();
    let variables = ["SERVER", "TOKEN", "PROFILE", "ACTOR", "TENANT", "WORKSPACE", "CONFIG"];
    let mut command = terminal.command(&["workloads", "list"]);
    command.envs(variables.map(|name| (format!("FAIRWAY_CLI_{name}"), "")));
    terminal.done(&["login", "--server", "http://127.0.0.1:9", "--unchecked"]);
    let came = Came::of(command.output().unwrap());
    assert!(came.code == 3 && came.err.contains("http://127.0.0.1:9 cannot be reached"), "{}", came.err);
    let came = terminal.run(&["workloads", "list", "--server", ""]);
    assert!(came.code == 2, "what stands on the command line is meant: {}", came.err);
}
