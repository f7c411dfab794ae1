//! Sign-in of people in browsers, their sessions, and the events that end a session.

use fairway_testkit::{
    PORTAL_CLIENT_ID, TestApp, TestIssuer,
    app::{Builder, Request, Response},
    connect,
};
use reqwest::Method;
use serde_json::{Value, json};

const WORKSPACE: &str = "00000000-0000-7000-8000-000000000003";
pub(crate) const SESSION: &str = "__Host-fairway-session";
pub(crate) const ATTEMPT: &str = "__Host-fairway-sign-in";

/// The value of a cookie that a response sets.
pub(crate) fn cookie(response: &Response, name: &str) -> Option<String> {
    let cookies = response.headers.get_all("set-cookie").iter().filter_map(|value| value.to_str().ok());
    let mut values = cookies.filter_map(|text| text.split(';').next()?.split_once('='));
    values.find_map(|(key, value)| (key == name).then(|| value.to_owned()))
}

/// The text with a different last character.
fn with_other_end(text: &str) -> String {
    let (start, last_character) = text.split_at(text.len() - 1);
    format!("{start}{}", if last_character == "A" { "Q" } else { "A" })
}

pub(crate) struct SignInSetup {
    pub(crate) issuer: TestIssuer,
    pub(crate) local: TestApp,
    pub(crate) app: TestApp,
}

impl SignInSetup {
    pub(crate) async fn start() -> Self {
        Self::start_with(|builder| builder).await
    }

    /// Starts a setup whose server has changed settings.
    pub(crate) async fn start_with(change: impl FnOnce(Builder) -> Builder) -> Self {
        let issuer = TestIssuer::start().await.unwrap();
        let local = TestApp::builder().start().await;
        let builder = TestApp::builder().sharing_storage_of(&local).oidc(&issuer);
        let app = change(builder.setting("FAIRWAY_OIDC_CLIENT_ID", PORTAL_CLIENT_ID)).start().await;
        issuer.set_person(json!({"preferred_username": "ada", "name": "Ada Lovelace"}), json!({"groups": ["ops"]}));
        Self { issuer, local, app }
    }

    /// Another server on the same database.
    pub(crate) async fn another_server(&self) -> TestApp {
        let builder = TestApp::builder().sharing_storage_of(&self.local).oidc(&self.issuer);
        builder.setting("FAIRWAY_OIDC_CLIENT_ID", PORTAL_CLIENT_ID).start().await
    }

    /// Begins a sign-in. Returns the callback to which the provider redirects the browser, and the cookie of the
    /// attempt.
    pub(crate) async fn begin(&self, query: &str) -> (String, String) {
        let response = self.app.get(format!("/sign-in{query}")).await;
        assert_eq!(response.status, 303, "{}", response.text());
        let location = response.header("location").unwrap();
        assert!(location.starts_with(&format!("{}/authorize?", self.issuer.url())), "{location}");
        (self.issuer.complete_sign_in(location), cookie(&response, ATTEMPT).unwrap())
    }

    pub(crate) async fn callback(&self, path: &str, attempt: &str) -> Response {
        self.app.get(path).header("Cookie", format!("{ATTEMPT}={attempt}")).await
    }

    pub(crate) async fn sign_in(&self) -> Browser<'_> {
        let (callback, attempt) = self.begin("?return_to=/console").await;
        let response = self.callback(&callback, &attempt).await;
        assert_eq!((response.status, response.header("location")), (303, Some("/console")), "{}", response.text());
        let cookies = response.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap().to_owned());
        let session_cookies: Vec<String> = cookies.filter(|text| text.starts_with(SESSION)).collect();
        for attribute in ["; HttpOnly", "; Secure", "; SameSite=Lax", "; Path=/"] {
            assert!(
                session_cookies[0].contains(attribute) && !session_cookies[0].contains("Domain"),
                "{}",
                session_cookies[0]
            );
        }
        Browser { app: &self.app, session: cookie(&response, SESSION).unwrap() }
    }
}

pub(crate) struct Browser<'a> {
    pub(crate) app: &'a TestApp,
    pub(crate) session: String,
}

