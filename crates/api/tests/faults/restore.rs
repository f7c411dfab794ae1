//! The chapter on backing up, walked: its commands dump an installation and bring it back on another cluster, and what
//! was there is there again.

use crate::{process::Place, remote::inputs};
use fairway_private_postgres::{Binaries, PrivateServer, state};
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

/// The commands of one language in a chapter of `docs/operations`, block by block.
fn blocks(chapter: &str, language: &str) -> Vec<String> {
    let path = format!("{}/../../docs/operations/{chapter}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    let mut blocks = Vec::new();
    let mut block: Option<String> = None;
    for line in text.lines() {
        let line = line.trim_start();
        match (&mut block, line) {
            (None, _) if line == format!("```{language}") => block = Some(String::new()),
            (Some(_), "```") => blocks.extend(block.take()),
            (Some(block), command) => *block += &format!("{command}\n"),
            (None, _) => {}
        }
    }
    blocks
}

/// The search path with PostgreSQL's programs and the server's own in front.
fn search_path(binaries: &Binaries) -> OsString {
    let own = PathBuf::from(env!("CARGO_BIN_EXE_fairway-server"));
    let folders = [binaries.directory().to_owned(), own.parent().unwrap().to_owned()];
    let callers = env::var_os("PATH").unwrap();
    env::join_paths(folders.into_iter().chain(env::split_paths(&callers))).unwrap()
}

#[track_caller]
fn run(mut command: Command) -> String {
    let output = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

fn copy(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    command.arg("-a").arg(from).arg(to);
    run(command);
}

#[tokio::test]
async fn what_was_backed_up_is_there_again() {
    let database = TestDatabase::create().await.unwrap();
    let place = Place::new(&database.url());
    let server = place.start().await;
    let execute = server.remote.runnable().await;
    let ran = server.remote.post(&execute, &inputs(), Some("before-the-dump")).await.unwrap();
    assert_eq!(ran.status, 200, "{ran:?}");
    let evidence = format!("/v1/executions/{}/evidence-graph", ran.id("execution_id"));
    let before = server.remote.get(&evidence).await.unwrap();
    assert_eq!(before.status, 200, "{before:?}");

    let binaries = Binaries::find(&state::directory().unwrap()).unwrap();
    let path = search_path(&binaries);
    let work = tempfile::tempdir().unwrap();
    let shell = |script: &str| {
        let mut command = Command::new("bash");
        command.args(["-euc", script]).current_dir(work.path()).env("PATH", &path);
        command
    };
    let chapter = blocks("backup.md", "sh");
    let [dump, restore, verify] = chapter.as_slice() else { panic!("the chapter has other blocks: {chapter:?}") };
    let mut dumping = shell(dump);
    dumping.env("FAIRWAY_MIGRATE_DATABASE_URL", database.url());
    run(dumping);
    copy(&place.artifacts(), &work.path().join("artifacts"));
    // Not in the dump: it is gone.
    server.remote.post(&execute, &inputs(), Some("behind-the-dump")).await.unwrap();

    let cluster = PrivateServer::throwaway(binaries, Vec::new()).unwrap();
    let superuser: Config = cluster.url("postgres").parse().unwrap();
    let of_cluster = |mut command: Command| {
        let password = superuser.get_password().map(|password| String::from_utf8_lossy(password).into_owned());
        command.env("PGHOST", "127.0.0.1").env("PGPORT", cluster.port().to_string());
        command.env("PGUSER", superuser.get_user().unwrap()).env("PGPASSWORD", password.unwrap_or_default());
        command
    };
    let roles = blocks("running.md", "sql");
    let roles = roles.iter().find(|block| block.contains("CREATE ROLE fairway_owner")).unwrap();
    let without_database: Vec<&str> = roles.lines().filter(|line| !line.starts_with("CREATE DATABASE")).collect();
    let mut making = of_cluster(shell("psql --quiet --set ON_ERROR_STOP=1 --dbname postgres --command \"$ROLES\""));
    making.env("ROLES", without_database.join("\n"));
    run(making);
    run(of_cluster(shell(restore)));

    let artifacts = format!("file://{}", work.path().join("artifacts").display());
    let url = cluster.url("fairway");
    let mut verifying = shell(verify);
    verifying.env("FAIRWAY_DATABASE_URL", &url).env("FAIRWAY_ARTIFACTS_URL", &artifacts);
    let said = run(verifying);
    assert!(said.contains(" versions compared, 0 with something wrong") && !said.starts_with('0'), "{said}");

    let place = Place::new(&url).setting("FAIRWAY_ARTIFACTS_URL", artifacts);
    let restored = place.start().await;
    let after = restored.remote.get(&evidence).await.unwrap();
    assert_eq!(after.body, before.body);
    // Whoever asks again finds the effect of before, and what was behind the dump happens anew.
    let again = restored.remote.post(&execute, &inputs(), Some("before-the-dump")).await.unwrap();
    assert_eq!((again.status, again.id("execution_id")), (200, ran.id("execution_id")));
    assert!(again.headers.contains_key("idempotency-replayed"));
    let anew = restored.remote.post(&execute, &inputs(), Some("behind-the-dump")).await.unwrap();
    assert_eq!(anew.status, 200, "{anew:?}");
    assert!(!anew.headers.contains_key("idempotency-replayed"));
    let subject = Value::from(anew.id("execution_id").to_string());
    // The log goes on where the dump ended, without a gap.
    let since = tokio::time::Instant::now();
    loop {
        let log = restored.remote.get("/v1/audit/events?limit=200").await.unwrap();
        let events = log.body.as_array().unwrap().clone();
        let indexes: Vec<u64> = events.iter().map(|event| event["index"].as_u64().unwrap()).collect();
        assert!(indexes.windows(2).all(|pair| pair[0] == pair[1] + 1), "{indexes:?}");
        if events.iter().any(|event| event["subject"]["id"] == subject) {
            assert_eq!(indexes.last(), Some(&0), "{indexes:?}");
            return;
        }
        assert!(since.elapsed().as_secs() < 20, "the log stands still: {indexes:?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
