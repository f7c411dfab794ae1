//! Large runs (with large inputs or values). A process executes only a few of them at a time, and the others wait.

use crate::execution::{model_call_flow, run, wait_until_ended};
use fairway_testkit::{
    ProviderBehaviour, StubProvider, TestApp,
    app::{ActiveWorkload, Fixtures, Request},
};
use serde_json::{Value, json};

/// Maximum number of concurrent large runs of one tenant, and of all tenants.
const PER_TENANT: usize = 5;
const TOTAL: usize = PER_TENANT + 1;

fn large_run_request(app: &TestApp, workload: &ActiveWorkload) -> Request {
    let ticket = "a refund ".repeat(20_000);
    app.post(workload.execute_path(), json!({ "environment": "dev", "inputs": { "ticket": ticket } }))
}

/// Number of provider calls whose conversation is large.
fn large_calls(provider: &StubProvider) -> usize {
    provider.calls().iter().filter(|call| format!("{:?}", call.conversation).len() > 100_000).count()
}

/// Queues a run and returns its identifier.
async fn accept_queued(run: Request) -> Value {
    run.header("prefer", "respond-async").await.expect(202)["execution_id"].clone()
}

#[tokio::test]
async fn queued_large_runs_wait_without_delaying_small_runs_or_other_tenants() {
    let provider = StubProvider::new(ProviderBehaviour::Blocks);
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let workload = app.active_workload("here").await;
    let tenant = app.fixtures().tenant("acme").await;
    let workspace = app.fixtures().in_tenant(&tenant, "").workspace("there", "there").await;
    let foreign_workload = app.fixtures().in_tenant(&tenant, &workspace).active_workload("there").await;
    let mut runs = Vec::new();
    for _ in 0..3 * PER_TENANT {
        runs.push(accept_queued(large_run_request(&app, &workload)).await);
    }
    provider.wait_for_calls(PER_TENANT).await;
    // Small runs of the same tenant are executed before the waiting large runs.
    let small_run = accept_queued(run(&app, &workload)).await;
    provider.wait_for_calls(PER_TENANT + 1).await;
    // A large run of another tenant is also executed before them.
    let foreign_run = accept_queued(large_run_request(&app, &foreign_workload).in_tenant(&tenant)).await;
    provider.wait_for_calls(TOTAL + 1).await;
    assert_eq!(large_calls(&provider), TOTAL, "no further large run has started");
    let status = |id: &Value| app.get(format!("/v1/executions/{}", id.as_str().unwrap()));
    assert_eq!(status(&small_run).await.expect(200)["status"], "running");
    provider.set_behaviour(ProviderBehaviour::Answers("billing".to_owned()));
    for id in runs.iter().chain([&small_run]) {
        assert_eq!(wait_until_ended(&app, id).await["status"], "completed");
    }
    let path = format!("/v1/executions/{}", foreign_run.as_str().unwrap());
    while app.get(&path).in_tenant(&tenant).await.expect(200)["status"] != "completed" {}
    assert_eq!(provider.call_count(), 3 * PER_TENANT + 2);
}

#[tokio::test]
async fn cancels_a_large_run_that_waits_in_the_queue() {
    let provider = StubProvider::new(ProviderBehaviour::Blocks);
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let workload = app.active_workload("here").await;
    for _ in 0..PER_TENANT {
        accept_queued(large_run_request(&app, &workload)).await;
    }
    provider.wait_for_calls(PER_TENANT).await;
    let waiting_run = accept_queued(large_run_request(&app, &workload)).await;
    let path = format!("/v1/executions/{}/cancel", waiting_run.as_str().unwrap());
    assert_eq!(app.post(path, json!({})).await.expect(200)["status"], "cancelled");
    provider.set_behaviour(ProviderBehaviour::Answers("billing".to_owned()));
    let next_run = accept_queued(large_run_request(&app, &workload)).await;
    assert_eq!(wait_until_ended(&app, &next_run).await["status"], "completed");
    assert_eq!(provider.call_count(), PER_TENANT + 1, "a cancelled run calls no provider");
}