impl Browser<'_> {
    pub(crate) fn send(&self, request: Request) -> Request {
        request.header("Cookie", format!("{SESSION}={}", self.session))
    }

    pub(crate) async fn session(&self) -> Response {
        self.send(self.app.get("/v1/session")).await
    }

    pub(crate) async fn csrf_token(&self) -> String {
        self.session().await.expect(200)["csrf_token"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn person_signs_in_and_acts_with_the_roles_of_its_groups() {
    let setup = SignInSetup::start().await;
    let browser = setup.sign_in().await;
    let session = browser.session().await.expect(200);
    assert_eq!((&session["actor"], &session["display_name"]), (&json!("user:ada"), &json!("Ada Lovelace")));
    assert_eq!(session["groups"], json!(["group:ops"]));
    assert!(session["expires_at"].as_str().unwrap().ends_with('Z'));
    let workspace = format!("/v1/workspaces/{WORKSPACE}");
    browser.send(setup.app.get(&workspace)).await.expect_refusal(403, "forbidden");
    setup.local.fixtures().bind_role("group:ops", "viewer", "workspace", Some(WORKSPACE)).await;
    browser.send(setup.app.get(&workspace)).await.expect(200);
    // An access explanation for an administrator uses the groups of the person's last sign-in. Without an identity,
    // it is refused.
    let local = &setup.local;
    local.fixtures().bind_role("user:root", "tenant_admin", "tenant", Some(&default_tenant())).await;
    let question = format!("/v1/session/can?operation=list_workloads&scope_kind=workspace&scope_ref={WORKSPACE}");
    let root = setup.issuer.person_token("root", &[]);
    let explanation_request =
        setup.app.get(format!("{question}&actor=user:ada")).header("Authorization", format!("Bearer {root}"));
    let explained = explanation_request.await.expect(200);
    assert_eq!((&explained["allowed"], &explained["by"][0]["role"]), (&json!(true), &json!("viewer")));
    assert!(explained["by"][0]["role_binding_id"].is_string(), "{explained}");
    setup.app.get(&question).await.expect_refusal(401, "unauthenticated");
    // If a request contains both, the bearer token takes precedence over the cookie. An invalid token is refused,
    // and the cookie is not used instead.
    let token = setup.issuer.person_token("bob", &[]);
    let request_with_both =
        browser.send(setup.app.get("/v1/session")).header("Authorization", format!("Bearer {token}"));
    assert_eq!(request_with_both.await.expect(200)["actor"], "user:bob");
    let request_with_invalid_token = browser.send(setup.app.get("/v1/session")).header("Authorization", "Bearer x");
    request_with_invalid_token.await.expect_refusal(401, "unauthenticated");
    // The same person has the same actor name with a token and with a session.
    let second_token = setup.issuer.token(json!({"sub": "1", "preferred_username": "other"}));
    let session =
        setup.app.get("/v1/session").header("Authorization", format!("Bearer {second_token}")).await.expect(200);
    assert_eq!(session["actor"], "user:ada");
    let settings = setup.app.get("/v1/sign-in").await.expect(200);
    assert_eq!((&settings["mode"], &settings["issuer"]), (&json!("oidc"), &json!(setup.issuer.url())));
}

#[tokio::test]
async fn changes_need_the_csrf_token() {
    let setup = SignInSetup::start().await;
    setup.local.fixtures().bind_role("user:ada", "tenant_admin", "tenant", Some(&default_tenant())).await;
    let browser = setup.sign_in().await;
    let csrf = browser.csrf_token().await;
    let body = json!({"slug": "lab", "name": "Lab", "namespace": "lab"});
    let create = || browser.send(setup.app.post("/v1/workspaces", body.clone()));
    for wrong_token in ["", "x", &csrf[1..]] {
        create().header("X-CSRF-Token", wrong_token).await.expect_refusal(403, "csrf_token_invalid");
    }
    create().await.expect_refusal(403, "csrf_token_invalid");
    create()
        .header("X-CSRF-Token", &csrf)
        .header("X-CSRF-Token", &csrf)
        .await
        .expect_refusal(403, "csrf_token_invalid");
    let other_browser = setup.sign_in().await;
    let foreign = other_browser.csrf_token().await;
    create().header("X-CSRF-Token", &foreign).await.expect_refusal(403, "csrf_token_invalid");
    let workspaces = browser.send(setup.app.get("/v1/workspaces")).await.expect(200);
    assert_eq!(workspaces.as_array().unwrap().len(), 1, "nothing was created");
    create().header("X-CSRF-Token", &csrf).await.expect(201);
    let cross_site = create().header("X-CSRF-Token", &csrf).header("Sec-Fetch-Site", "cross-site");
    cross_site.await.expect_refusal(403, "cross_site_request");
}

fn default_tenant() -> String {
    "00000000-0000-7000-8000-000000000001".to_owned()
}

#[tokio::test]
async fn sign_out_ends_the_session_here_and_at_the_provider() {
    let setup = SignInSetup::start().await;
    let browser = setup.sign_in().await;
    let csrf = browser.csrf_token().await;
    let form = |token: &str| {
        let request = setup.app.request(Method::POST, "/sign-out");
        browser.send(request.with_body("application/x-www-form-urlencoded", format!("csrf_token={token}")))
    };
    form("x").await.expect_refusal(403, "csrf_token_invalid");
    browser.session().await.expect(200);
    let response = form(&csrf).await;
    let location = response.header("location").unwrap();
    assert!(response.status == 303 && location.starts_with(&format!("{}/logout?id_token_hint=ey", setup.issuer.url())));
    assert!(location.contains("post_logout_redirect_uri=") && location.contains("signed_out"), "{location}");
    assert_eq!(cookie(&response, SESSION).as_deref(), Some(""));
    browser.session().await.expect_refusal(401, "unauthenticated");
    // The page after the sign-out does not start a new sign-in.
    setup.app.get("/sign-in?signed_out=1").await;
    let page = setup.app.get("/sign-in?signed_out=1").await;
    assert!(page.status == 200 && page.text().contains("You are signed out"));
    // Requests that need no identity succeed even with the cookie of an ended session.
    browser.send(setup.app.get("/v1/sign-in")).await.expect(200);
    assert_eq!(browser.send(setup.app.post("/v1/session/logout", json!({}))).await.status, 204);
    let other_browser = setup.sign_in().await;
    let csrf = other_browser.csrf_token().await;
    other_browser.send(setup.app.post("/v1/session/logout", json!({}))).await.expect_refusal(403, "csrf_token_invalid");
    let ended = other_browser.send(setup.app.post("/v1/session/logout", json!({}))).header("X-CSRF-Token", csrf).await;
    assert_eq!(ended.status, 204);
    other_browser.session().await.expect_refusal(401, "unauthenticated");
}

#[tokio::test]
async fn provider_ends_sessions() {
    let setup = SignInSetup::start().await;
    let send = async |token: &str| {
        let request = setup.app.request(Method::POST, "/sign-out/backchannel");
        let body = format!("logout_token={token}");
        request.with_body("application/x-www-form-urlencoded", body).await.status
    };
    let (first_browser, second_browser) = (setup.sign_in().await, setup.sign_in().await);
    for (claims, expected) in [
        (json!({"sid": "session-2"}), 200),
        (json!({"sid": "session-1", "nonce": "n"}), 400),
        (json!({"sid": "session-1", "aud": "other"}), 400),
        (json!({"sid": "session-1", "events": {}}), 400),
    ] {
        assert_eq!(send(&setup.issuer.logout_token(claims)).await, expected);
        first_browser.session().await.expect(200);
    }
    assert_eq!(send("garbage").await, 400);
    let other_issuer = TestIssuer::start().await.unwrap();
    assert_eq!(send(&other_issuer.logout_token(json!({"sid": "session-1"}))).await, 400);
    first_browser.session().await.expect(200);
    assert_eq!(send(&setup.issuer.logout_token(json!({"sub": "1"}))).await, 200);
    for browser in [first_browser, second_browser] {
        browser.session().await.expect_refusal(401, "unauthenticated");
    }
}

/// Moves a time of all sessions into the past, to simulate a period without requests.
pub(crate) async fn backdate_sessions(setup: &SignInSetup, column: &str, interval: &str) {
    let database = connect(setup.app.database_url()).await.unwrap();
    let sql = format!("UPDATE session SET {column} = {column} - interval '{interval}'");
    database.execute(&sql, &[]).await.unwrap();
}

#[tokio::test]
async fn sessions_expire_and_read_their_groups_again() {
    let setup = SignInSetup::start().await;
    let browser = setup.sign_in().await;
    // If a session's groups are older than the limit, the server reads them from the provider again.
    setup.issuer.set_person(json!({"preferred_username": "ada"}), json!({"groups": ["dev"]}));
    assert_eq!(browser.session().await.expect(200)["groups"], json!(["group:ops"]));
    backdate_sessions(&setup, "groups_read_at", "10 minutes").await;
    assert_eq!(browser.session().await.expect(200)["groups"], json!(["group:dev"]));
    // If the provider refuses the refresh token, the session ends.
    setup.issuer.refuse_refresh();
    browser.session().await.expect(200);
    backdate_sessions(&setup, "groups_read_at", "10 minutes").await;
    browser.session().await.expect_refusal(401, "unauthenticated");
    assert_eq!(setup.issuer.portal_refresh_count(), 1, "a refused renewal is none");
    let idle_setup = SignInSetup::start().await;
    let browser = idle_setup.sign_in().await;
    backdate_sessions(&idle_setup, "last_used_at", "50 minutes").await;
    browser.session().await.expect(200);
    backdate_sessions(&idle_setup, "last_used_at", "62 minutes").await;
    browser.session().await.expect_refusal(401, "unauthenticated");
    let old_browser = idle_setup.sign_in().await;
    backdate_sessions(&idle_setup, "expires_at", "12 hours").await;
    old_browser.session().await.expect_refusal(401, "unauthenticated");
}

#[tokio::test]
async fn concurrent_requests_share_one_renewal() {
    let setup = SignInSetup::start().await;
    let browser = setup.sign_in().await;
    backdate_sessions(&setup, "groups_read_at", "10 minutes").await;
    let sessions = futures_util::future::join_all((0..12).map(|_| browser.session())).await;
    assert!(sessions.iter().all(|response| response.status == 200));
    assert_eq!(setup.issuer.portal_refresh_count(), 1);
}

#[tokio::test]
async fn a_renewal_survives_a_client_that_disconnects() {
    let setup = SignInSetup::start().await;
    let browser = setup.sign_in().await;
    backdate_sessions(&setup, "groups_read_at", "10 minutes").await;
    setup.issuer.hold_responses();
    tokio::select! {
        response = browser.session() => panic!("{}", response.text()),
        () = setup.issuer.wait_for_held_response() => {}
    }
    setup.issuer.release_responses();
    browser.session().await.expect(200);
    assert_eq!(setup.issuer.portal_refresh_count(), 1);
}

#[tokio::test]
async fn servers_spend_a_refresh_token_once() {
    let setup = SignInSetup::start().await;
    let browser = setup.sign_in().await;
    let other_server = setup.another_server().await;
    let browser_on_other_server = Browser { app: &other_server, session: browser.session.clone() };
    backdate_sessions(&setup, "groups_read_at", "10 minutes").await;
    setup.issuer.hold_responses();
    let after_the_first = async {
        setup.issuer.wait_for_held_response().await;
        let release_responses = async {
            // Gives the other server time to read the session while the first renewal is in flight.
            for _ in 0..5 {
                other_server.get("/healthz").await;
            }
            setup.issuer.release_responses();
        };
        tokio::join!(browser_on_other_server.session(), release_responses).0
    };
    let (first_session, second_session) = tokio::join!(browser.session(), after_the_first);
    first_session.expect(200);
    second_session.expect(200);
    assert_eq!(setup.issuer.portal_refresh_count(), 1);
}

#[tokio::test]
async fn a_renewal_keeps_the_new_refresh_token_when_the_provider_fails_after_it() {
    let setup = SignInSetup::start().await;
    let browser = setup.sign_in().await;
    backdate_sessions(&setup, "groups_read_at", "10 minutes").await;
    setup.issuer.set_userinfo_failure(true);
    browser.session().await.expect_refusal(503, "unavailable");
    setup.issuer.set_userinfo_failure(false);
    // A second server is used, because the first remembers the failure for some seconds.
    let other_server = setup.another_server().await;
    Browser { app: &other_server, session: browser.session.clone() }.session().await.expect(200);
    assert_eq!(setup.issuer.portal_refresh_count(), 2);
}

#[tokio::test]
async fn access_tokens_without_address_and_groups_keep_the_stored_ones() {
    let setup = SignInSetup::start().await;
    let claims = json!({"preferred_username": "ada", "email": "ada@example.org", "email_verified": true});
    setup.issuer.set_person(claims, json!({"groups": ["ops"]}));
    setup.sign_in().await;
    let stored = async || {
        let database = connect(setup.app.database_url()).await.unwrap();
        let row = database.query_one("SELECT email, groups FROM identity WHERE actor = 'user:ada'", &[]).await.unwrap();
        (row.get::<_, Option<String>>(0), row.get::<_, Vec<String>>(1))
    };
    let call = async |claims: Value| {
        let token = setup.issuer.token(claims);
        setup.app.get("/v1/session").header("Authorization", format!("Bearer {token}")).await.expect(200)
    };
    let address = Some("ada@example.org".to_owned());
    assert_eq!(call(json!({"sub": "1"})).await["groups"], json!([]), "a token has its own groups");
    assert_eq!(stored().await, (address.clone(), vec!["group:ops".to_owned()]));
    let other_claims = json!({"sub": "1", "groups": ["dev"], "email": "eve@example.org", "email_verified": true});
    assert_eq!(call(other_claims).await["groups"], json!(["group:dev"]));
    assert_eq!(stored().await, (address, vec!["group:dev".to_owned()]));
    // The e-mail address in an access token is not stored, not even for a name that the token pins.
    let bob = json!({"sub": "9", "preferred_username": "bob", "email": "bob@example.org", "email_verified": true});
    call(bob).await;
    let database = connect(setup.app.database_url()).await.unwrap();
    let row = database.query_one("SELECT email FROM identity WHERE actor = 'user:bob'", &[]).await.unwrap();
    assert_eq!(row.get::<_, Option<String>>(0), None);
}

#[tokio::test]
async fn renewal_uses_no_claims_of_the_first_token() {
    let setup = SignInSetup::start().await;
    setup.issuer.set_person(json!({"preferred_username": "ada", "groups": ["ops"]}), json!({}));
    let browser = setup.sign_in().await;
    assert_eq!(browser.session().await.expect(200)["groups"], json!(["group:ops"]));
    // The provider renews only the access token. Userinfo lists other groups than before.
    setup.issuer.omit_refreshed_id_tokens();
    setup.issuer.set_person(json!({}), json!({"groups": ["dev"]}));
    backdate_sessions(&setup, "groups_read_at", "10 minutes").await;
    assert_eq!(browser.session().await.expect(200)["groups"], json!(["group:dev"]));
    // If the groups can no longer be read from any source, the session ends.
    setup.issuer.set_person(json!({}), json!({}));
    backdate_sessions(&setup, "groups_read_at", "10 minutes").await;
    browser.session().await.expect_refusal(401, "unauthenticated");
}

#[tokio::test]
async fn session_ends_when_its_person_moves_to_another_tenant() {
    let setup = SignInSetup::start_with(|builder| builder.setting("FAIRWAY_OIDC_TENANT_CLAIM", "org")).await;
    setup.local.fixtures().tenant("acme").await;
    let person = |org: &str| setup.issuer.set_person(json!({"preferred_username": "eve", "org": org}), json!({}));
    person("acme");
    let browser = setup.sign_in().await;
    backdate_sessions(&setup, "groups_read_at", "10 minutes").await;
    browser.session().await.expect(200);
    person("default");
    backdate_sessions(&setup, "groups_read_at", "10 minutes").await;
    browser.session().await.expect_refusal(401, "unauthenticated");
    person("acme");
    let browser = setup.sign_in().await;
    setup.issuer.set_person(json!({"preferred_username": "eve"}), json!({}));
    backdate_sessions(&setup, "groups_read_at", "10 minutes").await;
    browser.session().await.expect_refusal(401, "unauthenticated");
}

#[tokio::test]
async fn an_unavailable_provider_ends_no_session_and_prevents_no_sign_out() {
    let setup = SignInSetup::start().await;
    let browser = setup.sign_in().await;
    let csrf = browser.csrf_token().await;
    setup.issuer.fail_token_requests("temporarily_unavailable");
    backdate_sessions(&setup, "groups_read_at", "10 minutes").await;
    browser.session().await.expect_refusal(503, "unavailable");
    setup.issuer.fail_token_requests("invalid_client");
    browser.session().await.expect_refusal(503, "unavailable");
    assert_eq!(browser.send(sign_out_form(&setup.app, &csrf)).await.status, 303);
    browser.session().await.expect_refusal(401, "unauthenticated");
    let setup = SignInSetup::start().await;
    let browser = setup.sign_in().await;
    let csrf = browser.csrf_token().await;
    setup.issuer.fail_token_requests("temporarily_unavailable");
    backdate_sessions(&setup, "groups_read_at", "10 minutes").await;
    let ended = browser.send(setup.app.post("/v1/session/logout", json!({}))).header("X-CSRF-Token", csrf).await;
    assert_eq!(ended.status, 204, "{}", ended.text());
    browser.session().await.expect_refusal(401, "unauthenticated");
}

pub(crate) fn sign_out_form(app: &TestApp, csrf: &str) -> Request {
    let request = app.request(Method::POST, "/sign-out");
    request.with_body("application/x-www-form-urlencoded", format!("csrf_token={csrf}"))
}

#[tokio::test]
async fn requests_share_the_failure_of_a_renewal() {
    let setup = SignInSetup::start().await;
    let browser = setup.sign_in().await;
    setup.issuer.fail_token_requests("temporarily_unavailable");
    backdate_sessions(&setup, "groups_read_at", "10 minutes").await;
    let requests_before = setup.issuer.token_request_count();
    for response in futures_util::future::join_all((0..8).map(|_| browser.session())).await {
        let wait: u64 = response.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=10).contains(&wait), "{wait}");
        response.expect_refusal(503, "unavailable");
    }
    assert_eq!(setup.issuer.token_request_count(), requests_before + 1);
}

