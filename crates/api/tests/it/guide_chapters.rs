//! Runs the commands of the guide's chapters, as a reader does.

use fairway_sandbox::EmbeddedGateway;
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse, TestApp, unused_address};
use serde_json::json;
use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Arc,
};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The chapters in reading order, each with texts that its output must contain.
const CHAPTERS: [(&str, &[&str]); 4] = [
    (
        "http.md",
        &[
            "approval_required",
            "praise",
            "active_environments",
            "policy_decision",
            "evidence_artifacts",
            "share_link:",
            "share_token_exhausted",
            "share_token_revoked",
            "429",
        ],
    ),
    (
        "connect-your-model.md",
        &[
            "my-model: model `gpt-5-mini` answered in ",
            "refused with 1",
            "user:grace",
            "A fairway is the mown part of a golf course.",
        ],
    ),
    ("code.md", &["execution.code_accepted", "script_too_clever", "forbidden_field", "1 < 2 < 3"]),
    ("tools.md", &["there is a porter\nsuccess a letter\nTrue missing\nrun ", "night-porter\ncross_site_request"]),
];

/// The environment variable with a Python interpreter that has the official MCP client. The environment of the model
/// gateway contains this client.
const MCP_PYTHON_VARIABLE: &str = "FAIRWAY_TEST_GATEWAY_PYTHON";

/// The commands of the `sh` blocks of a chapter, in order.
fn extract_commands(chapter: &Path) -> String {
    let text = fs::read_to_string(chapter).unwrap();
    let mut script = String::new();
    let mut in_block = false;
    for line in text.lines() {
        match (in_block, line) {
            (false, "```sh") => in_block = true,
            (true, "```") => in_block = false,
            (true, command) => {
                script.push_str(command);
                script.push('\n');
            }
            (false, _) => {}
        }
    }
    assert!(!script.is_empty(), "{} has no commands", chapter.display());
    script
}

/// `PATH`, with the folders of the Python interpreter and of the command line first. A chapter starts Python a
/// hundred times, and the interpreter itself starts faster than a version manager's shim.
fn search_path() -> OsString {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    let python = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
    let inherited = env::var_os("PATH").unwrap_or_default();
    // `cargo xtask test` builds the command line `fairway` into the folder of the server.
    let programs = Path::new(env!("CARGO_BIN_EXE_fairway-server")).parent().unwrap().to_owned();
    let directories = python.parent().map(Path::to_owned).into_iter().chain([programs]);
    let folders = directories.chain(env::split_paths(&inherited));
    env::join_paths(folders).unwrap()
}

/// Runs a script in one shell in the repository's root, with `settings` as environment variables.
fn run_script(script: &str, settings: &[(&str, String)]) -> Output {
    let mut shell = Command::new("bash");
    shell.args(["-euc", script]).current_dir(ROOT).env("SERVER", env!("CARGO_BIN_EXE_fairway-server"));
    shell.env("PATH", search_path()).envs(settings.iter().map(|(name, value)| (name, value))).output().unwrap()
}

/// All chapters share one server, as they do for a reader, so their names must not collide.
#[tokio::test]
async fn every_chapter_of_the_guide_runs() {
    let guide = Path::new(ROOT).join("docs/guide");
    let gateway = EmbeddedGateway::with_program(env!("CARGO_BIN_EXE_fairway-server").into());
    let model = ScriptedEndpoint::start().await;
    let message = json!({ "content": "A fairway is the mown part of a golf course." });
    model.respond_with(ScriptedResponse::json(&json!({ "choices": [{ "message": message }] })));
    // The provider account that the chapter `connect-your-model.md` configures. The chapter's shell holds the key of
    // the account.
    let account =
        format!("[[providers]]\naccount_slot = \"my-model\"\nkind = \"openai\"\nbase_url = \"{}\"\n", model.url("/v1"));
    let app = TestApp::builder().gateway(Arc::new(gateway)).config_file(account).start().await;
    let settings = [
        ("BASE_URL", model.url("/v1")),
        ("SETTINGS", app.data_dir().join("guide.toml").display().to_string()),
        ("OPENAI_API_KEY", "sk-of-the-guide".to_owned()),
        ("FAIRWAY", format!("http://{}", app.address())),
        ("FAIRWAY_CLI_SERVER", format!("http://{}", app.address())),
        ("HOME", app.data_dir().display().to_string()),
        ("XDG_CONFIG_HOME", app.data_dir().display().to_string()),
        ("FAIRWAY_DATABASE_URL", app.database().url_for_owner()),
        ("FAIRWAY_DATA_DIR", app.data_dir().display().to_string()),
        ("MCP_PYTHON", env::var(MCP_PYTHON_VARIABLE).expect("run the tests by `cargo xtask test`")),
    ];
    let files = fs::read_dir(&guide).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    // Other tests run these chapters: `crates/cli/tests/it/guide.rs` those on the command line, and the browser
    // tests those on pages.
    let tested_elsewhere = [
        "cli.md",
        "console.md",
        "content.md",
        "documents.md",
        "evidence.md",
        "first-answer.md",
        "notifications.md",
        "pictures",
        "rollout.md",
        "runtime-pages.md",
        "share-links.md",
        "sync.md",
        "use-cases.md",
        "verify.md",
        "waiting.md",
    ];
    let mut files: Vec<String> = files.filter(|file| !tested_elsewhere.contains(&file.as_str())).collect();
    files.sort_by_key(|file| CHAPTERS.iter().position(|(chapter, _)| chapter == file));
    assert_eq!(files, CHAPTERS.map(|(chapter, _)| chapter), "every chapter is listed");
    for (chapter, expected_output) in CHAPTERS {
        let (script, settings) = (extract_commands(&guide.join(chapter)), settings.clone());
        let output = tokio::task::spawn_blocking(move || run_script(&script, &settings)).await.unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{chapter}: {stdout}\n{stderr}");
        for words in expected_output {
            assert!(stdout.contains(words), "{chapter} shows {words}: {stdout}");
        }
    }
    let keys: Vec<_> =
        model.requests().iter().map(|request| request.header("authorization").map(str::to_owned)).collect();
    assert_eq!(keys, [Some("Bearer sk-of-the-guide".to_owned()), None], "the check has the key, the test server none");
}

#[tokio::test]
async fn two_servers_and_three_workers_share_one_database() {
    let app = TestApp::builder().without_worker().start().await;
    let workload = app.active_workload("letters").await;
    let slug = workload.execute_path().split('/').nth(4).unwrap().to_owned();
    let script = extract_commands(&Path::new(ROOT).join("docs/operations/scaling.md"));
    let settings = [
        ("PORTS", format!("{} {}", unused_address().unwrap().port(), unused_address().unwrap().port())),
        ("WORKLOAD", slug),
        ("FAIRWAY_DATABASE_URL", app.database().url_for_owner()),
        ("FAIRWAY_DATA_DIR", app.data_dir().display().to_string()),
        ("FAIRWAY_WAITING_LINE", "10000".to_owned()),
    ];
    let output = tokio::task::spawn_blocking(move || run_script(&script, &settings)).await.unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(stdout.contains("step.completed\n") && stdout.ends_with("execution.completed\n"), "{stdout}\n{stderr}");
}
