//! The byte budget for all values of a run.

use crate::{
    execution::{model_call_flow, run, wait_until_ended},
    support::resource_measurement::assert_bounded,
};
use fairway_testkit::{ProviderBehaviour, StubProvider, TestApp};
use serde_json::{Value, json};

/// A short flow in which every step multiplies the output of the previous step (threats T14 and T45 in
/// `docs/security.md`).
///
/// `output` is a step's output. In it, `BEFORE` stands for a reference to the previous output.
fn multiplying_flow(steps: usize, output: &str) -> String {
    let mut yaml = "entry_step: s0\nsteps:\n".to_owned();
    yaml.push_str("  - { id: s0, type: task, action: evaluate_policy }\n");
    for step in 1..steps {
        let output = output.replace("BEFORE", &format!("{{{{steps.s{}.output}}}}", step - 1));
        yaml.push_str(&format!(
            "  - {{ id: s{step}, type: task, action: evaluate_policy, on_failure: sorry, output: {output} }}\n"
        ));
    }
    yaml.push_str(&format!("  - {{ id: end, type: return, output: '{{{{steps.s{}.output}}}}' }}\n", steps - 1));
    yaml + "  - { id: sorry, type: return, output: sorry }\n"
}

#[tokio::test]
async fn flow_that_multiplies_its_values_fails_at_its_budget() {
    let provider = StubProvider::new(ProviderBehaviour::Answers("x".to_owned()));
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let fixtures = app.fixtures();
    let policy = fixtures.allow_all_policy("policy").await;
    for (slug, flow) in [
        ("text", multiplying_flow(5, &format!("{{ a: '{}' }}", "BEFORE".repeat(30)))),
        ("list", multiplying_flow(5, &format!("{{ a: ['{}'] }}", vec!["BEFORE"; 30].join("', '")))),
        ("deep", multiplying_flow(180, "{ a: 'BEFORE' }")),
    ] {
        let flow = fixtures.flow(&format!("{slug}-flow"), &flow).await;
        let workload = fixtures.active_workload_with_bindings(slug, vec![policy.clone(), flow]).await;
        let failed = assert_bounded(slug, run(&app, &workload)).await.expect(200);
        assert_eq!((&failed["status"], &failed["output"]), (&json!("failed"), &Value::Null), "{slug}");
        assert_eq!(failed["error"]["code"], "value_too_large", "{slug}");
        let ended_run = wait_until_ended(&app, &failed["execution_id"]).await;
        assert_eq!(ended_run["outcome"], "failure", "{slug}");
    }
    // Responses of model providers also count against the budget.
    let flow = fixtures.flow("asked", &model_call_flow("model_policy")).await;
    let model = fixtures.model_policy("model").await;
    let versions = vec![policy.clone(), flow, model, fixtures.ticket_prompt("prompt").await];
    let workload = fixtures.active_workload_with_bindings("said", versions).await;
    assert_eq!(run(&app, &workload).await.expect(200)["output"], "x");
    provider.set_behaviour(ProviderBehaviour::Answers("x".repeat(17 << 20)));
    assert_eq!(run(&app, &workload).await.expect(200)["error"]["code"], "value_too_large");
    // A flow whose values stay below the budget completes.
    let flow = fixtures.flow("modest", &multiplying_flow(3, &format!("{{ a: '{}' }}", "BEFORE".repeat(30)))).await;
    let small_workload = fixtures.active_workload_with_bindings("modest", vec![policy, flow]).await;
    assert!(
        run(&app, &small_workload).await.expect(200)["output"]["a"]
            .as_str()
            .is_some_and(|output| output.len() > 10_000)
    );
}
