//! The permissions that `sync plan`, `sync status` and `sync pull` require.

use crate::{Terminal, make_directory, path_text};
use fairway_testkit::TestApp;

const WORKSPACE: &str = "00000000-0000-7000-8000-000000000003";

/// The guide lets pull requests use the token of a `viewer`, so planning must need no other permission.
#[tokio::test]
async fn plan_needs_only_viewer_permissions() {
    let app = TestApp::start().await;
    let author = Terminal::connected(&app).acting_as("user:ada");
    author.run_ok(&["sync", "apply", "examples/sync"]);
    app.fixtures().ticket_prompt("forgotten").await;
    app.fixtures().bind_role("service:ci", "viewer", "workspace", Some(WORKSPACE)).await;
    let viewer = Terminal::connected(&app).acting_as("service:ci");
    for args in [vec!["sync", "plan", "examples/sync"], vec!["sync", "plan", "examples/sync", "--prune"]] {
        assert_eq!(viewer.run_ok(&args), author.run_ok(&args));
    }
    assert_eq!(viewer.run_ok(&["sync", "status", "examples/sync"]), "in sync\n");
    let pulled = viewer.home.path().join("pulled");
    viewer.run_ok(&["sync", "pull", path_text(&pulled)]);
    let new_directory = make_directory(&[("workloads/w.yaml", "slug: w\nowner_ref: team:x\ninvocation_mode: form\n")]);
    viewer.run_ok(&["sync", "plan", path_text(new_directory.path())]);
    let output = viewer.run(&["sync", "apply", path_text(new_directory.path())]);
    assert!(output.code == 1 && output.err.contains("forbidden"), "{}", output.err);
    let refused = viewer.run(&["workloads", "suspend", "letters"]);
    assert!(refused.err.contains("forbidden: ") && refused.err.contains("the actor is service:ci"), "{}", refused.err);
    assert!(refused.err.contains("`fairway role-bindings create service:ci ROLE`"), "{}", refused.err);
}
