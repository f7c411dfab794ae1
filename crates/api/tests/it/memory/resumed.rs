//! The memory of runs that another worker resumes.

use super::{asked, memory, memory_path, parts, says, told, turns, words};
use crate::execution::ended;
use fairway_domain::execution::provider::MessageRole;
use fairway_testkit::{Behaviour, StubProvider, TestApp, app::ActiveWorkload};
use serde_json::json;

const TWO_QUESTIONS: &str = "\
name: Two questions
description: Asks twice.
trigger: { type: api_request, inputs_schema: { message: string } }
entry_step: one
steps:
  - id: one
    type: llm_call
    inputs: { prompt: '{{release.prompt_template}}', message: '{{trigger.message}}' }
  - id: two
    type: llm_call
    inputs: { prompt: '{{release.prompt_template}}', message: '{{steps.one.output}}' }
  - id: answer
    type: return
    output: '{{steps.two.output}}'
";

/// A server that runs nothing itself, and a workload that remembers and asks twice.
async fn without_worker() -> (TestApp, ActiveWorkload) {
    let server = TestApp::builder().without_worker().start().await;
    let given = server.given();
    let mut versions = parts(&given, "main").await;
    versions.push(given.flow("flow", TWO_QUESTIONS).await);
    versions.push(given.version("memory", "memory", memory(&json!({}))).await);
    let workload = given.active_with("main", versions).await;
    (server, workload)
}

/// A run that goes on elsewhere is one turn, and none of its own words are in front of it.
#[tokio::test]
async fn a_run_that_goes_on_elsewhere_is_remembered_once() {
    let (server, workload) = without_worker().await;
    let (dies, goes_on) =
        (StubProvider::new(Behaviour::Answers("one".to_owned())), StubProvider::new(Behaviour::Holds));
    let first = TestApp::builder().beside(&server).provider(dies.clone()).start().await;
    let held = says(&server, &workload, "s", "first").header("prefer", "respond-async").await.expect(202);
    assert_eq!(ended(&server, &held["execution_id"]).await["status"], "completed");
    // The second run is at a question when its worker dies.
    dies.becomes(Behaviour::Holds);
    let run = says(&server, &workload, "s", "second").header("prefer", "respond-async").await.expect(202);
    dies.asked(3).await;
    let owner = server.database().owner().await.unwrap();
    drop(first);
    let other = TestApp::builder().beside(&server).provider(goes_on.clone()).start().await;
    owner.execute("UPDATE execution_lease SET lapses_at = fairway_now() - interval '1 second'", &[]).await.unwrap();
    goes_on.asked(1).await;
    goes_on.becomes(Behaviour::Answers("two".to_owned()));
    assert_eq!(ended(&other, &run["execution_id"]).await["status"], "completed");
    let earlier = [(MessageRole::User, "first"), (MessageRole::Assistant, "one")];
    let calls = goes_on.calls();
    assert_eq!(asked(&calls[0])[..2], earlier);
    assert_eq!(asked(&calls[0])[2..], [(MessageRole::User, "second")]);
    assert_eq!(asked(&calls[1])[..2], earlier, "every question of the run has the same in front of it");
    assert_eq!(turns(&server, &workload, "s").await, json!([["first", "one"], ["second", "two"]]));
}

/// What an earlier worker was told of a conversation is in the answers that it kept. Who goes on from them after an erasure
/// is told of a later one than they were made under.
#[tokio::test]
async fn a_run_that_goes_on_elsewhere_brings_nothing_back_that_was_erased() {
    let (server, workload) = without_worker().await;
    let (dies, goes_on) =
        (StubProvider::new(Behaviour::Answers("a secret".to_owned())), StubProvider::new(Behaviour::Holds));
    let first = TestApp::builder().beside(&server).provider(dies.clone()).start().await;
    let said = says(&server, &workload, "s", "first").header("prefer", "respond-async").await.expect(202);
    assert_eq!(ended(&server, &said["execution_id"]).await["status"], "completed");
    // Its first question is answered, and the answer is kept, when its worker is at the second one.
    dies.becomes(Behaviour::AnswersUntil(3, "again the secret".to_owned()));
    let run = says(&server, &workload, "s", "second").header("prefer", "respond-async").await.expect(202);
    dies.asked(4).await;
    let owner = server.database().owner().await.unwrap();
    drop(first);
    server.delete(memory_path(&workload, "s")).await.expect(204);
    let other = TestApp::builder().beside(&server).provider(goes_on.clone()).start().await;
    owner.execute("UPDATE execution_lease SET lapses_at = fairway_now() - interval '1 second'", &[]).await.unwrap();
    goes_on.asked(1).await;
    goes_on.becomes(Behaviour::Answers("two".to_owned()));
    assert_eq!(ended(&other, &run["execution_id"]).await["status"], "completed");
    assert_eq!(words(&goes_on), ["again the secret"], "what was answered is not asked again");
    assert_eq!(turns(&server, &workload, "s").await, json!([]));
    assert_eq!(told(&server, &run, "replay").await.unwrap()["writeback"], "erased_lately");
    assert_eq!(told(&server, &run, "writeback").await, None);
    // Who begins anew remembers again.
    let said = says(&server, &workload, "s", "third").header("prefer", "respond-async").await.expect(202);
    assert_eq!(ended(&server, &said["execution_id"]).await["status"], "completed");
    assert_eq!(turns(&server, &workload, "s").await, json!([["third", "two"]]));
}