#[tokio::test]
async fn a_sign_out_ends_the_session_before_it_asks_the_provider() {
    let setup = SignInSetup::start().await;
    let browser = setup.sign_in().await;
    let csrf = browser.csrf_token().await;
    // This server has not yet read the provider's discovery document, so it must request it during the sign-out.
    let other_server = setup.another_server().await;
    setup.issuer.hold_responses();
    tokio::select! {
        response = browser.send(sign_out_form(&other_server, &csrf)) => panic!("{}", response.text()),
        () = setup.issuer.wait_for_held_response() => {}
    }
    browser.session().await.expect_refusal(401, "unauthenticated");
}

#[tokio::test]
async fn a_new_sign_in_ends_the_earlier_session_of_the_browser() {
    let setup = SignInSetup::start().await;
    let browser = setup.sign_in().await;
    let (callback, attempt) = setup.begin("").await;
    let cookies = format!("{ATTEMPT}={attempt}; {SESSION}={}", browser.session);
    assert_eq!(setup.app.get(callback).header("Cookie", cookies).await.status, 303);
    browser.session().await.expect_refusal(401, "unauthenticated");
    // For the cookie of an ended session, these routes return 401, although they return 404 to anonymous callers.
    // The page can then report the end of the session.
    for path in [format!("/v1/workspaces/{WORKSPACE}/environments/dev/settings"), format!("/v1/releases/{WORKSPACE}")] {
        browser.send(setup.app.get(path)).await.expect_refusal(401, "unauthenticated");
    }
}

