//! `asset check` and `prompt render` for local files.

use crate::{CommandOutput, Terminal, make_directory, path_text};
use std::{
    io::{ErrorKind, Write as _},
    process::Stdio,
};

const SKILL: &str = "kind: skill\nslug: s\nowner_ref: team:x\ncontent: {}\n";

#[test]
fn reports_all_files_despite_an_unknown_kind() {
    let files =
        make_directory(&[("notes.yaml", "a: 1\n"), ("other.yaml", "kind: skil\ncontent: {}\n"), ("s.yaml", SKILL)]);
    let names = ["notes.yaml", "other.yaml", "s.yaml"].map(|name| files.path().join(name));
    let [notes, other, skill] = names.each_ref().map(path_text);
    let output = Terminal::offline().run(&["asset", "check", notes, other, skill]);
    assert_eq!(output.code, 1, "{}", output.err);
    for line in [
        format!("{notes}:1:1: invalid_asset_kind: the kind is missing from the file and its name"),
        format!("{other}:1:7: invalid_asset_kind: "),
        format!("{skill}:4:10: "),
    ] {
        assert!(output.err.lines().any(|reported| reported.starts_with(&line)), "{line}: {}", output.err);
    }
    let output = Terminal::offline().run(&["asset", "check", "--kind", "skil", skill]);
    assert!(
        output.code == 2 && output.err.contains("possible values: prompt_template") && output.err.contains("'skill'"),
        "the argument itself is invalid: {}",
        output.err
    );
}

#[test]
fn rejects_kind_option_that_differs_from_the_manifest() {
    let terminal = Terminal::offline();
    let (policy, prompt) = ("demo/assets/ticket-policy.yaml", "examples/sync/assets/letters-prompt.yaml");
    for (kind, manifest) in [("policy_bundle", policy), ("prompt_template", prompt)] {
        assert_eq!(terminal.run_ok(&["asset", "check", "--kind", kind, manifest]), "valid\n");
    }
    let output = terminal.run(&["asset", "check", "--kind", "skill", policy]);
    assert_eq!(output.code, 1, "{}", output.err);
    assert!(output.err.starts_with(&format!("{policy}:3:7: invalid_asset_kind: ")), "{}", output.err);
    assert_eq!(output.err.lines().count(), 1, "the kind is the only error: {}", output.err);
}

/// Runs a command with this text on standard input.
fn run_with_stdin(args: &[&str], text: &str) -> CommandOutput {
    let mut command = Terminal::offline().command(args);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that refuses its arguments exits before it reads standard input, so the pipe may be broken.
    match child.stdin.take().unwrap().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => panic!("{error}"),
        Ok(()) | Err(_) => {}
    }
    CommandOutput::of(child.wait_with_output().unwrap())
}

#[test]
fn reads_standard_input_as_dash_and_only_once() {
    let valid = r#"{"name": "s", "description": "\ud83d\ude00", "body": "b"}"#;
    for text in [valid, "name: s\ndescription: d\nbody: b\n"] {
        let output = run_with_stdin(&["asset", "check", "--kind", "skill", "-"], text);
        assert_eq!((output.code, output.out.as_str()), (0, "valid\n"), "{}", output.err);
    }
    let output = run_with_stdin(&["asset", "check", "--kind", "skill", "-"], "name: s\n");
    assert!(output.code == 1 && output.err.starts_with("-:1:1: "), "{}", output.err);
    let output =
        run_with_stdin(&["flow", "validate", "-"], "entry_step: end\nsteps: [{id: end, type: return, output: {}}]\n");
    assert_eq!(output.code, 0, "{}", output.err);
    let run = ["run", "w", "--env", "dev", "--server", "http://127.0.0.1:9", "--inputs"];
    // The command never opens the path of a pipe. It refuses the path and suggests `-`.
    let output = run_with_stdin(&[&run[..], &["/dev/stdin"]].concat(), "a: 1\n");
    assert!(
        output.code == 1 && output.err.contains("file_not_regular") && output.err.contains("`-`"),
        "{}",
        output.err
    );
    let output = run_with_stdin(&[&run[..], &["-", "--input", "b=@-"]].concat(), "a: 1\n");
    assert!(output.code == 1 && output.err.contains("standard input is read once"), "{}", output.err);
    let output = run_with_stdin(&[&run[..], &["-"]].concat(), "a: 1\n");
    assert!(output.code == 3, "the inputs are read, and the server is unreachable: {}", output.err);
}

