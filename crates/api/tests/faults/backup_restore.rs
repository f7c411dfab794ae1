//! Backup and restore. The test executes the commands of `docs/operations/backup.md`, which dump an installation and
//! restore it on another cluster. The restored data must equal the original data.

use crate::{api_client::execute_body, server_process::ServerSetup};
use fairway_managed_postgres::{Binaries, ManagedServer, state_directories};
use fairway_testkit::TestDatabase;
use serde_json::Value;
use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use tokio_postgres::Config;

/// The code blocks of one language in a chapter of `docs/operations`.
fn code_blocks(chapter: &str, language: &str) -> Vec<String> {
    let path = format!("{}/../../docs/operations/{chapter}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    let mut blocks = Vec::new();
    let mut block: Option<String> = None;
    for line in text.lines() {
        let line = line.trim_start();
        match (&mut block, line) {
            (None, _) if line == format!("```{language}") => block = Some(String::new()),
            (Some(_), "```") => blocks.extend(block.take()),
            (Some(block), line) => *block += &format!("{line}\n"),
            (None, _) => {}
        }
    }
    blocks
}

/// `PATH`, prefixed with the directories of PostgreSQL's programs and of the server.
fn search_path(binaries: &Binaries) -> OsString {
    let server = PathBuf::from(env!("CARGO_BIN_EXE_fairway-server"));
    let folders = [binaries.directory().to_owned(), server.parent().unwrap().to_owned()];
    let inherited = env::var_os("PATH").unwrap();
    env::join_paths(folders.into_iter().chain(env::split_paths(&inherited))).unwrap()
}

#[track_caller]
fn run_command(mut command: Command) -> String {
    let output = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

fn copy(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    command.arg("-a").arg(from).arg(to);
    run_command(command);
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one scenario, read from its start to its end")]
async fn documented_backup_restores_all_data() {
    let database = TestDatabase::create().await.unwrap();
    let setup = ServerSetup::new(&database.url_for_owner());
    let server = setup.start().await;
    let execute = server.client.create_active_workload().await;
    let original_run = server.client.post(&execute, &execute_body(), Some("before-the-dump")).await.unwrap();
    assert_eq!(original_run.status, 200, "{original_run:?}");
    let evidence = format!("/v1/executions/{}/evidence-graph", original_run.required_id("execution_id"));
    let before = server.client.get(&evidence).await.unwrap();
    assert_eq!(before.status, 200, "{before:?}");

    let binaries = Binaries::find(&state_directories::directory().unwrap()).unwrap();
    let path = search_path(&binaries);
    let work_dir = tempfile::tempdir().unwrap();
    let shell = |script: &str| {
        let mut command = Command::new("bash");
        command.args(["-euc", script]).current_dir(work_dir.path()).env("PATH", &path);
        command
    };
    let chapter = code_blocks("backup.md", "sh");
    let [dump, restore, verify] = chapter.as_slice() else {
        panic!("the chapter must have three `sh` blocks: {chapter:?}")
    };
    let mut dump_command = shell(dump);
    dump_command.env("FAIRWAY_MIGRATE_DATABASE_URL", database.url_for_owner());
    run_command(dump_command);
    copy(&setup.artifacts_dir(), &work_dir.path().join("artifacts"));
    // This run starts after the dump, so the dump does not contain it.
    server.client.post(&execute, &execute_body(), Some("behind-the-dump")).await.unwrap();

    let cluster = ManagedServer::start_temporary(binaries, Vec::new()).unwrap();
    let superuser: Config = cluster.url("postgres").parse().unwrap();
    let for_cluster = |mut command: Command| {
        let password = superuser.get_password().map(|password| String::from_utf8_lossy(password).into_owned());
        command.env("PGHOST", "127.0.0.1").env("PGPORT", cluster.port().to_string());
        command.env("PGUSER", superuser.get_user().unwrap()).env("PGPASSWORD", password.unwrap_or_default());
        command
    };
    let roles = code_blocks("running.md", "sql");
    let roles = roles.iter().find(|block| block.contains("CREATE ROLE fairway_owner")).unwrap();
    let role_statements: Vec<&str> = roles.lines().filter(|line| !line.starts_with("CREATE DATABASE")).collect();
    let mut create_roles =
        for_cluster(shell("psql --quiet --set ON_ERROR_STOP=1 --dbname postgres --command \"$ROLES\""));
    create_roles.env("ROLES", role_statements.join("\n"));
    run_command(create_roles);
    run_command(for_cluster(shell(restore)));

    let artifacts = format!("file://{}", work_dir.path().join("artifacts").display());
    let url = cluster.url("fairway");
    let mut verify_command = shell(verify);
    verify_command.env("FAIRWAY_DATABASE_URL", &url).env("FAIRWAY_ARTIFACTS_URL", &artifacts);
    let text = run_command(verify_command);
    assert!(text.contains(" versions compared, 0 with something wrong") && !text.starts_with('0'), "{text}");

    let setup = ServerSetup::new(&url).setting("FAIRWAY_ARTIFACTS_URL", artifacts);
    let restored = setup.start().await;
    let after = restored.client.get(&evidence).await.unwrap();
    assert_eq!(after.body, before.body);
    // A request with a key from before the dump is replayed. A request with a key from after the dump executes again.
    let replayed = restored.client.post(&execute, &execute_body(), Some("before-the-dump")).await.unwrap();
    assert_eq!(
        (replayed.status, replayed.required_id("execution_id")),
        (200, original_run.required_id("execution_id"))
    );
    assert!(replayed.headers.contains_key("idempotency-replayed"));
    let executed = restored.client.post(&execute, &execute_body(), Some("behind-the-dump")).await.unwrap();
    assert_eq!(executed.status, 200, "{executed:?}");
    assert!(!executed.headers.contains_key("idempotency-replayed"));
    let subject = Value::from(executed.required_id("execution_id").to_string());
    // The log continues after the dump without a gap.
    let started_at = tokio::time::Instant::now();
    loop {
        let log = restored.client.get("/v1/audit/events?limit=200").await.unwrap();
        let events = log.body.as_array().unwrap().clone();
        let indexes: Vec<u64> = events.iter().map(|event| event["index"].as_u64().unwrap()).collect();
        assert!(indexes.windows(2).all(|pair| pair[0] == pair[1] + 1), "{indexes:?}");
        if events.iter().any(|event| event["subject"]["id"] == subject) {
            assert_eq!(indexes.last(), Some(&0), "{indexes:?}");
            return;
        }
        assert!(started_at.elapsed().as_secs() < 20, "the run is not in the log: {indexes:?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
