//! Callers that an identity provider proves: names, tenants, groups, rights and refusals over HTTP.

use fairway_testkit::{
    ACCESS_TOKEN_AUDIENCE, ProviderBehaviour, StubProvider, TestApp, TestIssuer,
    app::{Builder, Request},
};
use serde_json::{Value, json};

const DEFAULT_TENANT_ID: &str = "00000000-0000-7000-8000-000000000001";
const WORKSPACE: &str = "00000000-0000-7000-8000-000000000003";

pub(crate) trait WithToken {
    fn token(self, token: &str) -> Request;
}

impl WithToken for Request {
    fn token(self, token: &str) -> Request {
        self.header("Authorization", format!("Bearer {token}"))
    }
}

async fn issuer() -> TestIssuer {
    TestIssuer::start().await.unwrap()
}

/// Starts a server in local mode, which creates fixtures, and a server in OIDC mode on the same database.
async fn start_with(issuer: &TestIssuer, change: impl FnOnce(Builder) -> Builder) -> (TestApp, TestApp) {
    let local = TestApp::builder().start().await;
    let app = change(TestApp::builder().sharing_storage_of(&local).oidc(issuer)).start().await;
    (local, app)
}

async fn start() -> (TestIssuer, TestApp, TestApp) {
    let issuer = issuer().await;
    let (local, app) = start_with(&issuer, |builder| builder).await;
    (issuer, local, app)
}