#[tokio::test]
async fn a_refused_sign_in_keeps_the_earlier_session() {
    let setup = SignInSetup::start().await;
    let browser = setup.sign_in().await;
    // A different subject signs in with the name of the first person.
    setup.issuer.set_person(json!({"sub": "2", "preferred_username": "ada"}), json!({"sub": "2"}));
    let (callback, attempt) = setup.begin("").await;
    let cookies = format!("{ATTEMPT}={attempt}; {SESSION}={}", browser.session);
    let response = setup.app.get(callback).header("Cookie", cookies).await;
    let has_session = cookie(&response, SESSION).is_some();
    assert!(!has_session && response.text().contains("Sign-in is refused"), "{}", response.text());
    browser.session().await.expect(200);
}

#[tokio::test]
async fn callback_without_the_announced_issuer_parameter_is_refused() {
    let setup = SignInSetup::start().await;
    setup.issuer.announce_issuer_parameter();
    let (callback, attempt) = setup.begin("").await;
    assert_eq!(setup.callback(&callback, &attempt).await.status, 403);
    let (callback, attempt) = setup.begin("").await;
    let callback_with_issuer = format!("{callback}&iss={}", setup.issuer.url());
    assert_eq!(setup.callback(&callback_with_issuer, &attempt).await.status, 303);
}

