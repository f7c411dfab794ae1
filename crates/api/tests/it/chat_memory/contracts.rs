//! Memory under the access contracts of knowledge bases: allowed access modes, and revocation.

use super::{
    active_with_memory_and_bases, last_message_texts, memory_evidence, message_request, own_turns, start_with_provider,
};
use crate::{
    execution::wait_until_ended,
    support::workspace_fixture::{WORKSPACE, knowledge_content},
};
use fairway_testkit::ProviderBehaviour;
use serde_json::{Value, json};

fn base_content(contract: &str, modes: &[&str]) -> Value {
    let mut content = knowledge_content(contract);
    content["access_contract"]["allowed_access_modes"] = json!(modes);
    content
}

#[tokio::test]
async fn disallowed_access_modes_disable_memory_but_not_the_run() {
    let (provider, app) = start_with_provider().await;
    let fixtures = app.fixtures();
    for (slug, modes, replays, writes) in [
        ("all", &["retrieve", "memory_replay", "memory_writeback"][..], true, true),
        ("none", &["retrieve"], false, false),
        ("reads", &["retrieve", "memory_replay"], true, false),
        ("writes", &["retrieve", "memory_writeback"], false, true),
    ] {
        // The contracts of both knowledge bases must allow the access mode.
        let open_content = base_content(&format!("{slug}-open"), &["retrieve", "memory_replay", "memory_writeback"]);
        let open_base = fixtures.asset_with_version("knowledge_base", &format!("{slug}-open"), open_content).await;
        let restricted_base =
            fixtures.asset_with_version("knowledge_base", &format!("{slug}-narrow"), base_content(slug, modes)).await;
        let workload = active_with_memory_and_bases(&fixtures, slug, json!({}), vec![open_base, restricted_base]).await;
        message_request(&app, &workload, "s", "first").await.expect(200);
        let run = message_request(&app, &workload, "s", "second").await.expect(200);
        assert_eq!(run["status"], "completed", "{slug}");
        assert_eq!(
            last_message_texts(&provider).len() == 3,
            replays && writes,
            "{slug}: {:?}",
            last_message_texts(&provider)
        );
        let turn_count = own_turns(&app, &workload, "s").await.as_array().unwrap().len();
        assert_eq!(turn_count, if writes { 2 } else { 0 }, "{slug}");
        let expected_decision = |allowed: bool, decision: &str| json!(if allowed { decision } else { "deny" });
        let (replay, writeback) = (
            memory_evidence(&app, &run, "replay").await.unwrap(),
            memory_evidence(&app, &run, "writeback").await.unwrap(),
        );
        assert_eq!(
            (&replay["decision"], &writeback["decision"]),
            (&expected_decision(replays, "allow"), &expected_decision(writes, "offered")),
            "{slug}"
        );
        assert_eq!(replay["contracts"].as_array().unwrap().len(), 2, "{replay}");
        assert_eq!(replay["turns"], if replays && writes { 1 } else { 0 }, "{slug}");
    }
}

/// Promise R16 in `docs/security.md`: a revoked contract refuses the run before any turn is replayed.
#[tokio::test]
async fn revoked_contract_stops_replay_and_writeback() {
    let (provider, app) = start_with_provider().await;
    let fixtures = app.fixtures();
    let all_modes = ["retrieve", "memory_replay", "memory_writeback"];
    let mut workloads = Vec::new();
    for (slug, erases) in [("keeps", false), ("erases", true)] {
        let base = fixtures
            .asset_with_version("knowledge_base", &format!("{slug}-base"), base_content(slug, &all_modes))
            .await;
        let overrides = json!({ "erase_on_revoke": erases });
        let workload = active_with_memory_and_bases(&fixtures, slug, overrides, vec![base.clone()]).await;
        message_request(&app, &workload, "s", "first").await.expect(200);
        workloads.push((slug, erases, base, workload));
    }
    for (slug, erases, base, workload) in &workloads {
        // A run that waits for its model during the revocation writes no turn.
        provider.set_behaviour(ProviderBehaviour::Blocks);
        let calls_before = provider.call_count();
        let pending_run =
            message_request(&app, workload, "s", "second").header("prefer", "respond-async").await.expect(202);
        provider.wait_for_calls(calls_before + 1).await;
        let revoke = format!("/v1/assets/{}/access-contract/revoke?workspace_id={WORKSPACE}", base.asset_id);
        app.post(revoke, json!({ "contract_id": slug, "reason": "Over." })).await.expect(200);
        provider.set_behaviour(ProviderBehaviour::Answers("one".to_owned()));
        assert_eq!(wait_until_ended(&app, &pending_run["execution_id"]).await["status"], "completed", "{slug}");
        assert_eq!(memory_evidence(&app, &pending_run, "writeback").await.unwrap()["decision"], "deny");
        let count = provider.call_count();
        message_request(&app, workload, "s", "third").await.expect_refusal(422, "contract_refused");
        assert_eq!(provider.call_count(), count, "the provider is not called");
        let remaining_turns = if *erases { json!([]) } else { json!([["first", "one"]]) };
        assert_eq!(own_turns(&app, workload, "s").await, remaining_turns, "{slug}");
    }
}

#[tokio::test]
async fn version_that_revokes_its_contract_erases_turns() {
    let (_, app) = start_with_provider().await;
    let fixtures = app.fixtures();
    let content = base_content("handbook", &["retrieve", "memory_replay", "memory_writeback"]);
    let handbook = fixtures.asset_with_version("knowledge_base", "handbook", content.clone()).await;
    let workload =
        active_with_memory_and_bases(&fixtures, "main", json!({ "erase_on_revoke": true }), vec![handbook.clone()])
            .await;
    message_request(&app, &workload, "s", "first").await.expect(200);
    let mut revoking_content = content;
    revoking_content["access_contract"]["revoked"] = json!(true);
    revoking_content["access_contract"]["revoked_at"] = json!("2026-01-01T00:00:00Z");
    fixtures.add_version(&handbook.asset_id, revoking_content).await;
    assert_eq!(own_turns(&app, &workload, "s").await, json!([]));
}
