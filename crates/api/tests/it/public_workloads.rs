//! Public workloads: anonymous runs within the rate limit, and result tokens.

use crate::support::workspace_fixture::{ECHO_FLOW, TENANT, WORKSPACE, WorkspaceFixture};
use fairway_testkit::{
    TestApp,
    app::{ActiveWorkload, Builder, Client, Request, Response},
};
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) async fn create_public_workload(app: &Client, slug: &str) -> ActiveWorkload {
    let fixtures = app.fixtures();
    let flow = fixtures.flow(&format!("{slug}-flow"), ECHO_FLOW).await;
    let policy = fixtures.allow_all_policy(&format!("{slug}-policy")).await;
    let workload = fixtures.active_workload_with_bindings(slug, vec![flow, policy]).await;
    set_access_mode(app, &workload, "public").await;
    workload
}

async fn set_access_mode(app: &Client, workload: &ActiveWorkload, mode: &str) {
    let config = json!({ "interface_config": { "presentation_mode": "form", "access_mode": mode, "input_fields": [
        { "name": "ticket", "type": "text" },
    ] } });
    app.patch(format!("/v1/workloads/{}", workload.workload_id), config).await.expect(200);
}

fn run_request(app: &Client, workload: &ActiveWorkload) -> Request {
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    app.post(workload.execute_path(), body)
}

#[tokio::test]
async fn anonymous_callers_use_public_workloads_only() {
    let app = TestApp::start().await;
    let workload = create_public_workload(&app, "main").await;
    app.fixtures().bind_role("user:nobody", "auditor", "workspace", Some(WORKSPACE)).await;
    assert_eq!(app.get("/v1/workloads/by-slug/main").as_actor("anonymous").await.expect(200)["slug"], "main");
    for actor in ["anonymous", "user:nobody", "user:ada"] {
        let response = run_request(&app, &workload).as_actor(actor).await.expect(200);
        assert_eq!(response["output"], "a refund");
        assert_eq!(response["result_token"].is_string(), actor == "anonymous", "{response}");
    }
    for path in ["/v1/workloads".to_owned(), "/v1/executions".to_owned(), "/v1/workloads/runtime-enabled".to_owned()] {
        app.get(path).as_actor("anonymous").await.expect_refusal(403, "forbidden");
    }
    app.get(format!("/v1/workloads/{}", workload.workload_id))
        .as_actor("anonymous")
        .await
        .expect_refusal(404, "not_found");
    let body = json!({ "environment": "dev", "inputs": {}, "lane": "restricted" });
    let lane = app.post(workload.execute_path(), body).as_actor("anonymous").await;
    assert_eq!(lane.expect_refusal(403, "forbidden")["permission"], "release.transition");
    // The changed access mode applies to the next request.
    set_access_mode(&app, &workload, "authenticated").await;
    run_request(&app, &workload).as_actor("anonymous").await.expect_refusal(404, "not_found");
    run_request(&app, &workload).as_actor("user:nobody").await.expect_refusal(403, "forbidden");
    app.get("/v1/workloads/by-slug/main").as_actor("anonymous").await.expect_refusal(404, "not_found");
}