#[tokio::test]
async fn refuses_callbacks_of_other_sign_ins() {
    let setup = SignInSetup::start().await;
    let (callback, attempt) = setup.begin("").await;
    let (_, other_attempt) = setup.begin("").await;
    let without_cookie = setup.app.get(&callback).await;
    assert_eq!(without_cookie.status, 400);
    for (path, cookie) in [
        (callback.clone(), other_attempt),
        (callback.clone(), "garbage".to_owned()),
        (callback.clone(), with_other_end(&attempt)),
        (callback.replace("state=", "state=x"), attempt.clone()),
        (format!("{callback}&iss=https://evil.example"), attempt.clone()),
    ] {
        let response = setup.callback(&path, &cookie).await;
        assert!(response.status == 400 && self::cookie(&response, SESSION).is_none(), "{path}: {}", response.text());
    }
    let refused_response = setup.callback("/sign-in/callback?error=access_denied&state=x", &attempt).await;
    assert_eq!(refused_response.status, 400);
    assert_eq!(setup.callback(&callback, &attempt).await.status, 303);
    // An authorization code can be used once.
    let second_response = setup.callback(&callback, &attempt).await;
    assert!(
        second_response.status == 403 && second_response.text().contains("/sign-in/callback"),
        "{}",
        second_response.text()
    );
    // An ID token with a different nonce belongs to another sign-in, so it is refused.
    setup.issuer.set_person(json!({"nonce": "other"}), json!({}));
    let (callback, attempt) = setup.begin("").await;
    assert_eq!(setup.callback(&callback, &attempt).await.status, 403);
    // A userinfo response about a different subject is refused.
    setup.issuer.set_person(json!({"preferred_username": "ada"}), json!({"sub": "2", "groups": ["ops"]}));
    let (callback, attempt) = setup.begin("").await;
    assert_eq!(setup.callback(&callback, &attempt).await.status, 403);
    let external_return = setup.begin("?return_to=//evil.example").await;
    setup.issuer.set_person(json!({"preferred_username": "ada"}), json!({}));
    let response = setup.callback(&external_return.0, &external_return.1).await;
    assert_eq!((response.status, response.header("location")), (303, Some("/")));
    // Browsers drop cookies of more than 4 KiB, so a longer return path is not stored.
    for (length, is_kept) in [(2_048, true), (2_049, false)] {
        let path = format!("/{}", "a".repeat(length - 1));
        let (callback, attempt) = setup.begin(&format!("?return_to={path}")).await;
        assert!(ATTEMPT.len() + attempt.len() < 4_000, "{}", attempt.len());
        let target = if is_kept { path.as_str() } else { "/" };
        assert_eq!(setup.callback(&callback, &attempt).await.header("location"), Some(target));
    }
}