#[tokio::test]
async fn synchronous_large_runs_wait_for_a_reservation() {
    let provider = StubProvider::new(ProviderBehaviour::Blocks);
    let app = TestApp::builder().provider(provider.clone()).setting("FAIRWAY_SYNC_WAIT", "20s").start().await;
    let workload = app.active_workload("here").await;
    let mut reservations = Vec::new();
    for _ in 0..PER_TENANT {
        reservations.push(
            large_run_request(&app, &workload).header("prefer", "wait=0").await.expect(202)["execution_id"].clone(),
        );
    }
    provider.wait_for_calls(PER_TENANT).await;
    let run_small = async {
        // Small runs are executed before the waiting large run.
        for number in 1..=5 {
            run(&app, &workload).header("prefer", "wait=0").await.expect(202);
            provider.wait_for_calls(PER_TENANT + number).await;
        }
        assert_eq!(large_calls(&provider), PER_TENANT);
        provider.set_behaviour(ProviderBehaviour::Answers("billing".to_owned()));
    };
    let (waited, ()) = tokio::join!(async { large_run_request(&app, &workload).await }, run_small);
    assert_eq!(waited.expect(200)["output"], "billing");
    for id in &reservations {
        assert_eq!(wait_until_ended(&app, id).await["status"], "completed");
    }
}

/// A flow expands a small input. The run waits for a memory reservation before it produces the large value.
#[tokio::test]
async fn run_waits_for_a_reservation_before_it_produces_large_values() {
    let provider = StubProvider::new(ProviderBehaviour::Blocks);
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let fixtures = app.fixtures();
    let asking_workload = fixtures.active_workload("asks").await;
    let copies = "{{trigger.ticket}}".repeat(40);
    let flow = format!(
        "trigger: {{ type: api_request, inputs_schema: {{ ticket: string }} }}\nentry_step: end\nsteps:\n  \
         - {{ id: end, type: return, output: '{copies}' }}\n"
    );
    let versions = vec![fixtures.allow_all_policy("policy").await, fixtures.flow("copies", &flow).await];
    let multiplies = fixtures.active_workload_with_bindings("multiplies", versions).await;
    let mut reservations = Vec::new();
    for _ in 0..PER_TENANT {
        reservations.push(accept_queued(large_run_request(&app, &asking_workload)).await);
    }
    provider.wait_for_calls(PER_TENANT).await;
    let ticket = "x".repeat(10_000);
    let body = json!({ "environment": "dev", "inputs": { "ticket": ticket } });
    let run = || app.post(multiplies.execute_path(), body.clone());
    let waiting_run = run().header("prefer", "wait=0").await.expect(202)["execution_id"].clone();
    let path = format!("/v1/executions/{}", waiting_run.as_str().unwrap());
    // The large run stays paused while five small runs complete.
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    for _ in 0..5 {
        app.post(multiplies.execute_path(), body.clone()).await.expect(200);
    }
    assert_eq!(app.get(&path).await.expect(200)["status"], "running");
    provider.set_behaviour(ProviderBehaviour::Answers("billing".to_owned()));
    let ended_run = wait_until_ended(&app, &waiting_run).await;
    assert_eq!(ended_run["status"], "completed");
    for id in &reservations {
        assert_eq!(wait_until_ended(&app, id).await["status"], "completed");
    }
}

#[tokio::test]
async fn flow_with_a_large_prompt_counts_as_large() {
    let provider = StubProvider::new(ProviderBehaviour::Blocks);
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let fixtures = app.fixtures();
    let content = json!({ "system_prompt": "Sort. ".repeat(40_000) });
    let prompt = fixtures.asset_with_version("prompt_template", "long", content).await;
    let versions = vec![
        fixtures.allow_all_policy("policy").await,
        fixtures.model_policy("model").await,
        fixtures.flow("asks", &model_call_flow("model_policy")).await,
        prompt,
    ];
    let asking_workload = fixtures.active_workload_with_bindings("asks", versions).await;
    for _ in 0..TOTAL {
        accept_queued(run(&app, &asking_workload)).await;
    }
    provider.wait_for_calls(PER_TENANT).await;
    // A small run of another workload starts although one large run still waits.
    let small_workload = fixtures.active_workload("small").await;
    accept_queued(run(&app, &small_workload)).await;
    provider.wait_for_calls(TOTAL).await;
    let long_calls = provider.calls().iter().filter(|call| call.conversation.system_prompt.len() > 100_000).count();
    assert_eq!(long_calls, PER_TENANT);
    provider.set_behaviour(ProviderBehaviour::Answers("billing".to_owned()));
    provider.wait_for_calls(TOTAL + 1).await;
}

