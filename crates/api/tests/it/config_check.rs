//! `fairway-server config check` of the settings for identity providers.

use crate::provider_check::server;

/// Runs a check. Returns success, standard output and standard error. Asserts that the output contains no secret.
async fn check(settings: &str, variables: &[(&str, &str)]) -> (bool, String, String) {
    let output = server(Some(settings), &["config", "check"], variables).await;
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(!out.contains("CANARY") && !err.contains("CANARY"), "{out}{err}");
    (output.status.success(), out, err)
}

/// Settings of OIDC mode with one `[oidc]` issuer, and one `[[issuers]]` table for each of `tables`.
fn settings(session: &str, first: &str, tables: &[&str]) -> String {
    let oidc = "[oidc]\nissuer = \"https://idp.example/realms/main\"\naudience = \"https://fairway.example\"\n";
    let tables: String = tables.iter().map(|table| format!("[[issuers]]\naudience = \"fairway\"\n{table}\n")).collect();
    format!("[auth]\nmode = \"oidc\"\n[session]\n{session}\n{oidc}{first}\n{tables}")
}

#[tokio::test]
async fn shows_every_issuer_without_secrets() {
    let second_issuer = "issuer = \"https://b.example\"\nname = \"Partners\"\nclient_id = \"portal\"\ntenant = \"acme\"\n\
        client_secret_ref = \"env:SECRET\"\nscopes = \"openid offline_access\"\ntenant_claim = \"org\"";
    let third_issuer =
        "issuer = \"https://c.example\"\nclient_id = \"p\"\ncli_client_id = \"cli\"\nuser_claim = \"upn\"";
    let text = settings("", "", &[second_issuer, third_issuer]);
    let (is_valid, out, err) = check(&text, &[("SECRET", "CANARY-of-the-portal")]).await;
    assert!(is_valid && err.is_empty(), "{out}{err}");
    for line in [
        "[oidc] https://idp.example/realms/main: name idp.example, audience https://fairway.example, no portal client, \
         no command line client, scopes openid profile email, user claim preferred_username, groups claim groups\n",
        "[[issuers]] https://b.example: name Partners, audience fairway, portal client portal with secret env:SECRET, \
         no command line client, scopes openid offline_access, user claim preferred_username, groups claim groups, \
         tenant claim org, tenant acme\n",
        "[[issuers]] https://c.example: name c.example, audience fairway, portal client p without secret, command line \
         client cli, scopes openid profile email, user claim upn, groups claim groups\n",
    ] {
        assert!(out.contains(line), "{line}\n{out}");
    }
}

#[tokio::test]
async fn reports_each_contradiction_between_issuers() {
    let folder = tempfile::TempDir::new().unwrap();
    let invalid_certificate = folder.path().join("garbage.pem");
    std::fs::write(&invalid_certificate, "CANARY").unwrap();
    let missing = folder.path().join("missing.pem");
    let table = |host: &str, settings: &str| format!("issuer = \"https://{host}\"\n{settings}");
    let with_file = |path: &std::path::Path| format!("ca_file = \"{}\"", path.display());
    let tables = [
        table("b.example", "client_id = \"p\"\nclient_secret_ref = \"env:NOWHERE\""),
        table("c.example", &with_file(&missing)),
        table("d.example", &with_file(&invalid_certificate)),
        table("idp.example/realms/main", "scopes = \"profile openid2\""),
        table("e.example", "client_id = \"p\"\nclient_secret_ref = \"vault:fairway#portal\""),
    ];
    let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
    let text = settings("idle = \"2h\"\nlifetime = \"1h\"", "scopes = \"profile\"", &tables);
    let (is_valid, out, err) = check(&text, &[]).await;
    let sentences = [
        "`oidc.scopes` must contain `openid`",
        "`issuers[3].issuer` must be unique",
        "`issuers[3].scopes` must contain `openid`",
        "`session.idle` must not be longer than `session.lifetime`",
        "`issuers[0].client_secret_ref` names `env:NOWHERE`: the secret does not exist",
        "`issuers[1].ca_file`: the file of certificate authorities cannot be read",
        "`issuers[2].ca_file`: the file of certificate authorities must contain certificates in PEM form",
        "`issuers[4].client_secret_ref` names `vault:fairway#portal`: the secret backend is not configured",
    ];
    let expected: String = sentences.map(|sentence| format!("fairway-server: {sentence}\n")).concat();
    assert_eq!((is_valid, err), (false, expected));
    assert!(out.contains("[[issuers]] https://d.example: "), "{out}");
    // A server does not start with contradictory settings either. But a session lifetime below the default idle time
    // does not contradict it.
    let output = server(Some(&text), &["migrate"], &[]).await;
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && err.contains("`oidc.scopes` must contain `openid`"), "{err}");
    let (is_valid, _, err) = check(&settings("lifetime = \"30m\"", "", &[]), &[]).await;
    assert!(is_valid, "{err}");
}
