//! Tokens of share links. A token gives access to one workload, cannot be guessed, and is not stored in plain text.

use crate::{
    share_link::{
        active_echo_workload, create_link, create_shared_workload, links_path, query_number, run_request,
        set_access_mode, use_count,
    },
    support::{
        captured_telemetry::CapturedServer,
        token_scanner::{TokenScanner, dump_database, token_spellings},
        workspace_fixture::{TENANT, WorkspaceFixture},
    },
};
use fairway_testkit::{
    TestApp,
    app::{ActiveWorkload, Client, Request},
};
use serde_json::{Value, json};

#[tokio::test]
async fn token_reads_its_workload_and_starts_runs() {
    let app = TestApp::start().await;
    let workload = create_shared_workload(&app, "main").await;
    let link = create_link(&app, &workload, json!({ "max_uses": 3, "lane": "restricted" })).await;
    let page = format!("/v1/workloads/by-slug/main?token={}", link.token);
    assert_eq!(app.get(&page).await.expect(200)["slug"], "main");
    app.get("/v1/workloads/by-slug/main").header("X-Share-Token", &link.token).await.expect(200);
    app.get(&page).header("X-Share-Token", &link.token).await.expect(200);
    let other_link = create_link(&app, &workload, json!({})).await;
    let refusal =
        app.get(&page).header("X-Share-Token", &other_link.token).await.expect_refusal(422, "validation_error");
    assert_eq!(refusal["fields"][0]["path"], "token");
    app.get(&page)
        .header("X-Share-Token", &link.token)
        .header("X-Share-Token", &link.token)
        .await
        .expect_refusal(422, "validation_error");
    app.get(format!("{page}&token={}", link.token)).await.expect_refusal(422, "validation_error");
    let response = run_request(&app, &workload, &link.token).await.expect(200);
    assert_eq!((&response["status"], &response["output"]), (&json!("completed"), &json!("a refund")));
    assert_eq!(response.get("result_token"), None);
    let path = format!("/v1/executions/{}", response["execution_id"].as_str().unwrap());
    let execution = app.get(format!("{path}?token={}", link.token)).await.expect(200);
    assert_eq!(execution["submitted_by"], format!("share_link:{}", link.id));
    assert_eq!(
        (&execution["queued_result"]["result"], &execution["lane"], &execution["steps"]),
        (&json!("a refund"), &json!("restricted"), &Value::Null)
    );
    // Neither the token of another link nor a caller without a token can read the run.
    app.get(format!("{path}?token={}", other_link.token)).await.expect_refusal(404, "not_found");
    app.get(&path).as_actor("anonymous").await.expect_refusal(404, "not_found");
    assert_eq!(app.get(&path).await.expect(200)["queued_result"], Value::Null);
    // If an identified actor sends a token, the run belongs to the actor, and also consumes a use of the link.
    let named_run = run_request(&app, &workload, &link.token).as_actor("user:ada").await.expect(200);
    let path = format!("/v1/executions/{}", named_run["execution_id"].as_str().unwrap());
    assert_eq!(app.get(&path).as_actor("user:ada").await.expect(200)["submitted_by"], "user:ada");
    app.get(format!("{path}?token={}", link.token)).await.expect_refusal(404, "not_found");
    assert_eq!(use_count(&app, &workload, &link).await, 2);
    // To choose a lane, a caller needs a permission that no link gives.
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" }, "lane": "standard" });
    let chosen = app.post(format!("{}?token={}", workload.execute_path(), link.token), body).await;
    assert_eq!(chosen.expect_refusal(403, "forbidden")["permission"], "release.transition");
    assert_eq!(use_count(&app, &workload, &link).await, 2);
    // The run records the link through which it was started.
    let sql = format!("SELECT count(*) FROM execution WHERE share_link_id = '{}'", link.id);
    assert_eq!(query_number(&app, &sql).await, 2);
}

#[tokio::test]
async fn lane_of_a_link_serves_its_runs() {
    let app = TestApp::start().await;
    let workload = create_shared_workload(&app, "main").await;
    let release_with_review = app.fixtures().approved_release(&workload.workload_id, &workload.versions).await;
    let body = json!({ "to_state": "active", "lane": "restricted" });
    app.post(format!("/v1/releases/{release_with_review}/transition"), body).await.expect(200);
    for (lane, expected) in
        [(json!("restricted"), "restricted"), (json!(null), "standard"), (json!("guided"), "guided")]
    {
        let link = create_link(&app, &workload, json!({ "lane": lane })).await;
        let response = run_request(&app, &workload, &link.token).await.expect(200);
        let path = format!("/v1/executions/{}?token={}", response["execution_id"].as_str().unwrap(), link.token);
        let execution = app.get(path).await.expect(200);
        assert_eq!(execution["lane"], expected);
        assert_eq!(execution["release_id"] == *release_with_review, expected == "restricted");
    }
}

