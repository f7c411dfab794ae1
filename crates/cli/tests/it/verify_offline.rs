//! `fairway verify` in a network namespace without usable interfaces, which proves that it needs no connection.

use crate::{CommandOutput, Terminal, make_directory, path_text};
use fairway_testkit::TestApp;
use std::process::{Command, Stdio};

/// Runs a command in new user and network namespaces. The new network has only a loopback interface, which is down.
/// Not even a server on this machine is reachable.
fn run_without_network(terminal: &Terminal, args: &[&str]) -> CommandOutput {
    let fairway = terminal.command(args);
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--net", "--"]).arg(fairway.get_program()).args(fairway.get_args());
    unshare.env_clear().env("PATH", "/usr/bin:/bin");
    unshare.envs(fairway.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = unshare.current_dir(fairway.get_current_dir().unwrap()).stdin(Stdio::null()).output();
    CommandOutput::of(output.unwrap_or_else(|error| panic!("this test requires `unshare` of util-linux: {error}")))
}

/// Fails if this machine does not permit the namespaces that the test needs.
fn assert_namespaces_are_allowed() {
    let unshare = Command::new("unshare").args(["--user", "--map-root-user", "--net", "--", "true"]).output();
    let output = unshare.unwrap_or_else(|error| panic!("this test requires `unshare` of util-linux: {error}"));
    assert!(
        output.status.success(),
        "this test cuts the network by a user namespace, which this machine refuses ({}); allow it by \
         `sysctl kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0`, or for a container by \
         `--security-opt seccomp=unconfined`",
        String::from_utf8_lossy(&output.stderr).trim()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_needs_no_network() {
    assert_namespaces_are_allowed();
    let app = TestApp::start().await;
    let slug = app.fixtures().active_workload("main").await.slug;
    let terminal = Terminal::connected(&app);
    let id = terminal.run_ok(&["run", &slug, "--env", "dev", "--input", "ticket=a refund", "--no-wait"]);
    terminal.run_ok(&["executions", "wait", id.trim()]);
    // The command waits until a checkpoint covers the end of the run.
    let bundle = terminal.run_ok(&["evidence", "bundle", id.trim()]);
    let key = terminal.run_json(&["audit", "keys"])[0]["verifier_key"].as_str().unwrap().to_owned();
    let files = make_directory(&[("bundle.json", bundle.trim_end())]);
    let bundle = files.path().join("bundle.json");
    let verify = ["verify", path_text(&bundle), "--key", &key];

    // Control: a command that needs the server succeeds outside the namespace and fails inside.
    let list = ["audit", "keys"];
    terminal.run_ok(&list);
    let isolated = run_without_network(&terminal, &list);
    assert!(isolated.code != 0 && isolated.out.is_empty(), "a server was reachable: {}{}", isolated.out, isolated.err);
    assert!(isolated.err.contains("unreachable"), "{}", isolated.err);

    let verified = run_without_network(&terminal, &verify);
    assert_eq!(verified.code, 0, "{}{}", verified.out, verified.err);
    assert_eq!(verified.out, terminal.run_ok(&verify), "the report is the same with and without a network");
    // A failed check is also detected without a network.
    let refused = run_without_network(&terminal, &["verify", path_text(&bundle)]);
    assert!(refused.code == 1 && refused.err.contains("give a key with --key"), "{}", refused.err);
}
