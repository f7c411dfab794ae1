//! Runs the commands of the guide's chapters about the command line.

use crate::{Terminal, root};
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse, SmtpServer, TestApp};
use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

/// Maximum number of lines of a guide chapter.
const MAX_LINES: usize = 150;

/// The chapters in reading order, each with texts that its output must contain. Chapters that share a shell are
/// listed together.
const CHAPTERS: [(&[&str], &[&str]); 11] = [
    (
        &["first-answer.md"],
        &["user:ada", "2 tests, 0 failed", "refused with 1", "praise", "too_long", "# policy_decision"],
    ),
    (&["content.md"], &["refused with 1", "mail-tone", "in short sentences", "order\n"]),
    (
        &["evidence.md"],
        &[
            "write to [email]",
            "matched rules keep-what-is-said, tell-the-owner",
            "# evidence_artifacts",
            "execution.ended",
        ],
    ),
    (
        &["verify.md"],
        &[
            "pass  approval in the log",
            "This bundle shows:",
            "refused with 1",
            "one byte differs",
            "FAIL  signature of the envelope",
            "FAIL  approval in the log",
            "approved by user:grade at",
            "approved by user:grace at",
            "deploy",
        ],
    ),
    (&["rollout.md"], &["restricted", "failed with 1", "prompt_argument_missing", "release.rolled_back", "completed"]),
    (&["share-links.md"], &["refused with 1", "/workload-runtime/letterbox?token=fws_", "For Tina", "Hello!"]),
    (
        &["use-cases.md"],
        &[
            "asked with 1",
            "? connection crm",
            "refused with 1",
            "pending_access",
            "granted",
            "unchecked",
            "review_ready",
            "policy_decision",
            "use_case.published",
        ],
    ),
    (
        &["notifications.md"],
        &[
            "fallback",
            "webhook",
            "response_status",
            "250",
            "was suspended",
            "sent",
            "incidents",
            "the record is that of the log",
        ],
    ),
    (&["waiting.md"], &["sorry", "thanks", "refused with 1"]),
    (&["documents.md"], &["thirty days of leave a year. [leave", "people-handbook", "failed with 1", "route_refused"]),
    (
        &["cli.md", "sync.md"],
        &[
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
        ],
    ),
];

fn read(chapter: &str) -> String {
    std::fs::read_to_string(root().join("docs/guide").join(chapter)).unwrap()
}

/// The commands of all given chapters, in order.
fn commands(chapters: &[&str]) -> String {
    let text: String = chapters.iter().map(|chapter| read(chapter)).collect();
    let mut script = String::new();
    let mut is_in_block = false;
    for line in text.lines() {
        match (is_in_block, line) {
            (false, "```sh") => is_in_block = true,
            (true, "```") => is_in_block = false,
            (true, command) => {
                script.push_str(command);
                script.push('\n');
            }
            (false, _) => {}
        }
    }
    script
}

// The test is multi-threaded: the webhook receiver must respond while the test waits for the shell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guide_commands_succeed() {
    let receiver = ScriptedEndpoint::start().await;
    receiver.respond_with(ScriptedResponse::status(204, ""));
    let smtp = SmtpServer::start().unwrap();
    let secrets = tempfile::tempdir().unwrap();
    std::fs::create_dir(secrets.path().join("default")).unwrap();
    let key = "whsec_YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=";
    std::fs::write(secrets.path().join("default/hook"), key).unwrap();
    let app = TestApp::builder()
        .setting("FAIRWAY_EGRESS_ALLOW", "127.0.0.0/8")
        .setting("FAIRWAY_SECRETS_DIR", secrets.path().to_str().unwrap())
        .setting("FAIRWAY_SMTP_URL", smtp.url())
        .setting("FAIRWAY_MAIL_FROM", "Fairway <fairway@example.com>")
        .start()
        .await;
    let terminal = Terminal::offline();
    let binary_directory = Path::new(env!("CARGO_BIN_EXE_fairway")).parent().unwrap().to_owned();
    let inherited_path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(std::iter::once(binary_directory).chain(env::split_paths(&inherited_path))).unwrap();
    for (chapters, expected_texts) in CHAPTERS {
        let mut shell = Command::new("bash");
        shell
            .args(["-euc", &commands(chapters)])
            .current_dir(root())
            .env("PATH", &path)
            .env("HOME", terminal.home.path());
        shell.env("XDG_CONFIG_HOME", terminal.home.path());
        shell.env("FAIRWAY_CLI_SERVER", format!("http://{}", app.address()));
        shell.env("HOOK_URL", receiver.url("/in"));
        let output = shell.stdin(Stdio::null()).output().unwrap();
        let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{chapters:?}: {printed}\n{errors}");
        for text in expected_texts {
            assert!(printed.contains(text), "{chapters:?} shows {text}: {printed}\n{errors}");
        }
    }
    assert_eq!(smtp.wait_for_mails(1).await[0].to, ["oncall@example.org"]);
    assert!(receiver.request_count() >= 2, "a test and a delivery");
}

#[test]
fn chapters_can_be_pasted_into_a_terminal() {
    for chapter in CHAPTERS.iter().flat_map(|(chapters, _)| *chapters) {
        let (text, script) = (read(chapter), commands(&[chapter]));
        assert!(text.lines().count() <= MAX_LINES, "{chapter} has more than {MAX_LINES} lines");
        // The commands must suit the reader's terminal: a failure must not end it. Nothing may hide commands, such as a
        // function or a script in another language.
        for forbidden in ["set -e", "() {", "curl", "python3", "exit "] {
            assert!(!script.contains(forbidden), "{chapter} contains `{forbidden}`");
        }
    }
}

#[test]
fn guide_mentions_every_command() {
    let text: String = CHAPTERS.iter().flat_map(|(chapters, _)| *chapters).map(|chapter| read(chapter)).collect();
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
