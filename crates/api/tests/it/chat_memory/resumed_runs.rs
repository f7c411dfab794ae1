//! The memory of runs that another worker resumes.

use super::{
    last_message_texts, memory_content, memory_evidence, memory_path, message_request, messages_of, own_turns,
    release_versions,
};
use crate::execution::wait_until_ended;
use fairway_domain::execution::provider::MessageRole;
use fairway_testkit::{ProviderBehaviour, StubProvider, TestApp, app::ActiveWorkload};
use serde_json::json;

const TWO_CALLS_FLOW: &str = "\
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

/// Starts a server without a worker, and a workload with memory and two model calls.
async fn start_without_worker() -> (TestApp, ActiveWorkload) {
    let server = TestApp::builder().without_worker().start().await;
    let fixtures = server.fixtures();
    let mut versions = release_versions(&fixtures, "main").await;
    versions.push(fixtures.flow("flow", TWO_CALLS_FLOW).await);
    versions.push(fixtures.asset_with_version("memory", "memory", memory_content(&json!({}))).await);
    let workload = fixtures.active_workload_with_bindings("main", versions).await;
    (server, workload)
}

/// A resumed run stores one turn, and does not replay its own messages.
#[tokio::test]
async fn resumed_run_writes_one_turn() {
    let (server, workload) = start_without_worker().await;
    let (first_provider, second_provider) =
        (StubProvider::new(ProviderBehaviour::Answers("one".to_owned())), StubProvider::new(ProviderBehaviour::Blocks));
    let first_server = TestApp::builder().sharing_storage_of(&server).provider(first_provider.clone()).start().await;
    let pending_run =
        message_request(&server, &workload, "s", "first").header("prefer", "respond-async").await.expect(202);
    assert_eq!(wait_until_ended(&server, &pending_run["execution_id"]).await["status"], "completed");
    // The second run waits for its model when its worker dies.
    first_provider.set_behaviour(ProviderBehaviour::Blocks);
    let run = message_request(&server, &workload, "s", "second").header("prefer", "respond-async").await.expect(202);
    first_provider.wait_for_calls(3).await;
    let owner = server.database().connect_as_owner().await.unwrap();
    drop(first_server);
    let other_server = TestApp::builder().sharing_storage_of(&server).provider(second_provider.clone()).start().await;
    owner.execute("UPDATE execution_lease SET lapses_at = fairway_now() - interval '1 second'", &[]).await.unwrap();
    second_provider.wait_for_calls(1).await;
    second_provider.set_behaviour(ProviderBehaviour::Answers("two".to_owned()));
    assert_eq!(wait_until_ended(&other_server, &run["execution_id"]).await["status"], "completed");
    let earlier = [(MessageRole::User, "first"), (MessageRole::Assistant, "one")];
    let calls = second_provider.calls();
    assert_eq!(messages_of(&calls[0])[..2], earlier);
    assert_eq!(messages_of(&calls[0])[2..], [(MessageRole::User, "second")]);
    assert_eq!(messages_of(&calls[1])[..2], earlier, "each call of the run replays the same turns");
    assert_eq!(own_turns(&server, &workload, "s").await, json!([["first", "one"], ["second", "two"]]));
}

/// Stored model responses of the run may contain turns that an earlier worker replayed. A worker that resumes the
/// run after an erasure detects the erasure, and writes no turn.
#[tokio::test]
async fn resumed_run_does_not_restore_erased_turns() {
    let (server, workload) = start_without_worker().await;
    let (first_provider, second_provider) = (
        StubProvider::new(ProviderBehaviour::Answers("a secret".to_owned())),
        StubProvider::new(ProviderBehaviour::Blocks),
    );
    let first_server = TestApp::builder().sharing_storage_of(&server).provider(first_provider.clone()).start().await;
    let accepted =
        message_request(&server, &workload, "s", "first").header("prefer", "respond-async").await.expect(202);
    assert_eq!(wait_until_ended(&server, &accepted["execution_id"]).await["status"], "completed");
    // The worker has stored the first model response as progress, and waits for the second one.
    first_provider.set_behaviour(ProviderBehaviour::AnswersUntil(3, "again the secret".to_owned()));
    let run = message_request(&server, &workload, "s", "second").header("prefer", "respond-async").await.expect(202);
    first_provider.wait_for_calls(4).await;
    let owner = server.database().connect_as_owner().await.unwrap();
    drop(first_server);
    server.delete(memory_path(&workload, "s")).await.expect(204);
    let other_server = TestApp::builder().sharing_storage_of(&server).provider(second_provider.clone()).start().await;
    owner.execute("UPDATE execution_lease SET lapses_at = fairway_now() - interval '1 second'", &[]).await.unwrap();
    second_provider.wait_for_calls(1).await;
    second_provider.set_behaviour(ProviderBehaviour::Answers("two".to_owned()));
    assert_eq!(wait_until_ended(&other_server, &run["execution_id"]).await["status"], "completed");
    assert_eq!(last_message_texts(&second_provider), ["again the secret"], "checkpointed calls are not repeated");
    assert_eq!(own_turns(&server, &workload, "s").await, json!([]));
    assert_eq!(memory_evidence(&server, &run, "replay").await.unwrap()["writeback"], "erased_lately");
    assert_eq!(memory_evidence(&server, &run, "writeback").await, None);
    // A run that starts after the erasure writes its turn.
    let accepted =
        message_request(&server, &workload, "s", "third").header("prefer", "respond-async").await.expect(202);
    assert_eq!(wait_until_ended(&server, &accepted["execution_id"]).await["status"], "completed");
    assert_eq!(own_turns(&server, &workload, "s").await, json!([["third", "two"]]));
}