async fn facts(app: &TestApp, root: &str, kind: &str) -> Vec<Value> {
    // The sequencer runs in the background, so the facts appear with a delay.
    for _ in 0..400 {
        let events = app.get("/v1/audit/events?limit=200").token(root).await.expect(200);
        let of_kind: Vec<Value> =
            events.as_array().unwrap().iter().filter(|event| event["kind"] == kind).cloned().collect();
        if !of_kind.is_empty() {
            return of_kind;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    Vec::new()
}

#[tokio::test]
async fn challenges_callers_without_identity() {
    let (_issuer, _local, app) = start().await;
    app.get("/healthz").await.expect(200);
    for path in ["/v1/workloads", "/v1/session", "/v1/tenants", "/v1/audit/events"] {
        let response = app.get(path).await;
        let challenge = response.header("www-authenticate").unwrap().to_owned();
        response.expect_refusal(401, "unauthenticated");
        assert!(challenge.starts_with("Bearer resource_metadata=\"http://127.0.0.1:"), "{challenge}");
    }
    // In OIDC mode, the identity header of local mode is refused.
    app.get("/v1/workloads").as_actor("user:root").await.expect_refusal(403, "actor_ref_not_allowed");
    app.get("/healthz").as_actor("user:root").await.expect(200);
}

#[tokio::test]
async fn names_callers_by_claims_and_grants_only_their_bindings() {
    let (issuer, local, app) = start().await;
    let ada = issuer.person_token("Ada", &["Readers"]);
    let session = app.get("/v1/session").token(&ada).await.expect(200);
    assert_eq!((&session["actor"], &session["groups"]), (&json!("user:ada"), &json!(["group:readers"])));
    assert_eq!((&session["tenant_id"], &session["roles"]), (&json!(DEFAULT_TENANT_ID), &json!([])));
    // A subject without a role has no permission, unlike in local mode.
    app.get("/v1/tenants").token(&ada).await.expect_refusal(403, "forbidden");
    let listed = app.get("/v1/assets").token(&ada).await;
    assert!([200, 403, 422].contains(&listed.status), "{}", listed.text());
    // A role of the group applies to the next request. After the role is removed, the next request is refused.
    let workspace = format!("/v1/workspaces/{WORKSPACE}");
    app.get(&workspace).token(&ada).await.expect_refusal(403, "forbidden");
    let binding = local.fixtures().bind_role("group:readers", "viewer", "workspace", Some(WORKSPACE)).await;
    app.get(&workspace).token(&ada).await.expect(200);
    local.delete(format!("/v1/role-bindings/{binding}")).await.expect(204);
    app.get(&workspace).token(&ada).await.expect_refusal(403, "forbidden");
    // A token without the group has no role of the group, although an earlier token of the same person contained the
    // group.
    local.fixtures().bind_role("group:readers", "viewer", "workspace", Some(WORKSPACE)).await;
    app.get(&workspace).token(&issuer.person_token("Ada", &[])).await.expect_refusal(403, "forbidden");
    app.get(&workspace).token(&ada).await.expect(200);
    let service = app.get("/v1/session").token(&issuer.service_token("ci")).await.expect(200);
    assert_eq!(service["actor"], "service:ci");
}

/// Providers mark tokens for client credentials in different ways.
#[tokio::test]
async fn clients_of_keycloak_and_entra_id_are_services() {
    let (issuer, _local, app) = start().await;
    let keycloak =
        json!({"sub": "7b1c", "client_id": "build", "preferred_username": "service-account-build", "groups": []});
    let entra = json!({"sub": "9f2e", "oid": "9f2e", "azp": "0d3c", "ver": "2.0"});
    let marked = json!({"sub": "4a5b", "oid": "4a5b", "appid": "6e7f", "idtyp": "app", "ver": "1.0"});
    let person = json!({"sub": "1", "azp": "portal", "preferred_username": "service-account-build"});
    for (claims, actor) in [
        (keycloak, "service:build"),
        (entra, "service:0d3c"),
        (marked, "service:6e7f"),
        (person, "user:service-account-build"),
    ] {
        assert_eq!(app.get("/v1/session").token(&issuer.token(claims)).await.expect(200)["actor"], actor);
    }
}

#[tokio::test]
async fn bootstrap_administrators_are_recorded() {
    let (issuer, _local, app) = start().await;
    let root = issuer.person_token("root", &[]);
    let session = app.get("/v1/session").token(&root).await.expect(200);
    let by_setting = json!({
        "role": "platform_admin", "scope_kind": "platform", "scope_ref": null, "source": "bootstrap_admins",
    });
    assert_eq!(session["roles"], json!([by_setting]));
    app.get("/v1/tenants").token(&root).await.expect(200);
    let events = facts(&app, &root, "identity.bootstrap_admin_seen").await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["actor"], "user:root");
    assert_eq!(facts(&app, &root, "identity.pinned").await.len(), 1);
    // The explanation lists the role from a role binding separately from the same role from the setting.
    let question = "/v1/session/can?operation=create_tenant";
    let mut by_setting = by_setting;
    by_setting["role_binding_id"] = json!(null);
    assert_eq!(app.get(question).token(&root).await.expect(200)["by"], json!([by_setting]));
    let role = json!({"principal": "user:root", "role": "platform_admin", "scope_kind": "platform", "scope_ref": null});
    let role_binding = app.post("/v1/role-bindings", role).token(&root).await.expect(201);
    let by_binding = json!({
        "role_binding_id": role_binding["role_binding_id"], "role": "platform_admin", "scope_kind": "platform",
        "scope_ref": null,
    });
    assert_eq!(app.get(question).token(&root).await.expect(200)["by"], json!([by_binding, by_setting]));
    let session = app.get("/v1/session").token(&root).await.expect(200);
    let sources: Vec<&Value> = session["roles"].as_array().unwrap().iter().map(|role| &role["source"]).collect();
    assert_eq!(sources, [&Value::Null, &json!("bootstrap_admins")]);
}

#[tokio::test]
async fn a_name_stays_with_its_first_subject() {
    let (issuer, _local, app) = start().await;
    let token_of = |subject: &str, name: &str| issuer.token(json!({"sub": subject, "preferred_username": name}));
    let actor = async |token: &str| app.get("/v1/session").token(token).await.expect(200)["actor"].clone();
    assert_eq!(actor(&token_of("1", "ada")).await, "user:ada");
    // The actor keeps its name after the provider renames the person.
    assert_eq!(actor(&token_of("1", "countess")).await, "user:ada");
    for _ in 0..3 {
        app.get("/v1/session").token(&token_of("2", "ADA")).await.expect_refusal(401, "unauthenticated");
    }
    assert_eq!(actor(&token_of("3", "countess")).await, "user:countess");
    let root = issuer.person_token("root", &[]);
    let refusal_facts = facts(&app, &root, "identity.refused").await;
    assert_eq!(refusal_facts.len(), 1, "repeated requests record one fact");
}

#[tokio::test]
async fn names_belong_to_one_tenant() {
    let issuer = issuer().await;
    let change = |builder: Builder| {
        builder.setting("FAIRWAY_OIDC_TENANT_CLAIM", "org").setting("FAIRWAY_INTERNAL_CLIENTS", "service:portal")
    };
    let (_local, app) = start_with(&issuer, change).await;
    let token_of = |org: &str, name: &str| {
        let subject = format!("{name} of {org}");
        issuer.token(json!({"sub": subject, "preferred_username": name, "org": org, "groups": ["ops"]}))
    };
    let root = token_of("default", "root");
    let created = app.post("/v1/tenants", json!({"slug": "acme", "name": "Acme"})).token(&root).await.expect(201);
    let acme = created["tenant_id"].as_str().unwrap();
    // The bootstrap administrator of the configuration is an actor of the default tenant. The same name in another
    // tenant has no role.
    let session = app.get("/v1/session").token(&token_of("acme", "root")).await.expect(200);
    assert_eq!((&session["tenant_id"], &session["roles"]), (&json!(acme), &json!([])));
    // A platform role belongs to the actor of the tenant in which it was granted, not to the same name in other
    // tenants.
    let role = json!({"principal": "user:ada", "role": "platform_admin", "scope_kind": "platform", "scope_ref": null});
    app.post("/v1/role-bindings", role).token(&root).await.expect(201);
    app.get("/v1/tenants").token(&token_of("default", "ada")).await.expect(200);
    app.get("/v1/tenants").token(&token_of("acme", "ada")).await.expect_refusal(403, "forbidden");
    // A trusted internal client is an actor of the default tenant too.
    let delegate = |org: &str| {
        let token = issuer.token(json!({"sub": "portal", "client_id": "portal", "org": org}));
        let run = app.post("/v1/workloads/by-slug/main/execute", json!({"environment": "dev", "inputs": {}}));
        run.token(&token).header("X-Actor-Ref", "user:mia")
    };
    delegate("acme").await.expect_refusal(403, "actor_ref_not_allowed");
    let trusted = delegate("default").await;
    assert!(!trusted.text().contains("actor_ref_not_allowed"), "{}", trusted.text());
    // Only platform administrators work in another tenant. They have a name there that no actor of that tenant can
    // have.
    let session = app.get("/v1/session").token(&token_of("default", "ada")).in_tenant(acme).await.expect(200);
    assert_eq!((&session["actor"], &session["tenant_id"]), (&json!("user:ada@default"), &json!(acme)));
    app.get("/v1/session").token(&token_of("default", "bob")).in_tenant(acme).await.expect_refusal(404, "not_found");
    app.get("/v1/session")
        .token(&token_of("acme", "bob"))
        .in_tenant(DEFAULT_TENANT_ID)
        .await
        .expect_refusal(404, "not_found");
    app.get("/v1/session").token(&token_of("acme", "bob")).in_tenant(acme).await.expect(200);
    let workspace = json!({"slug": "lab", "name": "Lab", "namespace": "lab"});
    let created =
        app.post("/v1/workspaces", workspace).token(&token_of("default", "ada")).in_tenant(acme).await.expect(201);
    let workspace = format!("/v1/workspaces/{}", created["workspace_id"].as_str().unwrap());
    app.get(&workspace).token(&token_of("default", "ada")).await.expect_refusal(404, "not_found");
    // Without the platform role, requests in other tenants are refused at once.
    let bindings = app.get("/v1/role-bindings").token(&root).await.expect(200);
    let id = bindings.as_array().unwrap().iter().find(|binding| binding["principal"] == "user:ada").unwrap();
    app.delete(format!("/v1/role-bindings/{}", id["role_binding_id"].as_str().unwrap())).token(&root).await.expect(204);
    app.get("/v1/session").token(&token_of("default", "ada")).in_tenant(acme).await.expect_refusal(404, "not_found");
    // The tenant claim selects the tenant. A refusal names the claim, and never its value.
    for (claims, code) in [
        (json!({"sub": "x"}), "tenant_claim_missing"),
        (json!({"sub": "x", "org": "nowhere-at-all"}), "tenant_unknown"),
        (json!({"sub": "x", "org": "No Slug"}), "tenant_unknown"),
    ] {
        let response = app.get("/v1/session").token(&issuer.token(claims)).await;
        assert!(!response.text().contains("nowhere-at-all") && !response.text().contains("No Slug"));
        assert_eq!(response.expect_refusal(403, code)["claim"], "org");
    }
}

/// The facts of one tenant are not in the log of another tenant. Operators from another tenant have names that no
/// actor of this tenant can have.
#[tokio::test]
async fn facts_about_a_tenant_are_in_its_own_log_under_the_names_of_visitors() {
    let issuer = issuer().await;
    let change = |builder: Builder| builder.setting("FAIRWAY_OIDC_TENANT_CLAIM", "org");
    let (local, app) = start_with(&issuer, change).await;
    let root = issuer.token(json!({"sub": "root", "preferred_username": "root", "org": "default"}));
    let create = || app.post("/v1/tenants", json!({"slug": "acme", "name": "Acme"})).token(&root).idempotency_key("k");
    let created = create().await.expect(201);
    let (acme, second_response) = (created["tenant_id"].as_str().unwrap(), create().await);
    assert_eq!(second_response.header("idempotency-replayed"), Some("true"));
    assert_eq!(
        (&second_response.expect(201)["tenant_id"], &created["created_by"]),
        (&created["tenant_id"], &json!("user:root@default"))
    );
    let settings = |tenant: &str| format!("/v1/tenants/{tenant}/settings");
    let disabled = json!({"notifications_enabled": false});
    app.patch(settings(acme), disabled.clone()).token(&root).await.expect(200);
    // A request of a visitor for its own tenant is recorded under the plain name.
    app.patch(settings(DEFAULT_TENANT_ID), disabled).token(&root).in_tenant(acme).await.expect(200);
    let owner = local.database().connect_as_owner().await.unwrap();
    let sql = "SELECT tenant_id::text, kind, convert_from(body, 'UTF8')::json ->> 'actor' FROM fact
        WHERE kind LIKE 'tenant.%' ORDER BY fact_id";
    let rows = owner.query(sql, &[]).await.unwrap();
    let rows: Vec<[String; 3]> = rows.iter().map(|row| [0, 1, 2].map(|column| row.get(column))).collect();
    let expected = [
        [acme, "tenant.created", "user:root@default"],
        [acme, "tenant.configured", "user:root@default"],
        [DEFAULT_TENANT_ID, "tenant.configured", "user:root"],
    ];
    assert_eq!(rows, expected.map(|row| row.map(str::to_owned)));
    // The log of the new tenant begins with its creation. The sequencer runs in the background. The projector adds
    // facts about suppressed notifications, so only facts about tenants are compared.
    let log =
        async |tenant: &str| app.get("/v1/audit/events?limit=200").token(&root).in_tenant(tenant).await.expect(200);
    let kinds = async |tenant: &str| {
        let events = log(tenant).await;
        let kinds = events.as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap().to_owned());
        kinds.filter(|kind| kind.starts_with("tenant.")).collect::<Vec<_>>()
    };
    let mut of_acme = kinds(acme).await;
    for _ in 0..400 {
        if of_acme.len() == 2 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
        of_acme = kinds(acme).await;
    }
    assert_eq!(of_acme, ["tenant.configured", "tenant.created"]);
    assert_eq!(facts(&app, &root, "tenant.configured").await.len(), 1);
    assert!(!kinds(DEFAULT_TENANT_ID).await.contains(&"tenant.created".to_owned()));
}

