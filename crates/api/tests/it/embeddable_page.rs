//! Threat T31 in `docs/security.md`: other sites can frame only the pages of listed workloads. These pages load only
//! files of the server, and error pages load nothing.

use fairway_testkit::{FaultProxy, ProxyFault, TestApp, app::Response};
use serde_json::{Value, json};

const NO_FRAMING: &str = "default-src 'none'; frame-ancestors 'none'";

async fn workload_with_interface(app: &TestApp, slug: &str, mode: &str) -> String {
    let workload = app.fixtures().workload(slug).await;
    let patch = json!({
        "name": "<script>alert(1)</script> & \"co\"",
        "interface_config": { "presentation_mode": "form", "access_mode": mode, "description": "It's <b>bold</b>." },
    });
    app.patch(format!("/v1/workloads/{workload}"), patch).await.expect(200);
    workload
}

/// Asserts the headers of a runtime page or an error page. Returns its text.
#[track_caller]
fn assert_page(response: &Response, status: u16, ancestors: &str) -> String {
    assert_eq!(response.status, status, "{response}");
    let policy = response.header("content-security-policy").unwrap();
    let text = response.text();
    if status == 200 {
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(policy.ends_with(&format!("frame-ancestors {ancestors}")) && !policy.contains("unsafe"), "{policy}");
        assert!(text.matches("<script").all(|_| text.contains("<script type=\"module\" src=\"/_app/")), "{text}");
        assert!(text.matches("<script").count() <= 1, "{text}");
    } else {
        let expected = format!("default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors {ancestors}");
        assert_eq!(policy, expected);
        for forbidden in ["<script", "style", "src=", "href="] {
            assert!(!text.contains(forbidden), "{forbidden}: {text}");
        }
    }
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(response.header(name), Some(value), "{response}");
    }
    for forbidden in ["<b>", "fws_"] {
        assert!(!text.contains(forbidden), "{forbidden}: {text}");
    }
    text
}

#[track_caller]
fn assert_not_found(response: &Response) {
    response.expect_refusal(404, "not_found");
    assert_eq!(response.header("content-security-policy"), Some(NO_FRAMING));
}

