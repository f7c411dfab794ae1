use super::{
    page::{PageKind, PortalPage},
    *,
};
use actix_web::{body::to_bytes, http::StatusCode, test::TestRequest};

const MANIFEST_TEXT: &str = r#"{
    "src/runtime/main.tsx": { "file": "main-1.js", "css": ["main-1.css"], "imports": ["_react.js"] },
    "_react.js": { "file": "react-2.js" },
    "src/runtime/chat.tsx": { "file": "chat-3.js", "css": ["chat-3.css"] },
    "src/console/main.tsx": { "file": "main-4.js", "css": ["main-4.css"], "imports": ["console:_react.js"] },
    "console:_react.js": { "file": "react-5.js" }
}"#;

/// A portal of three files.
pub(crate) fn small_portal() -> Portal {
    let plain = |name, plain: &'static str| PortalFile { name, plain: plain.as_bytes(), gzip: None, brotli: None };
    let script = PortalFile { gzip: Some(b"gz"), brotli: Some(b"br"), ..plain("main-1.js", "script") };
    Portal::from_files(&[plain(MANIFEST, MANIFEST_TEXT), script, plain("main-1.css", "style"), plain("react-2.js", "")])
}

fn page<'a>(theme: Vec<(&'static str, &'a str)>) -> PortalPage<'a> {
    PortalPage {
        status: StatusCode::OK,
        kind: PageKind::Embed,
        title: "<script>alert(1)</script>",
        description: "\"'&",
        slug: Some("a"),
        auth_mode: "local",
        theme,
        ancestors: "'self'",
    }
}

async fn text(response: HttpResponse) -> String {
    String::from_utf8(to_bytes(response.into_body()).await.unwrap().to_vec()).unwrap()
}

#[actix_web::test]
async fn serves_files_compressed_and_immutable() {
    let portal = small_portal();
    for (accepted, encoding, body) in [
        (Some("gzip, deflate, br"), Some("br"), "br"),
        (Some("gzip"), Some("gzip"), "gz"),
        (Some("br;q=0, gzip;q=0.5"), Some("gzip"), "gz"),
        (Some("identity"), None, "script"),
        (None, None, "script"),
    ] {
        let request = TestRequest::default();
        let request =
            accepted.into_iter().fold(request, |request, value| request.insert_header(("Accept-Encoding", value)));
        let response = portal.file("main-1.js", &request.to_http_request()).unwrap();
        let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(header("content-encoding").as_deref(), encoding, "{accepted:?}");
        assert_eq!(header("cache-control").as_deref(), Some("public, max-age=31536000, immutable"));
        assert_eq!(header("vary").as_deref(), Some("Accept-Encoding"));
        assert_eq!(header("content-type").as_deref(), Some("text/javascript; charset=utf-8"));
        assert_eq!(text(response).await, body);
    }
    for unknown in [MANIFEST, "..", "main-1.js.gz", ""] {
        assert!(portal.file(unknown, &TestRequest::default().to_http_request()).is_none(), "{unknown}");
    }
}

#[actix_web::test]
async fn documents_load_only_the_files_of_the_entry() {
    let response = page(vec![("--svc-accent", "#0b7285")]).render(&small_portal());
    let policy = response.headers().get("content-security-policy").unwrap().to_str().unwrap().to_owned();
    let html = text(response).await;
    let nonce = html.split("<style nonce=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert!(nonce.len() == 32 && policy.contains(&format!("style-src 'self' 'nonce-{nonce}'")), "{policy}");
    assert!(!policy.contains("unsafe") && policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    assert!(policy.ends_with("frame-ancestors 'self'") && policy.contains("require-trusted-types-for 'script'"));
    assert_eq!(html.matches("<script").count(), 1, "{html}");
    assert!(html.contains("<script type=\"module\" src=\"/_app/main-1.js\"></script>"), "{html}");
    assert!(html.contains("modulepreload\" href=\"/_app/react-2.js\"") && html.contains("href=\"/_app/main-1.css\""));
    assert!(!html.contains("chat-3") && html.contains("&lt;script&gt;") && html.contains("&quot;&#39;&amp;"));
    let without_theme = text(page(Vec::new()).render(&small_portal())).await;
    assert!(!without_theme.contains("<style") && !without_theme.contains(nonce));
}

#[actix_web::test]
async fn console_loads_its_own_entry() {
    let console = PortalPage { kind: PageKind::Console, slug: None, ..page(Vec::new()) };
    let html = text(console.render(&small_portal())).await;
    assert!(html.contains("src=\"/_app/main-4.js\"") && html.contains("href=\"/_app/main-4.css\""), "{html}");
    assert!(html.contains("href=\"/_app/react-5.js\"") && !html.contains("main-1.js"), "{html}");
    assert!(html.contains("data-page=\"console\"") && !html.contains("data-slug"), "{html}");
}

#[actix_web::test]
async fn omits_theme_values_that_end_their_declaration() {
    for hostile in ["red;} body{background:url(//x)", "</style><script>", "\\3b", "a&amp;", "@import x", "/**/red"] {
        let html = text(page(vec![("--svc-accent", hostile), ("--svc-radius", "4px")]).render(&small_portal())).await;
        assert!(html.contains("#root { --svc-radius: 4px; }") && !html.contains(hostile), "{html}");
    }
}

#[actix_web::test]
async fn page_explains_how_to_build_a_missing_portal() {
    let portal = Portal::from_files(&[]);
    assert!(!portal.is_built());
    let html = text(page(Vec::new()).render(&portal)).await;
    assert!(html.contains("<code>cargo xtask portal</code>") && !html.contains("<script"), "{html}");
}