#[tokio::test]
async fn stored_sessions_contain_no_secret_and_changed_cookies_are_refused() {
    let setup = SignInSetup::start().await;
    let browser = setup.sign_in().await;
    let database = connect(setup.app.database_url()).await.unwrap();
    let sql = "SELECT to_jsonb(session)::text, secret_hash, sealed_tokens FROM session";
    let row = database.query_one(sql, &[]).await.unwrap();
    let (texts, hash, sealed): (String, Vec<u8>, Vec<u8>) = (row.get(0), row.get(1), row.get(2));
    // The row contains two sealed tokens, so their absence in plain text below is meaningful.
    assert!(sealed.len() > 200, "{}", sealed.len());
    let secret = browser.session.split_once('_').unwrap().1;
    let csrf = browser.csrf_token().await;
    for secret_text in [secret, &csrf, "refresh", "id_token", "eyJ"] {
        for stored in [texts.as_bytes(), &hash, &sealed] {
            assert!(
                !stored.windows(secret_text.len()).any(|part| part == secret_text.as_bytes()),
                "{secret_text} is stored"
            );
        }
    }
    for changed_cookie in [
        String::new(),
        "garbage".to_owned(),
        browser.session.to_uppercase(),
        browser.session.replacen('0', "1", 1),
        with_other_end(&browser.session),
    ] {
        let request = setup.app.get("/v1/session").header("Cookie", format!("{SESSION}={changed_cookie}"));
        request.await.expect_refusal(401, "unauthenticated");
    }
    // Session cookies are accepted by API routes only, and not by `/mcp`.
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    browser.send(setup.app.post("/mcp", call)).await.expect_refusal(401, "unauthenticated");
    let facts: Vec<Value> = {
        let rows = database.query("SELECT convert_from(body, 'UTF8') FROM fact", &[]).await.unwrap();
        rows.iter().map(|row| serde_json::from_str(row.get(0)).unwrap()).collect()
    };
    assert!(facts.iter().any(|fact| fact["kind"] == "session.started" && fact["actor"] == "user:ada"));
}