#[tokio::test]
async fn only_configured_workloads_have_a_page() {
    let app = TestApp::builder()
        .setting("SERVICE_EMBED_ROOT_SLUGS", "shown, nobodys")
        .setting("FAIRWAY_EMBED_ANCESTORS", "'self' https://portal.example")
        .start()
        .await;
    for slug in ["ticket-classifier", "shown", "hidden"] {
        workload_with_interface(&app, slug, "public").await;
    }
    let ancestors = "'self' https://portal.example";
    for slug in ["ticket-classifier", "shown"] {
        let text = assert_page(&app.get(format!("/{slug}")).await, 200, ancestors);
        assert!(text.contains("&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;co&quot;"), "{text}");
        assert!(text.contains("It&#39;s &lt;b&gt;bold&lt;/b&gt;."), "{text}");
        let head_response = app.request("HEAD".parse().unwrap(), format!("/{slug}?utm_source=x")).await;
        assert_eq!((head_response.status, head_response.body.len()), (200, 0));
    }
    for path in [
        "/hidden",
        "/nobodys",
        "/shown/",
        "//shown",
        "/./shown",
        "/x/../shown",
        "/shown/..",
        "/Shown",
        "/SHOWN",
        "/sho%77n",
        "/shown%20",
        "/shown%00",
        "/shown%2f",
        "/%2fshown",
        "/ticket%2Dclassifier",
        "/shown;x=1",
        "/shown.html",
        "/ticket-classifier2",
    ] {
        assert_not_found(&app.send_raw_path("GET", path).await);
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"] {
        assert_not_found(&app.send_raw_path(method, "/shown").await);
    }
    // No other page can be framed.
    for path in ["/docs/", "/v1/workloads", "/healthz"] {
        let policy = app.get(path).await.header("content-security-policy").unwrap().to_owned();
        assert!(policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
    }
}

#[tokio::test]
async fn page_carries_title_and_theme_and_no_other_page_can_be_framed() {
    let app = TestApp::start().await;
    let workload = app.fixtures().workload("ticket-classifier").await;
    let theme = json!({ "accent_color": "#0b7285", "font_family": "\"A B\", serif", "border_radius": "8px" });
    let config = json!({ "presentation_mode": "form", "access_mode": "public", "theme": theme });
    app.patch(format!("/v1/workloads/{workload}"), json!({ "interface_config": config })).await.expect(200);
    let page = app.get("/ticket-classifier").await;
    let text = assert_page(&page, 200, "'self'");
    let (_, style) = text.split_once("<style nonce=\"").unwrap();
    let (nonce, style) = style.split_once("\">").unwrap();
    let expected = "#root { --svc-accent: #0b7285; --svc-font: \"A B\", serif; --svc-radius: 8px; }</style>";
    assert!(style.starts_with(expected), "{style}");
    assert!(page.header("content-security-policy").unwrap().contains(&format!("'nonce-{nonce}'")), "{page}");
    let second_response = app.get("/ticket-classifier").await;
    assert!(!second_response.text().contains(nonce), "a nonce is used once");
    for path in [
        "/workload-runtime",
        "/workload-runtime/ticket-classifier",
        "/workload-runtime/nobodys",
        "/console",
        "/console/",
        "/console/releases/1?tab=a",
    ] {
        let page = app.get(path).await;
        let policy = page.header("content-security-policy").unwrap();
        assert!(
            page.status == 200 && policy.ends_with("frame-ancestors 'none'") && !policy.contains("unsafe"),
            "{page}"
        );
        assert!(!page.text().contains("0b7285"), "the document of a page does not depend on the workload");
    }
    let root_page = app.get("/").await;
    assert_eq!((root_page.status, root_page.header("location")), (307, Some("/workload-runtime")));
    app.get("/workload-runtime/NO").await.expect_refusal(404, "not_found");
    app.get("/_app/missing.js").await.expect_refusal(404, "not_found");
    app.send_raw_path("GET", "/_app/../Cargo.toml").await.expect_refusal(404, "not_found");
    for path in ["/workload-runtime", "/console", "/console/releases"] {
        app.send_raw_path("POST", path).await.expect_refusal(405, "method_not_allowed");
    }
}

#[tokio::test]
async fn link_shared_page_requires_a_valid_link() {
    let app = TestApp::start().await;
    let workload = workload_with_interface(&app, "ticket-classifier", "link_shared").await;
    let links = format!("/v1/workloads/{workload}/share-links");
    let link = app.post(&links, json!({})).await.expect(201);
    let token = link["token"].as_str().unwrap();
    let get = |token: &str| app.get(format!("/ticket-classifier?token={token}"));
    let assert_refused = |response: &Response| {
        let text = assert_page(response, 401, "'self'");
        assert!(text.contains("have no access") && !text.contains("script&gt;"), "{text}");
    };
    assert_refused(&app.get("/ticket-classifier").await);
    assert_refused(&get("fws_nonsense").await);
    assert_page(&get(token).await, 200, "'self'");
    let body = json!({ "environment": "dev", "inputs": {} });
    // A refused run does not count as a use of the share link.
    app.post(format!("/v1/workloads/by-slug/ticket-classifier/execute?token={token}"), body)
        .await
        .expect_refusal(409, "no_active_release");
    assert_eq!(app.get(&links).await.expect(200)[0]["use_count"], 0);
    app.database().set_clock_offset(25 * 3600).await.unwrap();
    assert_refused(&get(token).await);
    app.database().set_clock_offset(0).await.unwrap();
    assert_page(&get(token).await, 200, "'self'");
    app.delete(format!("{links}/{}", link["share_link_id"].as_str().unwrap())).await.expect(204);
    assert_refused(&get(token).await);
    // A workload without an interface has no page.
    app.patch(format!("/v1/workloads/{workload}"), json!({ "interface_config": Value::Null })).await.expect(200);
    assert_not_found(&app.get("/ticket-classifier").await);
}

/// Errors are HTML pages too, because they can appear in a frame. `Retry-After` serves programs that call the page.
#[tokio::test]
async fn errors_are_html_pages_with_retry_after() {
    let app = TestApp::builder()
        .setting("FAIRWAY_PUBLIC_RATE_PER_MINUTE", "1")
        .setting("FAIRWAY_PUBLIC_RATE_BURST", "1")
        .start()
        .await;
    workload_with_interface(&app, "ticket-classifier", "public").await;
    assert_page(&app.get("/ticket-classifier").await, 200, "'self'");
    let response = app.get("/ticket-classifier").await;
    assert!(assert_page(&response, 429, "'self'").contains("too many requests"));
    let seconds: u32 = response.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds) && response.header("ratelimit-remaining") == Some("0"), "{response}");
    let proxy = FaultProxy::start_for_database(app.database(), 1);
    let proxied = TestApp::builder().sharing_storage_of(&app).through_proxy(&proxy).start().await;
    proxy.set_fault(ProxyFault::Matching("FROM (\"workload\""));
    let unavailable = proxied.get("/ticket-classifier").await;
    proxy.set_fault(ProxyFault::None);
    assert!(assert_page(&unavailable, 503, "'self'").contains("cannot be shown at the moment"));
    assert!(unavailable.header("retry-after").is_some(), "{unavailable}");
}
