//! Tests of secret bindings and endpoints.

use super::*;

#[test]
fn accepts_references_and_refuses_secrets() {
    let bindings = |name: &str, value: &str| SecretBindings::new([(name.to_owned(), value.to_owned())].into());
    assert!(bindings("token", "env:CRM_TOKEN").is_ok() && bindings("api-key", "vault:crm/main#key").is_ok());
    for secret in ["sk-live-1", "", "https://user:pass@host", "file:../x", "env:lower"] {
        assert_eq!(bindings("token", secret), Err(ConnectionRefusal::SecretRef), "{secret}");
    }
    for name in ["", "1a", "a b", "é", &"x".repeat(64)] {
        assert_eq!(bindings(name, "env:A"), Err(ConnectionRefusal::BindingName), "{name}");
    }
    let many = (0..21).map(|number| (format!("b{number}"), "env:A".to_owned())).collect();
    assert_eq!(SecretBindings::new(many), Err(ConnectionRefusal::TooManyBindings));
}

#[test]
fn refuses_endpoints_with_credentials() {
    for good in ["https://crm.example/api", "postgres://db.internal:5432/main", "smtp://mail.example:25"] {
        assert_eq!(check_endpoint(good), Ok(()), "{good}");
    }
    for bad in [
        "",
        "crm.example",
        "https://",
        "https:///x",
        "https://user:pass@crm.example",
        "https://crm.example/?key=secret",
        "https://crm.example/#x",
        "https://crm example",
        "https://crm.example\\@evil",
        "HTTPS://crm.example",
    ] {
        assert_eq!(check_endpoint(bad), Err(ConnectionRefusal::Endpoint), "{bad}");
    }
}

#[test]
fn endpoints_have_the_scheme_of_their_kind() {
    use ConnectorKind::{Http, Other, Postgres, S3, Smtp};
    for (scheme, kinds) in [
        ("http", [true, false, true, false]),
        ("https", [true, false, true, false]),
        ("postgres", [false, true, false, false]),
        ("postgresql", [false, true, false, false]),
        ("smtp", [false, false, false, true]),
        ("smtps", [false, false, false, true]),
        ("ftp", [false; 4]),
    ] {
        let endpoint = format!("{scheme}://host.example");
        for (kind, is_valid) in [Http, Postgres, S3, Smtp].into_iter().zip(kinds) {
            assert_eq!(kind.check_endpoint(&endpoint).is_ok(), is_valid, "{kind:?} {scheme}");
        }
        assert!(Other.check_endpoint(&endpoint).is_ok());
    }
}