#[tokio::test]
async fn sign_in_page_reports_a_missing_portal_client_or_provider() {
    let issuer = TestIssuer::start().await.unwrap();
    let app = TestApp::builder().oidc(&issuer).start().await;
    let page = app.get("/sign-in").await;
    assert!(page.status == 503 && page.text().contains("FAIRWAY_OIDC_CLIENT_ID"), "{}", page.text());
    let configured = TestApp::builder().sharing_storage_of(&app).oidc(&issuer);
    let configured = configured.setting("FAIRWAY_OIDC_CLIENT_ID", PORTAL_CLIENT_ID).start().await;
    drop(issuer);
    let page = configured.get("/sign-in").await;
    assert!(page.status == 503 && page.text().contains("does not answer"), "{}", page.text());
    let local = TestApp::builder().start().await;
    let response = local.get("/sign-in?return_to=/docs").await;
    assert_eq!((response.status, response.header("location")), (303, Some("/docs")));
    assert_eq!(local.get("/v1/sign-in").await.expect(200)["mode"], "local");
}

/// A test sign-in with the browser's session. It signs in the person that is set at the provider.
async fn test_sign_in(setup: &SignInSetup, browser: &Browser<'_>) -> Response {
    let response = browser.send(setup.app.get("/sign-in/test?issuer=0")).await;
    let location = response.header("location").unwrap();
    assert!(response.status == 303 && location.ends_with("&prompt=login"), "{location}");
    let (callback, attempt) = (setup.issuer.complete_sign_in(location), cookie(&response, ATTEMPT).unwrap());
    let cookies = format!("{ATTEMPT}={attempt}; {SESSION}={}", browser.session);
    let report = setup.app.get(&callback).header("Cookie", cookies).await;
    assert_eq!(cookie(&report, SESSION), None, "a test makes no session");
    // Without the administrator's session, the same callback shows no result.
    let response = browser.send(setup.app.get("/sign-in/test?issuer=0")).await;
    let callback = setup.issuer.complete_sign_in(response.header("location").unwrap());
    let response = setup.callback(&callback, &cookie(&response, ATTEMPT).unwrap()).await;
    assert!(response.status == 401 && !response.text().contains("Claims"), "{}", response.text());
    report
}

#[tokio::test]
async fn test_sign_in_shows_claims_rules_and_roles_to_administrators_only() {
    let setup = SignInSetup::start().await;
    let page = setup.app.get("/sign-in/test").await;
    assert!(page.status == 401 && page.text().contains("/sign-in?return_to=/sign-in/test"), "{}", page.text());
    let browser = setup.sign_in().await;
    setup.local.fixtures().bind_role("user:ada", "tenant_admin", "tenant", Some(&default_tenant())).await;
    for path in ["/sign-in/test", "/sign-in/test?issuer=0"] {
        let page = browser.send(setup.app.get(path)).await;
        assert!(page.status == 403 && page.text().contains("platform.manage"), "{}", page.text());
    }
    setup.local.fixtures().bind_role("user:ada", "platform_admin", "platform", None).await;
    setup.local.fixtures().bind_role("group:desk", "viewer", "workspace", Some(WORKSPACE)).await;
    let test_page = browser.send(setup.app.get("/sign-in/test")).await;
    assert!(test_page.status == 200 && test_page.text().contains("/sign-in/test?issuer=0"), "{}", test_page.text());
    let eve = |id: &str| json!({"sub": id, "preferred_username": "Eve", "name": "<b>Eve</b>", "nickname": "a & b"});
    let groups = |id: &str| json!({"sub": id, "groups": ["/Desk", "no spaces"]});
    setup.issuer.set_person(eve("2"), groups("2"));
    let report = test_sign_in(&setup, &browser).await;
    assert_eq!(report.header("cache-control"), Some("no-store"));
    let text = report.text();
    for expected_text in [
        "A sign-in would succeed.",
        "<td>name</td><td>applied</td><td>user:eve</td>",
        "group:desk; 1 left out",
        "the first sign-in pins user:eve",
        &format!("<li>viewer on workspace <code>{WORKSPACE}</code></li>"),
        "<td><code>sub</code></td><td>2</td>",
        "&lt;b&gt;Eve&lt;/b&gt;",
        "a &amp; b",
    ] {
        assert!(text.contains(expected_text), "{expected_text}: {text}");
    }
    assert!(!text.contains("<b>"), "{text}");
    assert_eq!(browser.session().await.expect(200)["actor"], "user:ada", "the session continues");
    // The test sign-in pinned no name, so another subject can still get the name. After that, the name is taken for
    // the first subject.
    let token = setup.issuer.token(json!({"sub": "3", "preferred_username": "eve"}));
    let request = setup.app.get("/v1/session").header("Authorization", format!("Bearer {token}"));
    assert_eq!(request.await.expect(200)["actor"], "user:eve");
    let text = test_sign_in(&setup, &browser).await.text();
    assert!(text.contains("A sign-in would be refused.") && text.contains("actor_name_taken"), "{text}");
    assert!(!text.contains("<h2>Roles</h2>"), "{text}");
}