#[test]
fn inlines_sidecar_texts_into_content() {
    let terminal = Terminal::offline();
    let manifest = "examples/sync/assets/letters-prompt.yaml";
    assert_eq!(terminal.run_ok(&["asset", "check", manifest]), "valid\n");
    let printed = terminal.run_ok(&["prompt", "render", manifest, "--arg", "letter=Where is my parcel?"]);
    assert!(printed.contains("Where is my parcel?"), "{printed}");
    // Arguments have the syntax of run inputs.
    let letter_files = make_directory(&[("letter.txt", "Where are my\ntwo parcels?\n")]);
    let file_argument = format!("letter=@{}", path_text(&letter_files.path().join("letter.txt")));
    for (argument, input, expected) in [
        (file_argument.as_str(), "", "Where are my\ntwo parcels?"),
        ("letter:=\"@home, 5\"", "", "@home, 5"),
        ("letter=@-", "By pipe.\n", "By pipe."),
    ] {
        let printed = run_with_stdin(&["prompt", "render", manifest, "--arg", argument], input);
        assert!(printed.code == 0 && printed.out.contains(expected), "{argument}: {}{}", printed.out, printed.err);
    }
    for argument in ["letter", "letter:=nonsense"] {
        assert_eq!(terminal.run(&["prompt", "render", manifest, "--arg", argument]).code, 2, "{argument}");
    }
    let misspelt = terminal.run(&["prompt", "render", manifest, "--arg", "leter=x"]);
    assert!(misspelt.err.contains("`letter` is missing; `leter` was given instead"), "{}", misspelt.err);

    let manifest = |texts: &str| {
        format!("kind: prompt_template\nslug: p\nowner_ref: team:x\ncontent: {{variables: []}}\ntexts: {texts}\n")
    };
    let (malformed, outside, list) =
        (manifest("{/system_prompt: p.md}"), manifest("{/system_prompt: ../p.md}"), manifest("[p.md]"));
    let files = make_directory(&[
        ("wrong.yaml", &malformed),
        ("apart.yaml", &outside),
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
        for args in [["asset", "check"], ["prompt", "render"]] {
            let output = terminal.run(&[args[0], args[1], path_text(&path)]);
            assert!(output.code == 1 && output.err.contains(&format!("{name}:{code}: ")), "{args:?}: {}", output.err);
        }
    }
    // The path of the manifest contains no folder.
    let mut command = terminal.command(&["prompt", "render", "main.yaml"]);
    let output = CommandOutput::of(command.current_dir(files.path().join("here")).output().unwrap());
    assert_eq!((output.code, output.out.as_str()), (0, "Hello from beside.\n"), "{}", output.err);
}

#[test]
fn treats_empty_environment_variables_as_unset() {
    let terminal = Terminal::offline();
    let variables = ["SERVER", "TOKEN", "PROFILE", "ACTOR", "TENANT", "WORKSPACE", "CONFIG"];
    let mut command = terminal.command(&["workloads", "list"]);
    command.envs(variables.map(|name| (format!("FAIRWAY_CLI_{name}"), "")));
    terminal.run_ok(&["login", "--server", "http://127.0.0.1:9", "--unchecked"]);
    let output = CommandOutput::of(command.output().unwrap());
    assert!(output.code == 3 && output.err.contains("http://127.0.0.1:9 cannot be reached"), "{}", output.err);
    assert!(output.err.contains("the address is from the profile: start the server"), "{}", output.err);
    let output = terminal.run(&["login", "--server", "http://127.0.0.1:9"]);
    assert!(output.code == 3 && output.err.contains("the address is from `--server`"), "{}", output.err);
    let output = terminal.run(&["workloads", "list", "--server", ""]);
    assert!(output.code == 2, "an explicit empty argument is invalid: {}", output.err);
}