/// Threat T29 in `docs/security.md`: a token gives access to one workload only, on the routes of that workload.
#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one scenario, read from its start to its end")]
async fn token_gives_access_to_its_workload_only() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let workload = create_shared_workload(&app, "shared").await;
    let other_workload = create_shared_workload(&app, "other").await;
    set_access_mode(&app, &other_workload, "authenticated").await;
    let link = create_link(&app, &workload, json!({ "max_uses": 5 })).await;
    let token = &link.token;
    run_request(&app, &other_workload, token).await.expect_refusal(401, "share_token_invalid");
    app.get(format!("/v1/workloads/by-slug/other?token={token}")).await.expect_refusal(401, "share_token_invalid");
    // With the token, an unknown slug and another link's workload cause the same response.
    app.get(format!("/v1/workloads/by-slug/nobodys?token={token}")).await.expect_refusal(401, "share_token_invalid");
    let unknown_workload = ActiveWorkload { slug: "nobodys".to_owned(), ..other_workload.clone() };
    run_request(&app, &unknown_workload, token).await.expect_refusal(401, "share_token_invalid");
    // An actor that may run the other workload is also refused if it sends this token.
    run_request(&app, &other_workload, token).as_actor("user:local").await.expect_refusal(401, "share_token_invalid");
    // Other routes ignore the token's access. They refuse the token without an actor, and use the actor's
    // permissions otherwise.
    let with_token = |request: Request| request.header("X-Share-Token", token);
    for operation in [
        "list_workloads",
        "read_workload",
        "list_executions",
        "list_share_links",
        "create_share_link",
        "revoke_share_link",
        "create_workload",
        "read_evidence_graph",
        "list_audit_events",
        "read_active_release",
    ] {
        with_token(fixture.successful_request(operation).await).await.expect_refusal(401, "share_token_invalid");
        let response = with_token(fixture.successful_request(operation).await).as_actor("anonymous").await;
        assert!([403, 404].contains(&response.status), "{response}");
    }
    with_token(app.get(links_path(&workload))).await.expect_refusal(401, "share_token_invalid");
    with_token(app.get(format!("/v1/workloads/{}", workload.workload_id)))
        .await
        .expect_refusal(401, "share_token_invalid");
    with_token(app.get(format!("/v1/executions/{}", fixture.execution))).await.expect_refusal(404, "not_found");
    // Percent-encoded spellings of the same path are refused.
    for encoded_slug in ["%73hared", "share%64"] {
        let page = format!("/v1/workloads/by-slug/{encoded_slug}");
        app.get(format!("{page}?token={token}")).await.expect_refusal(401, "share_token_invalid");
        let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
        let run = app.post(format!("{page}/execute"), body).header("X-Share-Token", token);
        run.await.expect_refusal(401, "share_token_invalid");
    }
    // The server refuses a token that names another tenant, and a request that selects another tenant.
    let other_tenant = app.fixtures().tenant("abroad").await;
    let token_of_other_tenant = token.replace(&TENANT.replace('-', ""), &other_tenant.replace('-', ""));
    run_request(&app, &workload, &token_of_other_tenant).await.expect_refusal(401, "share_token_invalid");
    run_request(&app, &workload, token).in_tenant(&other_tenant).await.expect_refusal(404, "not_found");
    // Altered variants of the token are invalid.
    let last_character = &token[token.len() - 1..];
    let variants = [
        String::new(),
        "%00".to_owned(),
        format!("{token}%00"),
        format!("{token}%ff"),
        format!("{token}%"),
        "%20".to_owned(),
        format!("{token}%20"),
        format!("%20{token}"),
        format!("+{token}"),
        token.to_uppercase(),
        token[1..].to_owned(),
        token[..token.len() - 1].to_owned(),
        format!("{token}{last_character}"),
        format!("{token}="),
        token.replacen("fws_", "FWS_", 1),
        token.replacen("fws_", "fwr_", 1),
        format!("{token},{token}"),
        link.id.clone(),
        "x".repeat(2_000),
    ];
    for variant in variants {
        run_request(&app, &workload, &variant).await.expect_refusal(401, "share_token_invalid");
    }
    // The percent-encoded token is the same token.
    let encoded: String = token.bytes().map(|byte| format!("%{byte:02x}")).collect();
    assert_eq!(use_count(&app, &workload, &link).await, 0);
    run_request(&app, &workload, &encoded).await.expect(200);
    assert_eq!(use_count(&app, &workload, &link).await, 1);
}