#[tokio::test]
async fn result_token_is_shown_once_and_reads_only_its_run() {
    let app = TestApp::start().await;
    let workload = create_public_workload(&app, "main").await;
    let (first_run, second_run) = (
        run_request(&app, &workload).as_actor("anonymous").idempotency_key("k").await.expect(200),
        run_request(&app, &workload).as_actor("anonymous").await.expect(200),
    );
    let path = |run: &Value| format!("/v1/executions/{}", run["execution_id"].as_str().unwrap());
    let token = |run: &Value| run["result_token"].as_str().unwrap().to_owned();
    assert!(
        token(&first_run).starts_with("fwr_")
            && token(&first_run).len() == 47
            && token(&first_run) != token(&second_run)
    );
    let read_run = |run: &Value, token: &str| app.get(path(run)).as_actor("anonymous").header("X-Result-Token", token);
    let run_view = read_run(&first_run, &token(&first_run)).await.expect(200);
    assert_eq!(
        (&run_view["queued_result"]["result"], &run_view["submitted_by"]),
        (&json!("a refund"), &json!("anonymous"))
    );
    for wrong_token in [
        token(&second_run),
        String::new(),
        token(&first_run).to_uppercase(),
        format!("{} ", token(&first_run)),
        token(&first_run)[1..].to_owned(),
    ] {
        let response = read_run(&first_run, &wrong_token).await;
        // Surrounding whitespace is not part of a header value, so this token is still valid.
        if wrong_token.trim() == token(&first_run) {
            response.expect(200)
        } else {
            response.expect_refusal(404, "not_found")
        };
    }
    app.get(path(&first_run)).as_actor("anonymous").await.expect_refusal(404, "not_found");
    let repeated_header = read_run(&first_run, &token(&first_run)).header("X-Result-Token", token(&first_run)).await;
    repeated_header.expect_refusal(422, "validation_error");
    // A caller that may view runs reads the run, without its result.
    assert_eq!(app.get(path(&first_run)).await.expect(200)["queued_result"], Value::Null);
    // Another anonymous caller may have sent the same key. The replay therefore returns only identifier and state of
    // the run.
    let replay = run_request(&app, &workload).as_actor("anonymous").idempotency_key("k").await;
    assert_eq!(replay.header("idempotency-replayed"), Some("true"));
    assert_eq!(replay.expect(200), json!({ "execution_id": first_run["execution_id"], "state": "completed" }));
}

fn server_with_rate_limit(per_minute: u32, burst: u32) -> Builder {
    TestApp::builder()
        .setting("FAIRWAY_PUBLIC_RATE_PER_MINUTE", per_minute.to_string())
        .setting("FAIRWAY_PUBLIC_RATE_BURST", burst.to_string())
}

#[track_caller]
fn assert_rate_limited(response: &Response, per_minute: u32) {
    response.expect_refusal(429, "rate_limited");
    let number = |name: &str| response.header(name).unwrap().parse::<u32>().unwrap();
    assert!((1..=60).contains(&number("retry-after")), "{response}");
    assert_eq!((number("ratelimit-limit"), number("ratelimit-remaining")), (per_minute, 0));
    assert_eq!(number("ratelimit-reset"), number("retry-after"));
}

