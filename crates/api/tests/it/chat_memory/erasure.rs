//! Erasure of conversations: by retention, by their owner, and by callers with `execution.kill`.

use super::{
    active_with_memory, last_message_texts, memory_path, message_request, own_turns, start_with_provider,
    turns_of_actor,
};
use crate::{execution::wait_until_ended, share_link::query_number, support::workspace_fixture::WORKSPACE};
use fairway_testkit::ProviderBehaviour;
use serde_json::json;

const DAY: i64 = 24 * 60 * 60;

#[tokio::test]
async fn deletes_turns_after_their_retention() {
    let (provider, app) = start_with_provider().await;
    let fixtures = app.fixtures();
    let short_retention = active_with_memory(&fixtures, "short", json!({ "ttl_days": 2 })).await;
    let long_retention = active_with_memory(&fixtures, "long", json!({})).await;
    for workload in [&short_retention, &long_retention] {
        message_request(&app, workload, "s", "first").await.expect(200);
    }
    app.database().set_clock_offset(2 * DAY - 60).await.unwrap();
    assert_eq!(own_turns(&app, &short_retention, "s").await, json!([["first", "one"]]));
    app.database().set_clock_offset(2 * DAY + 60).await.unwrap();
    assert_eq!(
        (own_turns(&app, &short_retention, "s").await, own_turns(&app, &long_retention, "s").await),
        (json!([]), json!([["first", "one"]]))
    );
    message_request(&app, &short_retention, "s", "second").await.expect(200);
    assert_eq!(last_message_texts(&provider), ["second"], "expired turns are not replayed, also before the sweep");
    assert_eq!(app.services().memories.delete_expired_or_revoked().await.unwrap(), 1);
    assert_eq!(query_number(&app, "SELECT count(*) FROM memory_turn").await, 2);
    app.database().set_clock_offset(40 * DAY).await.unwrap();
    assert_eq!(app.services().memories.delete_expired_or_revoked().await.unwrap(), 2);
    assert_eq!(query_number(&app, "SELECT count(*) FROM memory_turn").await, 0);
    assert_eq!(query_number(&app, "SELECT count(*) FROM memory_session").await, 0);
}

#[tokio::test]
async fn runs_in_flight_do_not_restore_erased_turns() {
    let (provider, app) = start_with_provider().await;
    let fixtures = app.fixtures();
    for (slug, scope) in [("session", "session"), ("user", "user")] {
        let workload = active_with_memory(&fixtures, slug, json!({ "scope": scope })).await;
        message_request(&app, &workload, "s", "first").await.expect(200);
        provider.set_behaviour(ProviderBehaviour::Blocks);
        let calls_before = provider.call_count();
        let pending_run =
            message_request(&app, &workload, "s", "second").header("prefer", "respond-async").await.expect(202);
        provider.wait_for_calls(calls_before + 1).await;
        app.delete(memory_path(&workload, "s")).await.expect(204);
        assert_eq!(own_turns(&app, &workload, "s").await, json!([]));
        provider.set_behaviour(ProviderBehaviour::Answers("one".to_owned()));
        assert_eq!(wait_until_ended(&app, &pending_run["execution_id"]).await["status"], "completed");
        assert_eq!(
            own_turns(&app, &workload, "s").await,
            json!([]),
            "{slug}: the run replayed erased turns, so it writes none"
        );
        // A run that starts after the erasure stores its turn as usual.
        message_request(&app, &workload, "s", "third").await.expect(200);
        assert_eq!(last_message_texts(&provider), ["third"]);
        assert_eq!(own_turns(&app, &workload, "s").await, json!([["third", "one"]]));
    }
    let facts = "SELECT count(*) FROM fact WHERE kind = 'memory.erased'
        AND convert_from(body, 'UTF8') LIKE '%\"turns\":1%' AND convert_from(body, 'UTF8') LIKE '%\"owner\":\"user:local\"%'";
    assert_eq!(query_number(&app, facts).await, 2);
}

#[tokio::test]
async fn erasing_another_owners_session_requires_execution_kill() {
    let (_, app) = start_with_provider().await;
    let fixtures = app.fixtures();
    let workload = active_with_memory(&fixtures, "main", json!({})).await;
    for actor in ["user:ada", "user:local"] {
        message_request(&app, &workload, "s", "mine").as_actor(actor).await.expect(200);
    }
    fixtures.bind_role("user:runner", "runtime_user", "workspace", Some(WORKSPACE)).await;
    fixtures.bind_role("user:op", "operator", "workspace", Some(WORKSPACE)).await;
    let erase =
        |actor: &str, owner: &str| app.delete(format!("{}?owner={owner}", memory_path(&workload, "s"))).as_actor(actor);
    assert_eq!(erase("user:runner", "user:ada").await.expect_refusal(403, "forbidden")["permission"], "execution.kill");
    erase("user:op", "nobody at all").await.expect_refusal(422, "validation_error");
    erase("user:op", "anonymous").await.expect_refusal(404, "not_found");
    assert_eq!(turns_of_actor(&app, &workload, "s", "user:ada").await.as_array().unwrap().len(), 1);
    erase("user:op", "user:ada").await.expect(204);
    assert_eq!(turns_of_actor(&app, &workload, "s", "user:ada").await, json!([]));
    assert_eq!(
        own_turns(&app, &workload, "s").await.as_array().unwrap().len(),
        1,
        "the owner's session with the same name remains"
    );
    erase("user:runner", "user:runner").await.expect(204);
}
