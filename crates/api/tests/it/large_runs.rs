//! Runs with large inputs and values: a process has a few of them under way at a time, and the others wait.

use crate::execution::{asking, ended, run};
use fairway_testkit::{
    Behaviour, StubProvider, TestApp,
    app::{ActiveWorkload, Given, Request},
};
use serde_json::{Value, json};

/// Large runs that one tenant has under way, and all tenants together.
const PER_TENANT: usize = 5;
const ALL: usize = PER_TENANT + 1;

fn large(app: &TestApp, workload: &ActiveWorkload) -> Request {
    let ticket = "a refund ".repeat(20_000);
    app.post(workload.execute_path(), json!({ "environment": "dev", "inputs": { "ticket": ticket } }))
}

/// How many large runs the provider was asked for.
fn large_calls(provider: &StubProvider) -> usize {
    provider.calls().iter().filter(|call| format!("{:?}", call.conversation).len() > 100_000).count()
}

/// A queued run, once it was accepted.
async fn queued(run: Request) -> Value {
    run.header("prefer", "respond-async").await.expect(202)["execution_id"].clone()
}

#[tokio::test]
async fn queued_large_runs_wait_for_each_other_and_delay_no_small_run_and_no_other_tenant() {
    let provider = StubProvider::new(Behaviour::Holds);
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let here = app.active_workload("here").await;
    let tenant = app.given().tenant("acme").await;
    let workspace = app.given().in_tenant(&tenant, "").workspace("there", "there").await;
    let there = app.given().in_tenant(&tenant, &workspace).active_workload("there").await;
    let mut runs = Vec::new();
    for _ in 0..3 * PER_TENANT {
        runs.push(queued(large(&app, &here)).await);
    }
    provider.asked(PER_TENANT).await;
    // Small ones of the same tenant go past those that wait.
    let small = queued(run(&app, &here)).await;
    provider.asked(PER_TENANT + 1).await;
    // The large run of another tenant does as well.
    let abroad = queued(large(&app, &there).in_tenant(&tenant)).await;
    provider.asked(ALL + 1).await;
    assert_eq!(large_calls(&provider), ALL, "no more large runs are under way");
    let status = |id: &Value| app.get(format!("/v1/executions/{}", id.as_str().unwrap()));
    assert_eq!(status(&small).await.expect(200)["status"], "running");
    provider.becomes(Behaviour::Answers("billing".to_owned()));
    for id in runs.iter().chain([&small]) {
        assert_eq!(ended(&app, id).await["status"], "completed");
    }
    let path = format!("/v1/executions/{}", abroad.as_str().unwrap());
    while app.get(&path).in_tenant(&tenant).await.expect(200)["status"] != "completed" {}
    assert_eq!(provider.count(), 3 * PER_TENANT + 2);
}

#[tokio::test]
async fn large_run_that_waits_in_the_queue_can_be_cancelled() {
    let provider = StubProvider::new(Behaviour::Holds);
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let here = app.active_workload("here").await;
    for _ in 0..PER_TENANT {
        queued(large(&app, &here)).await;
    }
    provider.asked(PER_TENANT).await;
    let waiting = queued(large(&app, &here)).await;
    let path = format!("/v1/executions/{}/cancel", waiting.as_str().unwrap());
    assert_eq!(app.post(path, json!({})).await.expect(200)["status"], "cancelled");
    provider.becomes(Behaviour::Answers("billing".to_owned()));
    let next = queued(large(&app, &here)).await;
    assert_eq!(ended(&app, &next).await["status"], "completed");
    assert_eq!(provider.count(), PER_TENANT + 1, "a cancelled run asks nobody");
}