/// If a token refers to its groups without listing them, the server must not treat the person as having no groups.
#[tokio::test]
async fn groups_come_from_the_link_that_a_token_announces() {
    let setup = SignInSetup::start().await;
    let person = |status: &'static str, response: Value| {
        let mut claims = json!({"preferred_username": "ada"});
        let link = setup.issuer.set_group_claim_response(status, response);
        claims.as_object_mut().unwrap().extend(link.as_object().unwrap().clone());
        setup.issuer.set_person(claims, json!({}));
    };
    person("200 OK", json!({"sub": "1", "groups": ["ops", "dev"]}));
    let browser = setup.sign_in().await;
    assert_eq!(browser.session().await.expect(200)["groups"].as_array().unwrap().len(), 2);
    person("200 OK", json!({"groups": ["dev"]}));
    backdate_sessions(&setup, "groups_read_at", "10 minutes").await;
    assert_eq!(browser.session().await.expect(200)["groups"], json!(["group:dev"]));
    for (status, response, refusal) in [
        ("404 Not Found", json!({"groups": ["dev"]}), (403, "groups_incomplete")),
        ("200 OK", json!({}), (403, "groups_incomplete")),
        ("200 OK", json!(["dev"]), (403, "groups_incomplete")),
        ("200 OK", json!({"groups": ["dev"], "sub": "2"}), (403, "token_subject")),
        ("500 Internal Server Error", json!({}), (503, "sign_in_provider_unavailable")),
    ] {
        person(status, response);
        let (callback, attempt) = setup.begin("").await;
        let page = setup.callback(&callback, &attempt).await;
        assert!(page.status == refusal.0 && page.text().contains(refusal.1), "{status}: {}", page.text());
    }
    // A renewal without an ID token contains no claim source, so the groups cannot be read again.
    setup.issuer.omit_refreshed_id_tokens();
    backdate_sessions(&setup, "groups_read_at", "10 minutes").await;
    browser.session().await.expect_refusal(401, "unauthenticated");
}

/// The number between the texts `before` and `after`.
#[track_caller]
fn seconds(text: &str, before: &str, after: &str) -> u64 {
    let number =
        text.split_once(before).and_then(|(_, remaining)| remaining.split_once(after)).map(|(number, _)| number);
    number.unwrap_or_else(|| panic!("{before}: {text}")).parse().unwrap()
}

/// Different clocks often cause refused tokens. Only administrators see the difference, not the people who sign in.
#[tokio::test]
async fn test_sign_in_tells_administrators_how_far_clocks_differ() {
    let setup = SignInSetup::start().await;
    let browser = setup.sign_in().await;
    setup.local.fixtures().bind_role("user:ada", "platform_admin", "platform", None).await;
    let report = async |claims: Value| {
        setup.issuer.set_person(claims, json!({"sub": "2"}));
        test_sign_in(&setup, &browser).await
    };
    let now = TestIssuer::now();
    // The difference is a few seconds smaller if time has passed since `now` was read.
    let text = report(json!({"sub": "2", "iat": now + 9_000})).await.text();
    let clock_lead = seconds(&text, "the provider's clock is ", " s ahead of this server's");
    assert!((8_000..=9_000).contains(&clock_lead) && text.contains("A sign-in would succeed."), "{text}");
    let text = report(json!({"sub": "2", "iat": now - 9_000})).await.text();
    assert!(seconds(&text, "the provider's clock is ", " s behind this server's") >= 9_000, "{text}");
    let expired = json!({"sub": "2", "exp": now - 9_000});
    let page = report(expired.clone()).await;
    assert_eq!(page.status, 403);
    assert!(seconds(&page.text(), "the token expired ", " s ago") >= 9_000, "{}", page.text());
    assert!(page.text().contains("token_expired") && !page.text().contains("Claims"), "{}", page.text());
    let text = report(json!({"sub": "2", "nbf": now + 9_000})).await.text();
    assert!((8_000..=9_000).contains(&seconds(&text, "the token is valid in ", " s only")), "{text}");
    // In an ordinary sign-in, the person sees only the error code.
    setup.issuer.set_person(expired, json!({"sub": "2"}));
    let (callback, attempt) = setup.begin("").await;
    let page = setup.callback(&callback, &attempt).await;
    assert!(page.status == 403 && page.text().contains("token_expired"), "{}", page.text());
    assert!(!page.text().contains("clock") && !page.text().contains("s ago"), "{}", page.text());
}

#[tokio::test]
async fn pages_sign_out_by_a_request_and_leave_for_the_provider() {
    let setup = SignInSetup::start().await;
    let browser = setup.sign_in().await;
    let csrf = browser.csrf_token().await;
    let send = |token: &str| {
        let request = setup.app.request(Method::POST, "/sign-out").header("Accept", "application/json");
        browser.send(request.with_body("application/x-www-form-urlencoded", format!("csrf_token={token}")))
    };
    send("x").await.expect_refusal(403, "csrf_token_invalid");
    let signed_out = send(&csrf).await.expect(200);
    let location = signed_out["location"].as_str().unwrap();
    assert!(location.starts_with(&format!("{}/logout?id_token_hint=ey", setup.issuer.url())), "{location}");
    browser.session().await.expect_refusal(401, "unauthenticated");
    assert_eq!(send(&csrf).await.expect(200)["location"], "/sign-in?signed_out=1", "nothing is left to end");
}