#[tokio::test]
async fn link_selects_its_tenant_without_a_session() {
    let app = TestApp::start().await;
    let foreign_fixture = WorkspaceFixture::in_other_tenant(&app).await;
    let path = format!("/v1/workloads/{}/share-links", foreign_fixture.workload.workload_id);
    let link = app.post(path, json!({})).in_tenant(&foreign_fixture.tenant).await.expect(201);
    let token = link["token"].as_str().unwrap();
    // For every caller, the token determines the tenant of the request.
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    let run =
        app.post(format!("{}?token={token}", foreign_fixture.workload.execute_path()), body.clone()).await.expect(200);
    let read_request = app.get(format!("/v1/executions/{}?token={token}", run["execution_id"].as_str().unwrap()));
    assert!(!read_request.await.expect(200)["queued_result"]["result"].is_null());
    app.post(foreign_fixture.workload.execute_path(), body)
        .as_actor("anonymous")
        .await
        .expect_refusal(404, "not_found");
}

/// Threat T30 in `docs/security.md`: all servers rate limit a client that guesses tokens. Clients with a valid token at
/// other addresses are served.
#[tokio::test]
async fn rate_limits_guesses_of_tokens() {
    let with_rate_limit = |builder: fairway_testkit::app::Builder| {
        builder
            .setting("FAIRWAY_PUBLIC_RATE_PER_MINUTE", "5")
            .setting("FAIRWAY_LOCAL_MODE_EXPOSED", "i-understand")
            .setting("FAIRWAY_TRUSTED_PROXIES", "127.0.0.1")
    };
    let app = with_rate_limit(TestApp::builder()).start().await;
    let second_server = with_rate_limit(TestApp::builder()).sharing_storage_of(&app).start().await;
    let workload = create_shared_workload(&app, "main").await;
    let link = create_link(&app, &workload, json!({})).await;
    let wrong_token = format!("{}AAAA", &link.token[..link.token.len() - 4]);
    let guess = |server: &Client, client_address: &str| {
        run_request(server, &workload, &wrong_token).header("X-Forwarded-For", client_address)
    };
    for number in 0..5 {
        let server: &Client = if number % 2 == 0 { &app } else { &second_server };
        guess(server, "192.0.2.1").await.expect_refusal(401, "share_token_invalid");
    }
    for server in [&app, &second_server] {
        let response = guess(server, "192.0.2.1").await;
        response.expect_refusal(429, "rate_limited");
        assert!(
            response.header("retry-after").is_some_and(|seconds| (1..=12).contains(&seconds.parse::<u64>().unwrap()))
        );
        // A client that exceeded the limit is refused even with a valid token.
        run_request(server, &workload, &link.token)
            .header("X-Forwarded-For", "192.0.2.1")
            .await
            .expect_refusal(429, "rate_limited");
    }
    guess(&app, "192.0.2.2").await.expect_refusal(401, "share_token_invalid");
    run_request(&app, &workload, &link.token).header("X-Forwarded-For", "192.0.2.2").await.expect(200);
    // A request with an exhausted token does not count as a guess.
    for _ in 0..10 {
        run_request(&app, &workload, &link.token)
            .header("X-Forwarded-For", "192.0.2.3")
            .await
            .expect_refusal(401, "share_token_exhausted");
    }
}

/// Number of created links, and the number of links whose tokens are sent with every kind of request.
fn link_counts() -> (usize, usize) {
    if fairway_testkit::is_long_form_requested() { (1_000, 50) } else { (20, 20) }
}

/// Creates a workload that records transcripts, so that artifacts contain the inputs of callers.
async fn create_recorded_workload(app: &Client) -> ActiveWorkload {
    let fixtures = app.fixtures();
    let rules = json!([{ "id": "all", "condition": "always", "outcome": "allow_with_obligations", "reason_code": "recorded",
        "obligations": ["record_transcript"] }]);
    let versions = vec![
        fixtures.ticket_prompt("recorded-prompt").await,
        fixtures.model_policy("recorded-model").await,
        fixtures.policy_with_rules("recorded-policy", rules).await,
    ];
    let workload = fixtures.active_workload_with_bindings("recorded", versions).await;
    set_access_mode(app, &workload, "link_shared").await;
    workload
}