#[tokio::test]
async fn incomplete_groups_are_an_error() {
    let (issuer, _local, app) = start().await;
    let overage = json!({
        "sub": "1", "_claim_names": {"groups": "src1"},
        "_claim_sources": {"src1": {"endpoint": "https://directory.example/groups"}},
    });
    app.get("/v1/session").token(&issuer.token(overage)).await.expect_refusal(403, "groups_incomplete");
}

#[tokio::test]
async fn refuses_forged_and_foreign_tokens_without_a_reason() {
    let (issuer, _local, app) = start().await;
    let valid_token = issuer.person_token("ada", &[]);
    app.get("/v1/session").token(&valid_token).await.expect(200);
    let other_issuer = TestIssuer::start().await.unwrap();
    let claims = json!({"iss": issuer.url(), "aud": ACCESS_TOKEN_AUDIENCE, "sub": "1", "exp": TestIssuer::now() + 60});
    let tampered_token = {
        let mut parts: Vec<&str> = valid_token.split('.').collect();
        let (payload, _) = parts[1].split_at(parts[1].len() - 2);
        let changed_payload = format!("{payload}AA");
        parts[1] = &changed_payload;
        parts.join(".")
    };
    for (case, token) in [
        ("other key", other_issuer.sign(&json!({"alg": "EdDSA", "kid": "test-key"}), &claims)),
        ("other issuer", other_issuer.person_token("ada", &[])),
        ("other audience", issuer.token(json!({"sub": "1", "aud": "https://other.example"}))),
        ("expired", issuer.token(json!({"sub": "1", "exp": TestIssuer::now() - 61}))),
        ("text as expiry", issuer.token(json!({"sub": "1", "exp": "9999999999"}))),
        ("not yet valid", issuer.token(json!({"sub": "1", "nbf": TestIssuer::now() + 120}))),
        ("ID token", issuer.token(json!({"sub": "1", "nonce": "n"}))),
        ("no algorithm", issuer.sign(&json!({"alg": "none", "kid": "test-key"}), &claims)),
        ("tampered", tampered_token),
        ("garbage", "garbage".to_owned()),
        ("empty", String::new()),
    ] {
        let response = app.get("/v1/session").token(&token).await;
        let challenge = response.header("www-authenticate").unwrap_or_default().to_owned();
        assert!(challenge.contains("error=\"invalid_token\"") && !challenge.contains("description"), "{case}");
        let refusal = response.expect_refusal(401, "unauthenticated");
        assert_eq!(refusal.as_object().unwrap().len(), 2, "{case}: {refusal}");
    }
    for header in ["Basic dXNlcjpwYXNz", "bearer", &valid_token] {
        app.get("/v1/session").header("Authorization", header).await.expect_refusal(401, "unauthenticated");
    }
    let response = app.get("/v1/session").token(&valid_token).token(&valid_token);
    response.await.expect_refusal(401, "unauthenticated");
    // Clock differences of up to a minute are tolerated.
    app.get("/v1/session").token(&issuer.token(json!({"sub": "1", "exp": TestIssuer::now() - 30}))).await.expect(200);
}

