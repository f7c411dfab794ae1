//! What the pages of sign-in and sign-out say, and what they do while the provider is gone.

use crate::sign_in::Scene;
use serde_json::json;

#[tokio::test]
async fn a_tenant_refusal_names_its_claim_and_no_value() {
    let scene = Scene::start_with(|builder| builder.setting("FAIRWAY_OIDC_TENANT_CLAIM", "https://x/<org>")).await;
    let unknown = "no tenant that this identity provider serves has its value as slug";
    for (claims, code, problem) in [
        (json!({"https://x/<org>": "nowhere-at-all"}), "tenant_unknown", unknown),
        (json!({"https://x/<org>": "No <b>Slug"}), "tenant_unknown", unknown),
        (json!({"https://x/<org>": 7}), "tenant_claim_missing", "the identity provider sent no text in it"),
        (json!({}), "tenant_claim_missing", "the identity provider sent no text in it"),
    ] {
        scene.issuer.set_person(claims, json!({}));
        let (callback, attempt) = scene.begin("").await;
        let page = scene.callback(&callback, &attempt).await;
        let text = page.text();
        assert_eq!(page.status, 403, "{text}");
        let sentence = format!("The claim <code>https://x/&lt;org&gt;</code> must name the tenant: {problem}.");
        assert!(text.contains(&sentence) && text.contains(code), "{text}");
        assert!(!text.contains("nowhere-at-all") && !text.contains("Slug"), "{text}");
    }
    // Other refusals have no such sentence.
    scene.issuer.set_person(json!({"https://x/<org>": "default", "hasgroups": true}), json!({}));
    let (callback, attempt) = scene.begin("").await;
    let text = scene.callback(&callback, &attempt).await.text();
    assert!(text.contains("groups_incomplete") && !text.contains("must name the tenant"), "{text}");
}