#[tokio::test]
async fn large_runs_that_are_waited_for_take_turns() {
    let provider = StubProvider::new(Behaviour::Holds);
    let app = TestApp::builder().provider(provider.clone()).setting("FAIRWAY_SYNC_WAIT", "20s").start().await;
    let here = app.active_workload("here").await;
    let mut held = Vec::new();
    for _ in 0..PER_TENANT {
        held.push(large(&app, &here).header("prefer", "wait=0").await.expect(202)["execution_id"].clone());
    }
    provider.asked(PER_TENANT).await;
    let small = async {
        // Small ones go past the large one, one after the other.
        for number in 1..=5 {
            run(&app, &here).header("prefer", "wait=0").await.expect(202);
            provider.asked(PER_TENANT + number).await;
        }
        assert_eq!(large_calls(&provider), PER_TENANT);
        provider.becomes(Behaviour::Answers("billing".to_owned()));
    };
    let (waited, ()) = tokio::join!(async { large(&app, &here).await }, small);
    assert_eq!(waited.expect(200)["output"], "billing");
    for id in &held {
        assert_eq!(ended(&app, id).await["status"], "completed");
    }
}

/// Small inputs that a flow multiplies: the run waits before it makes the large value.
#[tokio::test]
async fn run_that_is_about_to_make_large_values_waits_and_completes() {
    let provider = StubProvider::new(Behaviour::Holds);
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let given = app.given();
    let asks = given.active_workload("asks").await;
    let copies = "{{trigger.ticket}}".repeat(40);
    let flow = format!(
        "trigger: {{ type: api_request, inputs_schema: {{ ticket: string }} }}\nentry_step: end\nsteps:\n  \
         - {{ id: end, type: return, output: '{copies}' }}\n"
    );
    let versions = vec![given.policy("policy").await, given.flow("copies", &flow).await];
    let multiplies = given.active_with("multiplies", versions).await;
    let mut held = Vec::new();
    for _ in 0..PER_TENANT {
        held.push(queued(large(&app, &asks)).await);
    }
    provider.asked(PER_TENANT).await;
    let ticket = "x".repeat(10_000);
    let body = json!({ "environment": "dev", "inputs": { "ticket": ticket } });
    let run = || app.post(multiplies.execute_path(), body.clone());
    let waiting = run().header("prefer", "wait=0").await.expect(202)["execution_id"].clone();
    let path = format!("/v1/executions/{}", waiting.as_str().unwrap());
    // As long as it takes a small run to begin and end, it does neither.
    let one = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    for _ in 0..5 {
        app.post(multiplies.execute_path(), one.clone()).await.expect(200);
    }
    assert_eq!(app.get(&path).await.expect(200)["status"], "running");
    provider.becomes(Behaviour::Answers("billing".to_owned()));
    let read = ended(&app, &waiting).await;
    assert_eq!(read["status"], "completed");
    for id in &held {
        assert_eq!(ended(&app, id).await["status"], "completed");
    }
}

#[tokio::test]
async fn flow_that_asks_with_a_large_prompt_counts_as_large() {
    let provider = StubProvider::new(Behaviour::Holds);
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let given = app.given();
    let content = json!({ "system_prompt": "Sort. ".repeat(40_000) });
    let prompt = given.version("prompt_template", "long", content).await;
    let versions = vec![
        given.policy("policy").await,
        given.model_policy("model").await,
        given.flow("asks", &asking("model_policy")).await,
        prompt,
    ];
    let asks = given.active_with("asks", versions).await;
    for _ in 0..ALL {
        queued(run(&app, &asks)).await;
    }
    provider.asked(PER_TENANT).await;
    // A small run of another workload begins after them.
    let small = given.active_workload("small").await;
    queued(run(&app, &small)).await;
    provider.asked(ALL).await;
    let long = provider.calls().iter().filter(|call| call.conversation.system_prompt.len() > 100_000).count();
    assert_eq!(long, PER_TENANT);
    provider.becomes(Behaviour::Answers("billing".to_owned()));
    provider.asked(ALL + 1).await;
}

/// A workload whose flow makes a large value of an input of 10,000 bytes, and a small one of a small input.
async fn multiplying(given: &Given, slug: &str) -> ActiveWorkload {
    let copies = "{{trigger.ticket}}".repeat(14);
    let flow = format!(
        "trigger: {{ type: api_request, inputs_schema: {{ ticket: string }} }}\nentry_step: end\nsteps:\n  \
         - {{ id: end, type: return, output: '{copies}' }}\n"
    );
    let policy = given.policy(&format!("{slug}-policy")).await;
    let versions = vec![policy, given.flow(&format!("{slug}-flow"), &flow).await];
    given.active_with(slug, versions).await
}