#[tokio::test]
async fn unreachable_signing_keys_return_503_and_admit_no_caller() {
    let issuer = issuer().await;
    let (_local, app) = start_with(&issuer, |builder| builder).await;
    let token = issuer.person_token("root", &[]);
    drop(issuer);
    let response = app.get("/v1/tenants").token(&token).await;
    assert!(response.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    response.expect_refusal(503, "unavailable");
    app.get("/healthz").await.expect(200);
}

#[tokio::test]
async fn internal_clients_act_for_others_within_both_rights() {
    let issuer = issuer().await;
    let provider = StubProvider::new(ProviderBehaviour::Answers("billing".to_owned()));
    let local = TestApp::builder().provider(provider.clone()).start().await;
    let fixtures = local.fixtures();
    let workload = fixtures.active_workload("main").await;
    fixtures.bind_role("service:portal", "runtime_user", "workspace", Some(WORKSPACE)).await;
    fixtures.bind_role("user:mia", "runtime_user", "workspace", Some(WORKSPACE)).await;
    let bindings = format!("/v1/workloads/{}/principal-bindings", workload.workload_id);
    local.put(bindings, json!({ "principal": "user:mia" })).await.expect(200);
    let builder = TestApp::builder().sharing_storage_of(&local).oidc(&issuer).provider(provider);
    let app = builder.setting("FAIRWAY_INTERNAL_CLIENTS", "service:portal").start().await;
    let body = |mode: &str, subject: &str| {
        json!({
            "environment": "dev", "inputs": { "ticket": "a refund" }, "execution_mode": "on_behalf_of",
            "actor_ref": subject, "actor_type": "user", "actor_auth_mode": mode,
        })
    };
    let portal = issuer.service_token("portal");
    let send = |body: Value| app.post(workload.execute_path(), body).token(&portal);
    let run = send(body("oidc", "user:mia")).header("X-Actor-Ref", "user:mia").await.expect(200);
    let id = run["execution_id"].as_str().unwrap();
    let execution = app.get(format!("/v1/executions/{id}")).token(&issuer.person_token("mia", &[])).await.expect(200);
    assert_eq!(
        (&execution["submitted_by"], &execution["delegated_by"]),
        (&json!("user:mia"), &json!("service:portal"))
    );
    send(body("local", "user:mia")).await.expect_refusal(422, "validation_error");
    send(body("oidc", "user:leo")).await.expect_refusal(403, "principal_not_bound");
    let response = send(body("oidc", "user:mia")).header("X-Actor-Ref", "user:leo").await;
    response.expect_refusal(422, "validation_error");
    let other_route = app.get("/v1/workloads").token(&portal).header("X-Actor-Ref", "user:mia").await;
    other_route.expect_refusal(403, "actor_ref_not_allowed");
    let other_service =
        app.post(workload.execute_path(), body("oidc", "user:mia")).token(&issuer.service_token("other")).await;
    other_service.expect_refusal(422, "forbidden_field");
}

#[tokio::test]
async fn clients_find_the_issuer_of_their_tokens() {
    let issuer = issuer().await;
    let (local, app) =
        start_with(&issuer, |builder| builder.setting("FAIRWAY_PUBLIC_URL", "https://fairway.test")).await;
    for (path, resource) in [("", "https://fairway.test"), ("/mcp", "https://fairway.test/mcp")] {
        let path = format!("/.well-known/oauth-protected-resource{path}");
        let metadata = app.get(&path).header("Host", "localhost").await.expect(200);
        assert_eq!(metadata["resource"], resource);
        assert_eq!(metadata["authorization_servers"], json!([issuer.url()]));
        local.get(&path).await.expect_refusal(404, "not_found");
    }
    let call = || {
        let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        app.post("/mcp", ping).header("Accept", "application/json, text/event-stream")
    };
    let response = call().await;
    let challenge = response.header("www-authenticate").unwrap_or_default().to_owned();
    assert!(challenge.contains("https://fairway.test/.well-known/oauth-protected-resource"), "{challenge}");
    response.expect_refusal(401, "unauthenticated");
    call().token(&issuer.person_token("ada", &[])).await.expect(200);
    let foreign = issuer.token(json!({"sub": "1", "aud": "https://other.example"}));
    call().token(&foreign).await.expect_refusal(401, "unauthenticated");
}

/// Under DNS rebinding, a page of another site reaches the server under the site's own host name, with a matching
/// `Origin`.
#[tokio::test]
async fn only_own_hosts_are_served() {
    let issuer = issuer().await;
    let change = |builder: Builder| {
        let builder = builder.setting("FAIRWAY_PUBLIC_URL", "https://fairway.test:8443");
        builder.setting("FAIRWAY_ALLOWED_HOSTS", "forms.test, 10.1.2.3")
    };
    let (_local, app) = start_with(&issuer, change).await;
    let token = issuer.person_token("ada", &[]);
    let call = |host: &str| {
        let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        let request = app.post("/mcp", ping).header("Accept", "application/json, text/event-stream").token(&token);
        request.header("Host", host).header("Origin", format!("https://{host}"))
    };
    for host in ["fairway.test", "fairway.test:8443", "forms.test", "10.1.2.3:8080", "localhost:8080"] {
        call(host).await.expect(200);
        app.get("/v1/session").header("Host", host).token(&token).await.expect(200);
    }
    for host in ["evil.example", "fairway.test.evil.example", "evil.fairway.test", "10.1.2.4:8080", "fairway.test."] {
        call(host).await.expect_refusal(421, "misdirected_request");
        for path in ["/v1/session", "/v1/sign-in", "/sign-in", "/console", "/.well-known/oauth-protected-resource"] {
            let request = app.get(path).header("Host", host).token(&token);
            request.await.expect_refusal(421, "misdirected_request");
        }
        // The probes accept any host, because load balancers send one of their own.
        for path in ["/healthz", "/readyz"] {
            app.get(path).header("Host", host).await.expect(200);
        }
    }
}

#[tokio::test]
async fn production_releases_in_oidc_mode_require_a_real_model() {
    let (issuer, local, app) = start().await;
    let fixtures = local.fixtures();
    let versions =
        [fixtures.ticket_prompt("p").await, fixtures.model_policy("m").await, fixtures.allow_all_policy("b").await];
    let workload = fixtures.workload("main").await;
    fixtures.bind_role("user:op", "workspace_admin", "workspace", Some(WORKSPACE)).await;
    let operator = issuer.person_token("op", &[]);
    let blocked = |environment: &'static str| {
        let (fixtures, versions, workload) = (fixtures.clone(), versions.clone(), workload.clone());
        let (app, operator) = (&app, &operator);
        async move {
            let release = fixtures.approved_release_in(&workload, environment, &versions).await;
            let gates = app.get(format!("/v1/releases/{release}/gates")).token(operator).await.expect(200);
            let blocked = |gate: &&Value| gate["gate"] == "provider_account" && gate["verdict"] == "blocked";
            gates.as_array().unwrap().iter().any(|gate| blocked(&gate))
        }
    };
    assert!(!blocked("dev").await);
    assert!(blocked("production").await);
}
