//! Texts of the sign-in and sign-out pages, and their behaviour while the provider is unavailable.

use crate::sign_in::{ATTEMPT, Browser, SESSION, SignInSetup, backdate_sessions, cookie, sign_out_form};
use fairway_testkit::MovableClock;
use reqwest::Method;
use serde_json::json;
use std::sync::Arc;

#[tokio::test]
async fn a_tenant_refusal_names_its_claim_and_no_value() {
    let setup =
        SignInSetup::start_with(|builder| builder.setting("FAIRWAY_OIDC_TENANT_CLAIM", "https://x/<org>")).await;
    let unknown = "no tenant that this identity provider serves has its value as slug";
    for (claims, code, problem) in [
        (json!({"https://x/<org>": "nowhere-at-all"}), "tenant_unknown", unknown),
        (json!({"https://x/<org>": "No <b>Slug"}), "tenant_unknown", unknown),
        (json!({"https://x/<org>": 7}), "tenant_claim_missing", "the identity provider sent no text in it"),
        (json!({}), "tenant_claim_missing", "the identity provider sent no text in it"),
    ] {
        setup.issuer.set_person(claims, json!({}));
        let (callback, attempt) = setup.begin("").await;
        let page = setup.callback(&callback, &attempt).await;
        let text = page.text();
        assert_eq!(page.status, 403, "{text}");
        let sentence = format!("The claim <code>https://x/&lt;org&gt;</code> must name the tenant: {problem}.");
        assert!(text.contains(&sentence) && text.contains(code), "{text}");
        assert!(!text.contains("nowhere-at-all") && !text.contains("Slug"), "{text}");
    }
    // Pages of other refusals do not contain this sentence.
    setup.issuer.set_person(json!({"https://x/<org>": "default", "hasgroups": true}), json!({}));
    let (callback, attempt) = setup.begin("").await;
    let text = setup.callback(&callback, &attempt).await.text();
    assert!(text.contains("groups_incomplete") && !text.contains("must name the tenant"), "{text}");
}

#[tokio::test]
async fn a_failed_test_sign_in_leads_to_another_test() {
    let clock = Arc::new(MovableClock::default());
    let setup = SignInSetup::start_with(|builder| builder.clock(clock.clone())).await;
    let browser = setup.sign_in().await;
    setup.local.fixtures().bind_role("user:ada", "platform_admin", "platform", None).await;
    let begin_sign_in = async || {
        let response = browser.send(setup.app.get("/sign-in/test?issuer=0")).await;
        let callback = setup.issuer.complete_sign_in(response.header("location").unwrap());
        (callback, cookie(&response, ATTEMPT).unwrap())
    };
    let finish = async |path: &str, attempt: &str| {
        let cookies = format!("{ATTEMPT}={attempt}; {SESSION}={}", browser.session);
        let page = setup.app.get(path).header("Cookie", cookies).await;
        assert!([400, 403, 502, 503].contains(&page.status), "{}", page.text());
        page.text()
    };
    let links_to = |text: &str, path: &str| text.contains(&format!("<a href=\"{path}\">"));
    // The ID token violates a rule: its nonce belongs to another sign-in.
    setup.issuer.set_person(json!({"nonce": "other"}), json!({}));
    let (callback, attempt) = begin_sign_in().await;
    let text = finish(&callback, &attempt).await;
    assert!(links_to(&text, "/sign-in/test?issuer=0") && !links_to(&text, "/sign-in"), "{text}");
    // The person refuses the sign-in at the provider.
    setup.issuer.set_person(json!({"preferred_username": "ada"}), json!({}));
    let (callback, attempt) = begin_sign_in().await;
    let (_, state) = callback.split_once("&state=").unwrap();
    let denied_callback = format!("/sign-in/callback?error=access_denied&state={state}");
    let text = finish(&denied_callback, &attempt).await;
    assert!(text.contains("sign_in_refused_by_provider") && links_to(&text, "/sign-in/test?issuer=0"), "{text}");
    // The first callback belongs to another sign-in, and the second one arrives after the time limit.
    let (callback, attempt) = begin_sign_in().await;
    let text = finish(&callback.replace("state=", "state=x"), &attempt).await;
    assert!(links_to(&text, "/sign-in/test?issuer=0"), "{text}");
    clock.set_offset(601);
    let text = finish(&callback, &attempt).await;
    assert!(text.contains("has expired") && links_to(&text, "/sign-in/test?issuer=0"), "{text}");
    clock.set_offset(0);
    // The page of a failed ordinary sign-in links to the ordinary sign-in, not to the test sign-in.
    setup.issuer.set_person(json!({"nonce": "other"}), json!({}));
    let (callback, attempt) = setup.begin("").await;
    let text = setup.callback(&callback, &attempt).await.text();
    assert!(links_to(&text, "/sign-in") && !links_to(&text, "/sign-in/test?issuer=0"), "{text}");
}

