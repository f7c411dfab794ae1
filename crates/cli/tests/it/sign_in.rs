//! Sign-in of the command line at an identity provider: people with a device code, pipelines with client credentials.

use crate::Terminal;
use fairway_testkit::{ACCESS_TOKEN_AUDIENCE, COMMAND_LINE_CLIENT_ID, PIPELINE_CREDENTIALS, TestApp, TestIssuer};
use serde_json::json;
use std::{fs, os::unix::fs::PermissionsExt as _, process::Stdio};

async fn server(issuer: &TestIssuer) -> TestApp {
    TestApp::builder().oidc(issuer).setting("FAIRWAY_OIDC_CLI_CLIENT_ID", COMMAND_LINE_CLIENT_ID).start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn person_signs_in_by_code_and_the_token_is_renewed_once() {
    let issuer = TestIssuer::start().await.unwrap();
    let app = server(&issuer).await;
    let terminal = Terminal::connected(&app);
    let output = terminal.run(&["login"]);
    assert_eq!(output.code, 0, "{}{}", output.out, output.err);
    assert!(output.err.contains("/activate?user_code=WDJB-MJHT"), "{}", output.err);
    assert!(output.err.contains("WDJB-MJHT"), "{}", output.err);
    let mode = fs::metadata(terminal.config()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the file holds tokens");
    assert_eq!(terminal.run_json(&["whoami"])["actor"], "user:ada");
    assert_eq!(issuer.cli_refresh_token_count(), 1, "a valid token is not renewed");
    // These tokens expire at once. Concurrent commands share one renewal, because a refresh token can be used once.
    issuer.set_announced_cli_token_lifetime(0);
    terminal.run_ok(&["login"]);
    issuer.set_announced_cli_token_lifetime(600);
    let spawn = || {
        terminal.command(&["whoami", "--output", "json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..4).map(|_| spawn()).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(issuer.cli_refresh_token_count(), 3);
    // The client never sends the token to another server.
    let other = TestApp::start().await;
    let other_address = format!("http://{}", other.address());
    assert_eq!(terminal.run_json(&["whoami", "--server", &other_address])["actor"], "user:local");
}

#[tokio::test(flavor = "multi_thread")]
async fn logout_revokes_and_deletes_the_tokens() {
    let issuer = TestIssuer::start().await.unwrap();
    let app = server(&issuer).await;
    let terminal = Terminal::connected(&app);
    terminal.run_ok(&["login"]);
    terminal.run_ok(&["logout"]);
    assert_eq!(issuer.tokens_revoked_by_cli(), ["refresh-1"]);
    let stored = fs::read_to_string(terminal.config()).unwrap();
    assert!(!stored.contains("token") && !stored.contains("refresh-1"), "{stored}");
    let output = terminal.run(&["workloads", "list"]);
    assert_eq!(output.code, 1, "{}{}", output.out, output.err);
    assert!(terminal.run_ok(&["logout"]).contains("has no token"));
    // If the provider is unavailable, the command still deletes the local token. It reports that the provider did
    // not confirm the revocation.
    terminal.run_ok(&["login"]);
    drop(issuer);
    let output = terminal.run(&["logout"]);
    assert_eq!(output.code, 3, "{}{}", output.out, output.err);
    assert!(!fs::read_to_string(terminal.config()).unwrap().contains("token"));
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_and_ended_sign_ins_name_the_next_command() {
    let issuer = TestIssuer::start().await.unwrap();
    let app = server(&issuer).await;
    let terminal = Terminal::connected(&app);
    issuer.refuse_device_sign_in();
    let output = terminal.run(&["login"]);
    assert_eq!(output.code, 1, "{}{}", output.out, output.err);
    assert!(output.err.contains("access_denied"), "{}", output.err);
    assert!(!terminal.config().exists(), "nothing is stored");
    let issuer = TestIssuer::start().await.unwrap();
    let app = server(&issuer).await;
    let terminal = Terminal::connected(&app);
    issuer.set_announced_cli_token_lifetime(0);
    terminal.run_ok(&["login"]);
    issuer.refuse_refresh();
    let output = terminal.run(&["whoami"]);
    assert_eq!(output.code, 1, "{}{}", output.out, output.err);
    assert!(output.err.contains("fairway login"), "{}", output.err);
    // This server has no client id for the command line.
    let app = TestApp::builder().oidc(&issuer).start().await;
    let output = Terminal::connected(&app).run(&["login"]);
    assert_eq!(output.code, 2, "{}{}", output.out, output.err);
    assert!(output.err.contains("FAIRWAY_OIDC_CLI_CLIENT_ID"), "{}", output.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoami_says_that_a_setting_makes_an_administrator() {
    let issuer = TestIssuer::start().await.unwrap();
    let app = server(&issuer).await;
    let terminal = Terminal::connected(&app);
    let run = |name: &str| terminal.run(&["whoami", "--token", &issuer.person_token(name, &[])]);
    let (root, ada) = (run("root"), run("ada"));
    assert!(root.code == 0 && root.out.contains("bootstrap_admins"), "{}{}", root.out, root.err);
    assert!(root.err.contains("FAIRWAY_BOOTSTRAP_ADMINS"), "{}", root.err);
    assert!(ada.code == 0 && !ada.out.contains("bootstrap"), "{}", ada.out);
    assert!(!ada.err.contains("BOOTSTRAP"), "{}", ada.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn people_and_pipelines_choose_one_of_several_issuers() {
    let (first, second) = (TestIssuer::start().await.unwrap(), TestIssuer::start().await.unwrap());
    // Both issuers have a user `ada`, who is a different person at each. The second issuer therefore names people by
    // their subject.
    let table = format!(
        "[[issuers]]\nissuer = \"{}\"\nname = \"Partners\"\n\
         audience = \"{ACCESS_TOKEN_AUDIENCE}\"\nuser_claim = \"sub\"\n\
         cli_client_id = \"{COMMAND_LINE_CLIENT_ID}\"",
        second.url()
    );
    let start = || TestApp::builder().oidc(&first).config_file(table.clone());
    // If the person chooses no issuer, the command uses the issuer that has a client for the command line.
    let app = start().start().await;
    Terminal::connected(&app).run_ok(&["login"]);
    assert_eq!((first.cli_refresh_token_count(), second.cli_refresh_token_count()), (0, 1));
    let app = start().setting("FAIRWAY_OIDC_CLI_CLIENT_ID", COMMAND_LINE_CLIENT_ID).start().await;
    let settings = app.get("/v1/sign-in").await.expect(200);
    assert_eq!(
        (&settings["issuer"], &settings["cli_client_id"]),
        (&json!(first.url()), &json!(COMMAND_LINE_CLIENT_ID))
    );
    assert_eq!(settings["issuers"][1]["name"], "Partners", "{settings}");
    let terminal = Terminal::connected(&app);
    terminal.run_ok(&["login"]);
    assert_eq!((first.cli_refresh_token_count(), second.cli_refresh_token_count()), (1, 1));
    terminal.run_ok(&["login", "--issuer", &second.url()]);
    terminal.run_ok(&["login", "--issuer", "Partners"]);
    assert_eq!((first.cli_refresh_token_count(), second.cli_refresh_token_count()), (1, 3));
    assert_eq!(terminal.run_json(&["whoami"])["actor"], "user:1");
    let output = terminal.run(&["login", "--issuer", "https://stranger.example"]);
    assert_eq!(output.code, 2, "{}{}", output.out, output.err);
    assert!(output.err.contains(&second.url()) && !output.err.contains("stranger"), "{}", output.err);
    let output = terminal.run(&["login", "--issuer", "Partners", "--token-stdin"]);
    assert_eq!(output.code, 2, "{}{}", output.out, output.err);
    let local = TestApp::start().await;
    let output = Terminal::connected(&local).run(&["login", "--issuer", "Partners"]);
    assert!(output.code == 2 && output.err.contains("local mode"), "{}{}", output.out, output.err);
    // This pipeline has credentials of the second issuer.
    let [client, secret] = PIPELINE_CREDENTIALS;
    let token_requests = || (first.token_request_count(), second.token_request_count());
    let before = token_requests();
    let mut command = terminal.command(&["whoami", "--output", "json"]);
    command.env("FAIRWAY_CLIENT_ID", client).env("FAIRWAY_CLIENT_SECRET", secret);
    let output = command.env("FAIRWAY_CLIENT_ISSUER", second.url()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(token_requests(), (before.0, before.1 + 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn pipeline_acts_as_its_service_without_a_file() {
    let issuer = TestIssuer::start().await.unwrap();
    let app = server(&issuer).await;
    let terminal = Terminal::connected(&app);
    let [client, secret] = PIPELINE_CREDENTIALS;
    let run = |secret: &str| {
        let mut command = terminal.command(&["whoami", "--output", "json"]);
        let output = command.env("FAIRWAY_CLIENT_ID", client).env("FAIRWAY_CLIENT_SECRET", secret).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, out, err) = run(secret);
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&out).unwrap()["actor"], json!("service:ci"));
    assert!(!terminal.config().exists());
    // The environment variables take precedence over the token of a person who signed in on the same machine.
    terminal.run_ok(&["login"]);
    let (_, out, err) = run(secret);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&out).unwrap()["actor"], json!("service:ci"), "{err}");
    assert_eq!(terminal.run_json(&["whoami"])["actor"], "user:ada");
    let (code, _, err) = run("wrong");
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("invalid_client") && !err.contains("wrong"), "{err}");
    let mut command = terminal.command(&["whoami"]);
    assert_eq!(command.env("FAIRWAY_CLIENT_ID", client).output().unwrap().status.code(), Some(2));
}