/// A workload whose flow produces a large value from an input of 10,000 bytes, and a small value from a small input.
async fn active_multiplying_workload(fixtures: &Fixtures, slug: &str) -> ActiveWorkload {
    let copies = "{{trigger.ticket}}".repeat(14);
    let flow = format!(
        "trigger: {{ type: api_request, inputs_schema: {{ ticket: string }} }}\nentry_step: end\nsteps:\n  \
         - {{ id: end, type: return, output: '{copies}' }}\n"
    );
    let policy = fixtures.allow_all_policy(&format!("{slug}-policy")).await;
    let versions = vec![policy, fixtures.flow(&format!("{slug}-flow"), &flow).await];
    fixtures.active_workload_with_bindings(slug, versions).await
}

/// Paused runs of some tenants do not block the runs of other tenants.
#[tokio::test]
async fn paused_runs_leave_worker_slots_to_other_tenants() {
    /// Number of runs of one tenant. It exceeds the number that a worker with 128 slots executes for one tenant.
    const MANY: usize = 48;
    let provider = StubProvider::new(ProviderBehaviour::Blocks);
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let mut tenants = Vec::new();
    for name in ["one", "two", "three", "four", "five"] {
        let tenant = app.fixtures().tenant(name).await;
        let workspace = app.fixtures().in_tenant(&tenant, "").workspace(name, name).await;
        tenants.push((app.fixtures().in_tenant(&tenant, &workspace), tenant));
    }
    // Large runs occupy all memory reservations.
    for ((fixtures, tenant), count) in tenants.iter().zip([PER_TENANT, TOTAL - PER_TENANT]) {
        let asking_workload = fixtures.active_workload("asks").await;
        for _ in 0..count {
            accept_queued(large_run_request(&app, &asking_workload).in_tenant(tenant)).await;
        }
    }
    provider.wait_for_calls(TOTAL).await;
    let mut multiplies = Vec::new();
    for (fixtures, _) in &tenants {
        multiplies.push(active_multiplying_workload(fixtures, "multiplies").await);
    }
    let ask = |index: usize, ticket: &str| {
        let (workload, (_, tenant)): (&ActiveWorkload, &(Fixtures, String)) = (&multiplies[index], &tenants[index]);
        let body = json!({ "environment": "dev", "inputs": { "ticket": ticket } });
        accept_queued(app.post(workload.execute_path(), body).in_tenant(tenant))
    };
    let completes = async |index: usize, id: &Value| {
        let path = format!("/v1/executions/{}", id.as_str().unwrap());
        while app.get(&path).in_tenant(&tenants[index].1).await.expect(200)["status"] != "completed" {}
    };
    let (ticket, mut last_runs) = ("x".repeat(10_000), Vec::new());
    for index in 0..4 {
        for _ in 0..MANY {
            last_runs.push((index, ask(index, &ticket).await));
        }
    }
    for _ in 0..10 {
        completes(4, &ask(4, "x").await).await;
    }
    // After the model responds, the paused runs resume, and the queued runs follow.
    provider.set_behaviour(ProviderBehaviour::Answers("billing".to_owned()));
    for (index, id) in &last_runs {
        completes(*index, id).await;
    }
}

/// After the run is stored, a memory limit of one byte makes every read of a large output fail.
#[tokio::test]
async fn reads_large_output_only_for_callers_who_may_see_it() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let flow = "trigger: { type: api_request, inputs_schema: { ticket: string } }\nentry_step: end\nsteps:\n  \
         - { id: end, type: return, output: '{{trigger.ticket}}' }\n";
    let versions = vec![fixtures.allow_all_policy("policy").await, fixtures.flow("echo", flow).await];
    let echo = fixtures.active_workload_with_bindings("echo", versions).await;
    fixtures.bind_role("user:operator", "operator", "tenant", Some(crate::support::workspace_fixture::TENANT)).await;
    let run = large_run_request(&app, &echo).await.expect(200)["execution_id"].clone();
    let path = format!("/v1/executions/{}", run.as_str().unwrap());
    fairway_memory_limit::limit_process(1);
    assert_eq!(app.get(&path).await.status, 503, "the submitter may see the large output, so the server reads it");
    let execution = app.get(&path).as_actor("user:operator").await.expect(200);
    assert_eq!((&execution["status"], &execution["queued_result"]), (&json!("completed"), &Value::Null));
    app.get(&path).as_actor("anonymous").await.expect_refusal(404, "not_found");
    let cancel = app.post(format!("{path}/cancel"), json!({})).as_actor("user:operator");
    cancel.await.expect_refusal(409, "execution_not_cancellable");
    // The submitter gets the same refusal. It contains no output, so the server does not read the output.
    app.post(format!("{path}/cancel"), json!({})).await.expect_refusal(409, "execution_not_cancellable");
}
