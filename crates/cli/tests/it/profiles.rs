//! Profiles that `fairway login` stores: permissions of their file, the default profile, the stored identity, and
//! the environment and workspace of a profile.

use crate::{
    CommandOutput, Terminal, make_directory, path_text,
    sample_resources::{BOUND, create_contents, create_workload},
};
use fairway_testkit::TestApp;
use serde_json::Value;
use std::{io::Write as _, os::unix::fs::PermissionsExt as _, process::Stdio};

#[tokio::test]
async fn profile_file_is_readable_by_its_owner_only() {
    let app = TestApp::start().await;
    let address = format!("http://{}", app.address());
    let terminal = Terminal::offline();
    let refused = terminal.run(&["login", "--server", "http://127.0.0.1:9"]);
    assert!(
        refused.code == 3 && !terminal.config().exists(),
        "a profile is stored only after a successful request: {}",
        refused.err
    );
    let login = ["login", "--profile", "by-token", "--server", &address, "--token-stdin"];
    let mut child = terminal.command(&login).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"the-token\n").unwrap();
    let output = CommandOutput::of(child.wait_with_output().unwrap());
    assert!(output.code == 0 && !output.out.contains("the-token"), "{}{}", output.out, output.err);
    assert!(std::fs::read_to_string(terminal.config()).unwrap().contains("token = \"the-token\""));
    terminal.run_ok(&["login", "--server", &address, "--actor", "user:ada", "--output", "json"]);
    let listed = terminal.run_ok(&["workloads", "list", "--profile", "default"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert!(listed.is_array(), "the profile stores server, actor and output");

    terminal.run_ok(&[
        "login",
        "--profile",
        "far",
        "--server",
        "https://fairway.example.org",
        "--token",
        "far-token",
        "--unchecked",
    ]);
    let mode = std::fs::metadata(terminal.config()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(terminal.config()).unwrap();
    assert!(text.contains("far-token") && text.contains("user:ada"), "{text}");
    std::fs::set_permissions(terminal.config(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = terminal.run(&["workloads", "list"]);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("chmod 600") && !refused.err.contains("far-token"), "{}", refused.err);
    std::fs::set_permissions(terminal.config(), std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(terminal.run(&["workloads", "list", "--profile", "none"]).code, 2);
    std::fs::write(terminal.config(), "profile = [").unwrap();
    assert_eq!(terminal.run(&["workloads", "list"]).code, 2);
}

/// A login makes its profile the default. A login with `--server` and without `--profile` does not overwrite a named
/// profile.
#[tokio::test]
async fn login_sets_the_default_profile() {
    let app = TestApp::start().await;
    let (address, terminal) = (format!("http://{}", app.address()), Terminal::offline());
    let files = make_directory(&[("style.yaml", "{name: style, description: How, body: Be brief.}\n")]);
    let style = files.path().join("style.yaml");
    // Creates an asset, and returns the actor that created its version.
    let version_author = |slug: &str| {
        terminal.run_ok(&["assets", "create", slug, "--kind", "skill", "--owner", "team:sorting", path_text(&style)]);
        terminal.run_json(&["assets", "versions", slug])[0]["created_by"].as_str().unwrap().to_owned()
    };
    for name in ["ada", "grace"] {
        let actor = format!("user:{name}");
        let printed = terminal.run_ok(&["login", "--profile", name, "--server", &address, "--actor", &actor]);
        let expected = format!("profile `{name}` uses {address} and is now the default; saved in ");
        assert!(printed.starts_with(&expected), "{printed}");
        assert_eq!(version_author(name), actor);
    }
    let printed = terminal.run_ok(&["login", "--actor", "user:grace-hopper"]);
    assert!(printed.starts_with("profile `grace` uses"), "the default profile is updated: {printed}");
    assert_eq!(version_author("renewed"), "user:grace-hopper");
    let printed = terminal.run_ok(&["login", "--server", &address, "--actor", "user:eve"]);
    assert!(printed.starts_with("profile `default` uses"), "{printed}");
    assert_eq!(version_author("other"), "user:eve");
    let stored = std::fs::read_to_string(terminal.config()).unwrap();
    assert!(stored.contains("user:ada") && stored.contains("user:grace-hopper"), "{stored}");
}

#[test]
fn login_to_another_server_drops_the_identity() {
    let terminal = Terminal::offline();
    for name in ["", " ", "a\u{1b}[31m", "two\nlines", "\u{202e}ada"] {
        let output = terminal.run(&["login", "--profile", name, "--unchecked"]);
        assert!(output.code == 2 && !terminal.config().exists(), "{name:?}: {}", output.err);
    }
    let login = |args: &[&str]| {
        terminal.run_ok(&[&["login", "--unchecked", "--profile", "ada"][..], args].concat());
        std::fs::read_to_string(terminal.config()).unwrap()
    };
    let identity =
        ["--actor", "user:ada", "--tenant", "acme", "--workspace", "main", "--token", "a-token", "-o", "yaml"];
    let server = ["--server", "https://one.example.org"];
    login(&[&server[..], &identity].concat());
    let stored = login(&server);
    assert!(["user:ada", "acme", "main", "a-token"].iter().all(|printed| stored.contains(printed)), "{stored}");
    let stored = login(&["--server", "https://two.example.org"]);
    assert!(["user:ada", "acme", "main", "a-token"].iter().all(|printed| !stored.contains(printed)), "{stored}");
    assert!(stored.contains("https://two.example.org") && stored.contains("yaml"), "the output format stays: {stored}");
}

#[tokio::test]
async fn profile_selects_environment_and_workspace() {
    let app = TestApp::start().await;
    create_workload(&app).await;
    let (ada, _) = create_contents(&app);
    let missing = ada.run(&["releases", "lanes", "sorter"]);
    assert!(missing.code == 2 && missing.err.contains("fairway login --env"), "{}", missing.err);
    ada.run_ok(&["login", "--env", "dev", "--workspace", "default"]);
    let stored = std::fs::read_to_string(ada.config()).unwrap();
    assert!(stored.contains("environment = \"dev\"") && stored.contains("workspace = \"default\""), "{stored}");
    let release = ada.run_json(&[&["releases", "create", "sorter"], &BOUND[..]].concat());
    assert_eq!(release["environment"], "dev");
    let release = ada.run_json(&[&["releases", "create", "sorter", "--env", "staging"], &BOUND[..]].concat());
    assert_eq!(release["environment"], "staging", "an option takes precedence");
    assert_eq!(ada.run_json(&["environments", "show"])["environment"], "dev");
    let refused = ada.run(&["run", "sorter", "--input", "text=x"]);
    assert!(refused.code == 1 && refused.err.contains("no_active_release"), "{}", refused.err);
}
