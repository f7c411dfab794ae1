//! Runs the commands of the guide's chapters on the command line.

use crate::{Terminal, root};
use fairway_testkit::TestApp;
use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

/// The text of the chapters.
fn chapters() -> String {
    let read = |name: &str| std::fs::read_to_string(root().join("docs/guide").join(name)).unwrap();
    ["cli.md", "sync.md"].map(read).concat()
}

/// All commands of the chapters in order.
fn commands() -> String {
    let text = chapters();
    let mut script = String::new();
    let mut inside = false;
    for line in text.lines() {
        match (inside, line) {
            (false, "```sh") => inside = true,
            (true, "```") => inside = false,
            (true, command) => {
                script.push_str(command);
                script.push('\n');
            }
            (false, _) => {}
        }
    }
    script
}

#[tokio::test]
async fn guide_commands_succeed() {
    let app = TestApp::start().await;
    let home = Terminal::offline();
    let beside = Path::new(env!("CARGO_BIN_EXE_fairway")).parent().unwrap().to_owned();
    let callers = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(std::iter::once(beside).chain(env::split_paths(&callers))).unwrap();
    let mut shell = Command::new("bash");
    shell.args(["-euc", &commands()]).current_dir(root()).env("PATH", path).env("HOME", home.home.path());
    shell.env("XDG_CONFIG_HOME", home.home.path()).env("FAIRWAY", format!("http://{}", app.address()));
    let output = shell.stdin(Stdio::null()).output().unwrap();
    let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}\n{errors}");
    for words in [
        "refused with 1",
        "user:grace at http",
        "1 bundles, 3 tests, 0 failed; 2 of 2 rules matched",
        "+ short-questions: holds, allow (short_question)",
        "can approve: ",
        "/workload-runtime/guide-desk?token=fws_",
        "advice: no rollback",
        "+ release of letters for dev is drafted",
        "in sync",
        "complaint",
        "flowchart LR",
        "execution.ended",
    ] {
        assert!(printed.contains(words), "the chapter shows {words}: {printed}\n{errors}");
    }
}

#[test]
fn guide_mentions_every_command() {
    let text = chapters();
    let help = Terminal::offline().run_ok(&["--help"]);
    let commands = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let names: Vec<&str> = commands
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty())
        .collect();
    assert!(names.len() > 10, "{help}");
    for name in names.into_iter().filter(|name| !["help"].contains(name)) {
        assert!(text.contains(&format!("fairway {name}")), "the chapter does not mention `{name}`");
    }
}
