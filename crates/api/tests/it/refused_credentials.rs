//! Every operation without credentials, with invalid credentials, and with the credentials of a person without roles.

use crate::{
    access_by_role::{CALLERS, EXPECTED_ACCESS},
    access_tokens::WithToken as _,
    support::workspace_fixture::WorkspaceFixture,
};
use fairway_testkit::{ACCESS_TOKEN_AUDIENCE, TestApp, TestIssuer};
use serde_json::json;

/// Operations that ignore credentials: probes, and documents without data of a tenant.
const IGNORE_CREDENTIALS: [&str; 5] = ["read_document", "read_reference", "healthz", "readyz", "metrics"];
/// Operations that need no identity, but refuse invalid credentials.
const OPEN_TO_EVERYONE: [&str; 2] = ["read_sign_in_settings", "end_session"];
/// The operation that returns a page. Without credentials, the page offers a sign-in.
const PAGE: &str = "read_page";

/// Invalid tokens. Their claims name an administrator, so that accepting one of them would permit every operation.
async fn invalid_tokens(issuer: &TestIssuer) -> Vec<(&'static str, String)> {
    let root = |change: serde_json::Value| {
        let mut claims = json!({"sub": "root", "preferred_username": "root"});
        claims.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        issuer.token(claims)
    };
    let forger = TestIssuer::start().await.unwrap();
    let claims = json!({
        "iss": issuer.url(), "aud": ACCESS_TOKEN_AUDIENCE, "sub": "root", "preferred_username": "root",
        "exp": TestIssuer::now() + 600,
    });
    vec![
        ("garbage", "garbage".to_owned()),
        ("expired", root(json!({"exp": TestIssuer::now() - 600}))),
        ("other audience", root(json!({"aud": "https://other.example"}))),
        ("other key", forger.sign(&json!({"alg": "EdDSA", "kid": "test-key"}), &claims)),
    ]
}

#[tokio::test]
async fn every_operation_refuses_missing_invalid_and_powerless_credentials() {
    let issuer = TestIssuer::start().await.unwrap();
    let local = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&local).await;
    // Fixtures are created before the second server starts, because its background tasks do not know actors of local
    // mode.
    let mut requests = Vec::new();
    for (operation, expected) in EXPECTED_ACCESS {
        requests.push((operation, expected, fixture.successful_request(operation).await));
    }
    let app = TestApp::builder().sharing_storage_of(&local).oidc(&issuer).start().await;
    let root = issuer.token(json!({"sub": "root", "preferred_username": "root"}));
    // A token with the same claims and with valid signature, time and audience is accepted.
    app.get("/v1/tenants").token(&root).await.expect(200);
    let (invalid, powerless) = (invalid_tokens(&issuer).await, issuer.person_token("nobody", &[]));
    let column = CALLERS.iter().position(|caller| *caller == "user:nobody").unwrap();
    let mut differences = Vec::new();
    for (operation, expected, request) in requests {
        let request = request.to_server(&app);
        let (ignores, is_open) = (IGNORE_CREDENTIALS.contains(operation), OPEN_TO_EVERYONE.contains(operation));
        let mut check = |case: &str, is_right: bool, response: &dyn std::fmt::Display| {
            if !is_right {
                differences.push(format!("{operation}, {case}: {response}"));
            }
        };
        let response = request.clone().await;
        let challenge = response.header("www-authenticate").unwrap_or_default().to_owned();
        let is_refused =
            || response.status == 401 && response.code() == "unauthenticated" && challenge.contains("Bearer ");
        let is_right = match *operation {
            PAGE => {
                let link = "/sign-in?return_to=%2Fworkload-runtime%2Fticket-classifier";
                response.status == 401 && response.text().contains(link)
            }
            _ if ignores || is_open => response.status < 300,
            _ => is_refused(),
        };
        check("no credentials", is_right, &response);
        for (case, token) in &invalid {
            let response = request.clone().token(token).await;
            let challenge = response.header("www-authenticate").unwrap_or_default().to_owned();
            let is_refused = response.status == 401 && challenge.contains("error=\"invalid_token\"");
            check(case, if ignores { response.status < 300 } else { is_refused }, &response);
        }
        let response = request.clone().token(&powerless).await;
        let is_right = match expected.split(' ').nth(column) {
            Some("+" | "e") => response.status < 300,
            Some("f") => response.status == 403 && response.code() == "forbidden",
            Some(".") => response.status == 404,
            _ => false,
        };
        check("no role", is_right, &response);
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}
