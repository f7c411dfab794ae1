//! Memory under the access contracts of knowledge bases: allowed access modes, and revocation.

use super::{desk, remembering_under, says, told, turns, words};
use crate::{
    execution::ended,
    stage::{WORKSPACE, knowledge},
};
use fairway_testkit::Behaviour;
use serde_json::{Value, json};

fn base(contract: &str, modes: &[&str]) -> Value {
    let mut content = knowledge(contract);
    content["access_contract"]["allowed_access_modes"] = json!(modes);
    content
}

#[tokio::test]
async fn disallowed_access_modes_disable_memory_but_not_the_run() {
    let (provider, app) = desk().await;
    let given = app.given();
    for (slug, modes, replays, writes) in [
        ("all", &["retrieve", "memory_replay", "memory_writeback"][..], true, true),
        ("none", &["retrieve"], false, false),
        ("reads", &["retrieve", "memory_replay"], true, false),
        ("writes", &["retrieve", "memory_writeback"], false, true),
    ] {
        // Both contracts must allow the mode.
        let open = base(&format!("{slug}-open"), &["retrieve", "memory_replay", "memory_writeback"]);
        let open = given.version("knowledge_base", &format!("{slug}-open"), open).await;
        let narrow = given.version("knowledge_base", &format!("{slug}-narrow"), base(slug, modes)).await;
        let workload = remembering_under(&given, slug, json!({}), vec![open, narrow]).await;
        says(&app, &workload, "s", "first").await.expect(200);
        let run = says(&app, &workload, "s", "second").await.expect(200);
        assert_eq!(run["status"], "completed", "{slug}");
        assert_eq!(words(&provider).len() == 3, replays && writes, "{slug}: {:?}", words(&provider));
        let kept = turns(&app, &workload, "s").await.as_array().unwrap().len();
        assert_eq!(kept, if writes { 2 } else { 0 }, "{slug}");
        let verdict = |allowed: bool, word: &str| json!(if allowed { word } else { "deny" });
        let (replay, written) =
            (told(&app, &run, "replay").await.unwrap(), told(&app, &run, "writeback").await.unwrap());
        assert_eq!(
            (&replay["decision"], &written["decision"]),
            (&verdict(replays, "allow"), &verdict(writes, "offered")),
            "{slug}"
        );
        assert_eq!(replay["contracts"].as_array().unwrap().len(), 2, "{replay}");
        assert_eq!(replay["turns"], if replays && writes { 1 } else { 0 }, "{slug}");
    }
}

/// R16: a revoked contract refuses the run before any turn is replayed.
#[tokio::test]
async fn revoked_contract_stops_replay_and_writeback() {
    let (provider, app) = desk().await;
    let given = app.given();
    let all = ["retrieve", "memory_replay", "memory_writeback"];
    let mut workloads = Vec::new();
    for (slug, erases) in [("keeps", false), ("erases", true)] {
        let base = given.version("knowledge_base", &format!("{slug}-base"), base(slug, &all)).await;
        let more = json!({ "erase_on_revoke": erases });
        let workload = remembering_under(&given, slug, more, vec![base.clone()]).await;
        says(&app, &workload, "s", "first").await.expect(200);
        workloads.push((slug, erases, base, workload));
    }
    for (slug, erases, base, workload) in &workloads {
        // A run that waits for its model during the revocation writes no turn.
        provider.becomes(Behaviour::Holds);
        let before = provider.count();
        let held = says(&app, workload, "s", "second").header("prefer", "respond-async").await.expect(202);
        provider.asked(before + 1).await;
        let revoke = format!("/v1/assets/{}/access-contract/revoke?workspace_id={WORKSPACE}", base.asset_id);
        app.post(revoke, json!({ "contract_id": slug, "reason": "Over." })).await.expect(200);
        provider.becomes(Behaviour::Answers("one".to_owned()));
        assert_eq!(ended(&app, &held["execution_id"]).await["status"], "completed", "{slug}");
        assert_eq!(told(&app, &held, "writeback").await.unwrap()["decision"], "deny");
        let count = provider.count();
        says(&app, workload, "s", "third").await.refused(422, "contract_refused");
        assert_eq!(provider.count(), count, "the provider is not called");
        let left = if *erases { json!([]) } else { json!([["first", "one"]]) };
        assert_eq!(turns(&app, workload, "s").await, left, "{slug}");
    }
}

#[tokio::test]
async fn version_that_revokes_its_contract_erases_turns() {
    let (_, app) = desk().await;
    let given = app.given();
    let content = base("handbook", &["retrieve", "memory_replay", "memory_writeback"]);
    let handbook = given.version("knowledge_base", "handbook", content.clone()).await;
    let workload = remembering_under(&given, "main", json!({ "erase_on_revoke": true }), vec![handbook.clone()]).await;
    says(&app, &workload, "s", "first").await.expect(200);
    let mut over = content;
    over["access_contract"]["revoked"] = json!(true);
    over["access_contract"]["revoked_at"] = json!("2026-01-01T00:00:00Z");
    given.next_version(&handbook.asset_id, over).await;
    assert_eq!(turns(&app, &workload, "s").await, json!([]));
}