/// The age of a pending sign-in is measured with the server's clock, which a test can move.
#[tokio::test]
async fn a_sign_in_ends_ten_minutes_after_its_begin() {
    let clock = Arc::new(MovableClock::default());
    let setup = SignInSetup::start_with(|builder| builder.clock(clock.clone())).await;
    let (callback, attempt) = setup.begin("").await;
    clock.set_offset(601);
    let late_response = setup.callback(&callback, &attempt).await;
    assert!(late_response.status == 400 && late_response.text().contains("has expired"), "{}", late_response.text());
    assert_eq!(cookie(&late_response, SESSION), None);
    // By this clock, the same callback is still within the time limit.
    clock.set_offset(500);
    assert_eq!(setup.callback(&callback, &attempt).await.status, 303);
    // A sign-in that begins after the clock was moved is measured from that moment.
    let (callback, attempt) = setup.begin("").await;
    clock.set_offset(1_000);
    assert_eq!(setup.callback(&callback, &attempt).await.status, 303);
}

#[tokio::test]
async fn sign_out_reports_missing_and_invalid_form_fields() {
    let setup = SignInSetup::start().await;
    let browser = setup.sign_in().await;
    let csrf = browser.csrf_token().await;
    let form = "application/x-www-form-urlencoded";
    let long_form = format!("csrf_token={}", "a".repeat(20_000));
    let message = |status: u16, code: &'static str, kind: &'static str, body: String| {
        let request = browser.send(setup.app.request(Method::POST, "/sign-out").with_body(kind, body));
        async move {
            let response = request.await;
            let text = response.text();
            response.expect_refusal(status, code);
            text
        }
    };
    let text = message(403, "csrf_token_invalid", form, "other=1".to_owned()).await;
    assert!(text.contains("the form field `csrf_token` is missing"), "{text}");
    let text = message(403, "csrf_token_invalid", form, String::new()).await;
    assert!(text.contains("the form field `csrf_token` is missing"), "{text}");
    let text = message(403, "csrf_token_invalid", form, "csrf_token=x".to_owned()).await;
    assert!(text.contains("the form field `csrf_token` is not that of the session"), "{text}");
    let json = json!({"csrf_token": csrf}).to_string();
    let text = message(415, "unsupported_media_type", "application/json", json).await;
    assert!(text.contains("application/x-www-form-urlencoded"), "{text}");
    let form_with_two_tokens = format!("csrf_token={csrf}&csrf_token={csrf}");
    let text = message(400, "bad_request", form, form_with_two_tokens).await;
    assert!(text.contains("form") && !text.contains(&csrf), "{text}");
    message(413, "payload_too_large", form, long_form).await;
    browser.session().await.expect(200);
    // Without a session, the form needs no protection, so the sign-out succeeds.
    let request = setup.app.request(Method::POST, "/sign-out").with_body(form, "");
    assert_eq!(request.await.status, 303);
    let logout = setup.app.request(Method::POST, "/sign-out/backchannel").with_body(form, "other=1").await;
    assert!(logout.status == 400 && logout.text().contains("invalid_request"), "{}", logout.text());
}

#[tokio::test]
async fn page_of_a_wrong_nonce_reports_a_token_of_another_sign_in() {
    let setup = SignInSetup::start().await;
    for claims in [json!({"nonce": "other"}), json!({"nonce": null})] {
        setup.issuer.set_person(claims, json!({}));
        let (callback, attempt) = setup.begin("").await;
        let page = setup.callback(&callback, &attempt).await;
        let text = page.text();
        assert!(page.status == 403 && text.contains("token_nonce"), "{text}");
        assert!(text.contains("belongs to another sign-in") && !text.contains("access token"), "{text}");
    }
}

/// A server that has never contacted the provider can end sessions while the provider is unavailable.
#[tokio::test]
async fn sessions_end_while_the_provider_is_gone() {
    let setup = SignInSetup::start().await;
    let other_server = setup.another_server().await;
    let (first_session, second_session) = (setup.sign_in().await, setup.sign_in().await);
    let tokens = [first_session.csrf_token().await, second_session.csrf_token().await];
    let sessions = [first_session.session, second_session.session];
    // Groups of this age must be read again from the provider before any request except the end of the session.
    backdate_sessions(&setup, "groups_read_at", "10 minutes").await;
    let SignInSetup { issuer, local: _local, app } = setup;
    drop(issuer);
    let [first_browser, second_browser] = sessions.map(|session| Browser { app: &other_server, session });
    first_browser.session().await.expect_refusal(503, "unavailable");
    let ended =
        first_browser.send(other_server.post("/v1/session/logout", json!({}))).header("X-CSRF-Token", &tokens[0]).await;
    assert_eq!(ended.status, 204, "{}", ended.text());
    let response = second_browser.send(sign_out_form(&other_server, &tokens[1])).await;
    assert_eq!(
        (response.status, response.header("location")),
        (303, Some("/sign-in?signed_out=1")),
        "{}",
        response.text()
    );
    assert_eq!(cookie(&response, SESSION).as_deref(), Some(""));
    for browser in [first_browser, second_browser] {
        let browser_on_other_server = Browser { app: &app, session: browser.session.clone() };
        browser.session().await.expect_refusal(401, "unauthenticated");
        browser_on_other_server.session().await.expect_refusal(401, "unauthenticated");
    }
}