/// Four tenants whose runs pause leave places to the runs of a fifth one.
#[tokio::test]
async fn runs_that_pause_leave_places_to_other_tenants() {
    /// More runs than a worker with 128 places takes of one tenant.
    const MANY: usize = 48;
    let provider = StubProvider::new(Behaviour::Holds);
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let mut tenants = Vec::new();
    for name in ["one", "two", "three", "four", "five"] {
        let tenant = app.given().tenant(name).await;
        let workspace = app.given().in_tenant(&tenant, "").workspace(name, name).await;
        tenants.push((app.given().in_tenant(&tenant, &workspace), tenant));
    }
    // All reservations are taken.
    for ((given, tenant), count) in tenants.iter().zip([PER_TENANT, ALL - PER_TENANT]) {
        let asks = given.active_workload("asks").await;
        for _ in 0..count {
            queued(large(&app, &asks).in_tenant(tenant)).await;
        }
    }
    provider.asked(ALL).await;
    let mut multiplies = Vec::new();
    for (given, _) in &tenants {
        multiplies.push(multiplying(given, "multiplies").await);
    }
    let ask = |index: usize, ticket: &str| {
        let (workload, (_, tenant)): (&ActiveWorkload, &(Given, String)) = (&multiplies[index], &tenants[index]);
        let body = json!({ "environment": "dev", "inputs": { "ticket": ticket } });
        queued(app.post(workload.execute_path(), body).in_tenant(tenant))
    };
    let completes = async |index: usize, id: &Value| {
        let path = format!("/v1/executions/{}", id.as_str().unwrap());
        while app.get(&path).in_tenant(&tenants[index].1).await.expect(200)["status"] != "completed" {}
    };
    let (ticket, mut last) = ("x".repeat(10_000), Vec::new());
    for index in 0..4 {
        for _ in 0..MANY {
            last.push((index, ask(index, &ticket).await));
        }
    }
    for _ in 0..10 {
        completes(4, &ask(4, "x").await).await;
    }
    // The paused runs go on, and the queued ones after them.
    provider.becomes(Behaviour::Answers("billing".to_owned()));
    for (index, id) in &last {
        completes(*index, id).await;
    }
}

/// The process is limited to a byte of memory once the run is stored, so that no large output is read.
#[tokio::test]
async fn large_output_is_read_for_callers_alone_who_are_shown_it() {
    let app = TestApp::start().await;
    let given = app.given();
    let flow = "trigger: { type: api_request, inputs_schema: { ticket: string } }\nentry_step: end\nsteps:\n  \
         - { id: end, type: return, output: '{{trigger.ticket}}' }\n";
    let versions = vec![given.policy("policy").await, given.flow("echo", flow).await];
    let echo = given.active_with("echo", versions).await;
    given.role("user:operator", "operator", ("tenant", Some(crate::stage::TENANT))).await;
    let run = large(&app, &echo).await.expect(200)["execution_id"].clone();
    let path = format!("/v1/executions/{}", run.as_str().unwrap());
    fairway_memory_limit::limit_process(1);
    assert_eq!(app.get(&path).await.status, 503, "the submitter is shown a large output");
    let shown = app.get(&path).as_actor("user:operator").await.expect(200);
    assert_eq!((&shown["status"], &shown["queued_result"]), (&json!("completed"), &Value::Null));
    app.get(&path).as_actor("anonymous").await.refused(404, "not_found");
    let cancel = app.post(format!("{path}/cancel"), json!({})).as_actor("user:operator");
    cancel.await.refused(409, "execution_not_cancellable");
    // Its submitter too gets the refusal, which shows no output.
    app.post(format!("{path}/cancel"), json!({})).await.refused(409, "execution_not_cancellable");
}