/// Threat T43 in `docs/security.md`: all servers count requests of a client together, whatever its claimed actor and
/// headers are.
#[tokio::test]
async fn rate_limit_counts_each_client_and_workload_across_servers() {
    let app = server_with_rate_limit(1, 4).start().await;
    let second_server = server_with_rate_limit(1, 4).sharing_storage_of(&app).start().await;
    let (workload, other_workload) =
        (create_public_workload(&app, "main").await, create_public_workload(&app, "other").await);
    let spoofed_headers =
        [("X-Forwarded-For", "192.0.2.1"), ("Forwarded", "for=192.0.2.2"), ("X-Real-IP", "192.0.2.3")];
    run_request(&app, &workload).as_actor("anonymous").await.expect(200);
    run_request(&second_server, &workload).as_actor("user:ada").await.expect(200);
    run_request(&app, &workload).header(spoofed_headers[0].0, spoofed_headers[0].1).await.expect(200);
    second_server.get("/v1/workloads/by-slug/main").as_actor("anonymous").await.expect(200);
    let runs = "SELECT count(*) FROM execution";
    let owner = app.database().connect_as_owner().await.unwrap();
    let runs_before: i64 = owner.query_one(runs, &[]).await.unwrap().get(0);
    for server in [&app, &second_server] {
        for (header, value) in spoofed_headers {
            assert_rate_limited(&run_request(server, &workload).header(header, value).as_actor("anonymous").await, 1);
        }
        assert_rate_limited(&run_request(server, &workload).await, 1);
        assert_rate_limited(&server.get("/v1/workloads/by-slug/main").await, 1);
    }
    assert_eq!(owner.query_one(runs, &[]).await.unwrap().get::<_, i64>(0), runs_before);
    // The other workload has its own counter. Workloads that are not public have no counter.
    run_request(&app, &other_workload).as_actor("anonymous").await.expect(200);
    set_access_mode(&app, &other_workload, "authenticated").await;
    for _ in 0..6 {
        run_request(&app, &other_workload).await.expect(200);
    }
    // After a workload stops being public, its cached counter no longer limits requests.
    set_access_mode(&second_server, &workload, "authenticated").await;
    let wait_for_window = async {
        while run_request(&app, &workload).await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), wait_for_window).await.unwrap();
    set_access_mode(&second_server, &workload, "public").await;
    // The limit allows one more request after a minute of the database's clock.
    app.database().set_clock_offset(61).await.unwrap();
    let third_server = server_with_rate_limit(1, 4).sharing_storage_of(&app).start().await;
    run_request(&third_server, &workload).as_actor("anonymous").await.expect(200);
    assert_rate_limited(&run_request(&third_server, &workload).as_actor("anonymous").await, 1);
    // The scheduled sweep deletes the counters of idle clients.
    app.database().set_clock_offset(3600).await.unwrap();
    let counters = "INSERT INTO throttle SELECT '00000000-0000-7000-8000-000000000001', sha256(number::text::bytea),
        fairway_now() + interval '1 minute' * sign(number - 20000) FROM generate_series(1, 20001) AS number";
    owner.execute(counters, &[]).await.unwrap();
    // The servers also sweep in the background, so only the remaining counters are compared.
    app.services().rate_limits.delete_idle_clients().await.unwrap();
    assert_eq!(owner.query_one("SELECT count(*) FROM throttle", &[]).await.unwrap().get::<_, i64>(0), 1);
    app.database().set_clock_offset(7200).await.unwrap();
    app.services().rate_limits.delete_idle_clients().await.unwrap();
    assert_eq!(owner.query_one("SELECT count(*) FROM throttle", &[]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test]
async fn rate_limit_counts_anonymous_reads_of_a_run() {
    let app = server_with_rate_limit(1, 5).start().await;
    let (workload, other_workload) =
        (create_public_workload(&app, "main").await, create_public_workload(&app, "other").await);
    let response = run_request(&app, &workload).as_actor("anonymous").await.expect(200);
    let (id, token) =
        (response["execution_id"].as_str().unwrap(), response["result_token"].as_str().unwrap().to_owned());
    let get = |suffix: &str| app.get(format!("/v1/executions/{id}{suffix}")).as_actor("anonymous");
    // Refused reads get 404, and never 429, so that they reveal nothing about the counter.
    for _ in 0..6 {
        get("").await.expect_refusal(404, "not_found");
    }
    get("").header("X-Result-Token", &token).await.expect(200);
    assert_eq!(get("/events").header("X-Result-Token", &token).await.status, 200);
    let cancel = || {
        let cancel = app.post(format!("/v1/executions/{id}/cancel"), json!({}));
        cancel.as_actor("anonymous").header("X-Result-Token", &token)
    };
    cancel().await.expect_refusal(409, "execution_not_cancellable");
    get("").header("X-Result-Token", &token).await.expect(200);
    assert_rate_limited(&get("").header("X-Result-Token", &token).await, 1);
    assert_rate_limited(&get("/events").header("X-Result-Token", &token).await, 1);
    assert_rate_limited(&cancel().await, 1);
    assert_rate_limited(&run_request(&app, &workload).as_actor("anonymous").await, 1);
    // Identified callers are not counted. The other workload has its own counter.
    app.get(format!("/v1/executions/{id}")).await.expect(200);
    run_request(&app, &other_workload).as_actor("anonymous").await.expect(200);
}

/// A stored public host has no effect if the operator uses this host name for the server itself.
#[tokio::test]
async fn stored_public_host_that_the_operator_uses_selects_no_tenant() {
    let hosts = ["vault.house.example", "models.example", "forms.example"];
    let app = crate::local_mode_behind_proxy::exposed_server()
        .setting("FAIRWAY_ALLOWED_HOSTS", hosts.join(", "))
        .setting("VAULT_ADDR", "https://Vault.house.example:8200")
        .setting("VAULT_TOKEN", "x")
        .config_file("[[providers]]\naccount_slot = \"a\"\nkind = \"openai\"\nbase_url = \"https://models.example/v1\"")
        .start()
        .await;
    let own_workload = create_public_workload(&app, "main").await;
    let other_tenant = app.fixtures().tenant("abroad").await;
    let owner = app.database().connect_as_owner().await.unwrap();
    for host in hosts {
        let stored = format!("INSERT INTO tenant_public_host (tenant_id, host) VALUES ('{other_tenant}', '{host}')");
        owner.execute(&stored, &[]).await.unwrap();
    }
    for (host, status) in [("vault.house.example", 200), ("Models.example:8080", 200), ("forms.example", 404)] {
        let request =
            app.get(format!("/v1/workloads/by-slug/{}", own_workload.slug)).as_actor("anonymous").header("Host", host);
        let response = request.await;
        assert_eq!(response.status, status, "{host}: {response}");
    }
}

/// An anonymous request belongs to the tenant that lists the request's host as a public host.
#[tokio::test]
async fn host_selects_the_tenant_of_anonymous_callers() {
    let hosts = "forms.example, other.example";
    let app = crate::local_mode_behind_proxy::exposed_server().setting("FAIRWAY_ALLOWED_HOSTS", hosts).start().await;
    let own_workload = create_public_workload(&app, "main").await;
    let foreign_fixture = WorkspaceFixture::in_other_tenant(&app).await;
    let foreign_workload = foreign_fixture.fixtures.active_workload("main").await;
    let form = json!({ "interface_config": { "presentation_mode": "form", "access_mode": "public", "input_fields": [
        { "name": "ticket", "type": "text" },
    ] } });
    app.patch(format!("/v1/workloads/{}", foreign_workload.workload_id), form)
        .in_tenant(&foreign_fixture.tenant)
        .await
        .expect(200);
    let settings = format!("/v1/tenants/{}/settings", foreign_fixture.tenant);
    let answers_to =
        |hosts: Value| app.patch(settings.clone(), json!({ "public_hosts": hosts })).in_tenant(&foreign_fixture.tenant);
    answers_to(json!(["forms.example"])).await.expect(200);
    // Executes a run at a host. Returns the workload that ran, the path of the run and its result token.
    let run_at = async |host: &'static str| {
        let at_host = |request: Request| request.as_actor("anonymous").header("Host", host);
        let response = at_host(run_request(&app, &own_workload)).await.expect(200);
        let (path, token) =
            (format!("/v1/executions/{}", response["execution_id"].as_str().unwrap()), &response["result_token"]);
        let read_with_token = |request: Request| at_host(request).header("X-Result-Token", token.as_str().unwrap());
        let workload_id = read_with_token(app.get(&path)).await.expect(200)["workload_id"].clone();
        assert_eq!(read_with_token(app.get(format!("{path}/events"))).await.status, 200);
        (workload_id, path, token.as_str().unwrap().to_owned())
    };
    let (workload, path, token) = run_at("Forms.Example:8080").await;
    assert_eq!(workload, foreign_workload.workload_id);
    let read_at_other_host = app.get(&path).as_actor("anonymous").header("X-Result-Token", token);
    read_at_other_host.await.expect_refusal(404, "not_found");
    assert_eq!(run_at("other.example").await.0, own_workload.workload_id);
    assert_eq!(run_at("localhost").await.0, own_workload.workload_id);
    // An anonymous caller cannot choose a tenant. An identified caller always belongs to its own tenant.
    for tenant in [&foreign_fixture.tenant, TENANT] {
        run_request(&app, &own_workload).as_actor("anonymous").in_tenant(tenant).await.expect_refusal(404, "not_found");
        app.get("/v1/workloads").as_actor("anonymous").in_tenant(tenant).await.expect_refusal(404, "not_found");
    }
    let named_run = run_request(&app, &own_workload).as_actor("user:ada").await.expect(200);
    let execution =
        app.get(format!("/v1/executions/{}", named_run["execution_id"].as_str().unwrap())).await.expect(200);
    assert_eq!(execution["workload_id"], own_workload.workload_id);
    // At a host that is not loopback, the server treats the request as anonymous. The host therefore selects the
    // tenant.
    let unnamed =
        run_request(&app, &own_workload).as_actor("user:ada").header("Host", "forms.example").await.expect(200);
    let unnamed_read = app.get(format!("/v1/executions/{}", unnamed["execution_id"].as_str().unwrap()));
    assert_eq!(
        unnamed_read.in_tenant(&foreign_fixture.tenant).await.expect(200)["workload_id"],
        foreign_workload.workload_id
    );
    // With a share token, the tenant of the token is used, whatever the host is.
    let links = format!("/v1/workloads/{}/share-links", foreign_workload.workload_id);
    let link = app.post(links, json!({})).in_tenant(&foreign_fixture.tenant).await.expect(201);
    let by_link =
        run_request(&app, &own_workload).header("X-Share-Token", link["token"].as_str().unwrap()).as_actor("anonymous");
    let by_link = by_link.header("Host", "other.example").await.expect(200)["execution_id"].clone();
    let read_by_link =
        app.get(format!("/v1/executions/{}", by_link.as_str().unwrap())).in_tenant(&foreign_fixture.tenant);
    assert_eq!(read_by_link.await.expect(200)["workload_id"], foreign_workload.workload_id);
    // The removal of the host applies to the next request.
    answers_to(json!([])).await.expect(200);
    assert_eq!(run_at("forms.example").await.0, own_workload.workload_id);
}