/// Promise R13 and threat T28 in `docs/security.md`: a token appears only in the response of the request that creates
/// it.
#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one scenario, read from its start to its end")]
async fn tokens_appear_in_no_log_span_metric_row_or_artifact() {
    let server = CapturedServer::start("trace").await;
    let app = &server.client;
    let workload = create_shared_workload(app, "main").await;
    let public = active_echo_workload(app, "public").await;
    set_access_mode(app, &public, "public").await;
    let recorded = create_recorded_workload(app).await;
    let mut tokens = Vec::new();
    let (link_count, sent_count) = link_counts();
    for number in 0..link_count {
        let link = create_link(app, &workload, json!({ "max_uses": 2 })).await;
        if number >= sent_count {
            tokens.push(link.token);
            continue;
        }
        run_request(app, &workload, &link.token).idempotency_key(&format!("k{number}")).await.expect(200);
        let wrong_token = format!("{}AAAA", &link.token[..link.token.len() - 4]);
        let requests = [
            app.get(format!("/v1/workloads/by-slug/main?token={}", link.token)),
            app.get("/v1/workloads/by-slug/main").header("X-Share-Token", &link.token),
            app.get(format!("/v1/workloads?token={}", link.token)),
            app.get(format!("/v1/workloads/by-slug/main?token={wrong_token}")),
            app.get(format!("/nowhere?token={}", link.token)),
            app.get(format!("/ticket-classifier?token={}", link.token)),
            app.get(format!("/v1/workloads/by-slug/main?token={}&token={}", link.token, link.token)),
            app.get(format!("/v1/workloads/by-slug/main?token={}&x=1", link.token)),
            app.post(format!("{}?token={}", workload.execute_path(), link.token), json!({ "environment": 1 })),
        ];
        for request in requests {
            let response = request.await;
            assert!(!response.text().contains(&link.token) && !response.text().contains(&wrong_token), "{response}");
            assert!(
                response
                    .headers
                    .values()
                    .all(|value| !value.as_bytes().windows(43).any(|part| part == &link.token.as_bytes()[37..]))
            );
            assert_eq!(response.header("referrer-policy"), Some("no-referrer"), "{response}");
            assert_eq!(response.header("cache-control"), Some("no-store"), "{response}");
        }
        tokens.push(link.token);
        let link = create_link(app, &recorded, json!({ "max_uses": 2 })).await;
        run_request(app, &recorded, &link.token).await.expect(200);
        tokens.push(link.token);
    }
    for _ in 0..5 {
        let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
        let response = app.post(public.execute_path(), body).as_actor("anonymous").await.expect(200);
        let token = response["result_token"].as_str().unwrap().to_owned();
        let path = format!("/v1/executions/{}", response["execution_id"].as_str().unwrap());
        app.get(&path).as_actor("anonymous").header("X-Result-Token", &token).await.expect(200);
        tokens.push(token);
    }
    let metrics = app.get("/metrics").await.text();
    let events = app.get("/v1/audit/events?limit=200").await.text();
    let (telemetry, database) = server.shut_down().await;
    let rows = dump_database(&database).await;
    assert!(rows.contains("share_link") && telemetry.log.contains("by-slug") && telemetry.spans.len() > 1_000);
    // The search includes artifacts and transcripts of runs that were started with tokens.
    let contents = telemetry.files.values().filter(|bytes| String::from_utf8_lossy(bytes).contains("Sort the ticket"));
    assert!(contents.count() > 0 && telemetry.files.len() > 5, "{} artifacts", telemetry.files.len());
    assert!(rows.matches("Ticket: a refund").count() >= sent_count, "no transcripts in the database");
    let scanner = TokenScanner::new(&tokens);
    // Control: the scanner finds each spelling of a token when it is surrounded by other bytes.
    for token in [&tokens[0], &tokens[tokens.len() - 1]] {
        for spelling in token_spellings(token) {
            let hidden = [b"some bytes before it".as_slice(), &spelling, b"and behind it"].concat();
            assert_eq!(scanner.find(&hidden), Some(token.as_str()), "{}", String::from_utf8_lossy(&spelling));
        }
    }
    let texts = [
        ("log", &telemetry.log),
        ("spans", &telemetry.spans),
        ("metrics", &metrics),
        ("audit log", &events),
        ("database", &rows),
    ];
    let texts = texts.map(|(source, text)| (source.to_owned(), text.as_bytes()));
    let files = telemetry.files.iter().map(|(path, bytes)| (path.display().to_string(), bytes.as_slice()));
    for (source, bytes) in texts.into_iter().chain(files) {
        assert_eq!(scanner.find(bytes), None, "{source} holds a token");
    }
}
