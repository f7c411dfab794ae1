//! The exit code of a command says whether the server refused it, the command line is wrong, or no server responds.

use crate::Terminal;
use fairway_testkit::TestApp;

#[tokio::test]
async fn exit_codes_distinguish_failures() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app);
    let missing = terminal.run(&["executions", "show", "01890000-0000-7000-8000-000000000000"]);
    assert_eq!(missing.code, 1);
    assert!(missing.err.starts_with("fairway: not_found: ") && missing.err.contains("(request "), "{}", missing.err);
    assert_eq!(terminal.run(&["executions", "shew"]).code, 2);
    assert_eq!(terminal.run(&["run", "x", "--env", "dev", "--wait", "soon"]).code, 2);
    let elsewhere = Terminal::offline().run(&["workloads", "list", "--server", "http://127.0.0.1:9"]);
    assert_eq!(elsewhere.code, 3, "{}", elsewhere.err);
    let in_clear = Terminal::offline().run(&[
        "workloads",
        "list",
        "--server",
        "http://fairway.example.org",
        "--token",
        "secret-token",
    ]);
    assert_eq!(in_clear.code, 2);
    assert!(!in_clear.err.contains("secret-token"), "{}", in_clear.err);
    assert_eq!(terminal.run(&["assets", "show", "nothing"]).code, 1);
}