#[tokio::test]
async fn rate_limit_uses_the_rightmost_untrusted_forwarded_address() {
    let app = server_with_rate_limit(1, 2)
        .setting("FAIRWAY_LOCAL_MODE_EXPOSED", "i-understand")
        .setting("FAIRWAY_TRUSTED_PROXIES", "127.0.0.1, 10.0.0.0/8")
        .start()
        .await;
    let workload = create_public_workload(&app, "main").await;
    let run_through = |chain: &str| run_request(&app, &workload).as_actor("anonymous").header("X-Forwarded-For", chain);
    run_through("192.0.2.1").await.expect(200);
    // Entries to the left of the trusted proxy's entry come from the client, so they are not trusted.
    run_through("203.0.113.5, 192.0.2.1").await.expect(200);
    for chain in ["192.0.2.1", "203.0.113.6, 192.0.2.1", "198.51.100.1, 192.0.2.1, 10.1.2.3", "::ffff:192.0.2.1"] {
        assert_rate_limited(&run_through(chain).await, 1);
    }
    run_through("192.0.2.2").await.expect(200);
    // All addresses of an IPv6 /64 network count as one client.
    run_through("2001:db8:1:2::1").await.expect(200);
    run_through("2001:db8:1:2:aaaa::2").await.expect(200);
    for host in ["::3", "ffff:ffff:ffff:ffff", "1:2:3:4"] {
        let address =
            if host.starts_with("::") { format!("2001:db8:1:2{host}") } else { format!("2001:db8:1:2:{host}") };
        assert_rate_limited(&run_through(&address).await, 1);
    }
    run_through("2001:db8:1:3::1").await.expect(200);
}
