use super::*;

const CLAIMS: &str = r#"{"iss":"https://issuer.example"}"#;

fn encoded(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

fn token(header: &str, claims: &str) -> String {
    format!("{}.{}.c2ln", encoded(header), encoded(claims))
}

fn refusal(token: &str) -> Option<InvalidToken> {
    UnverifiedToken::parse_access_token(token).err()
}

#[test]
fn parses_tokens_of_every_algorithm() {
    for (name, algorithm) in [
        ("RS256", SignatureAlgorithm::Rs256),
        ("PS256", SignatureAlgorithm::Ps256),
        ("ES256", SignatureAlgorithm::Es256),
        ("EdDSA", SignatureAlgorithm::EdDsa),
    ] {
        let text = token(&format!(r#"{{"alg":"{name}","kid":"k"}}"#), CLAIMS);
        let parsed = UnverifiedToken::parse_access_token(&text).unwrap();
        assert_eq!(parsed.algorithm(), algorithm);
        assert_eq!(parsed.key_id(), "k");
        assert_eq!(parsed.issuer(), Some("https://issuer.example"));
        assert_eq!(parsed.signature(), b"sig");
        assert_eq!(parsed.signed_bytes(), text.rsplit_once('.').unwrap().0.as_bytes());
    }
}

#[test]
fn refuses_every_other_algorithm() {
    for algorithm in [
        r#""none""#,
        r#""None""#,
        r#""NONE""#,
        r#""nOnE""#,
        r#""""#,
        r#""HS256""#,
        r#""HS384""#,
        r#""HS512""#,
        r#""RS384""#,
        r#""RS512""#,
        r#""PS384""#,
        r#""ES384""#,
        r#""ES512""#,
        r#""ES256K""#,
        r#""RS1""#,
        r#""rs256""#,
        r#"" RS256""#,
        r#""RS256 ""#,
        r#""EDDSA""#,
        r#""Ed25519""#,
        r#""dir""#,
        r#""RSA-OAEP""#,
        "null",
        "256",
        r#"["RS256"]"#,
        r#"{"name":"RS256"}"#,
    ] {
        let header = format!(r#"{{"alg":{algorithm},"kid":"k"}}"#);
        assert_eq!(refusal(&token(&header, CLAIMS)), Some(InvalidToken::Algorithm), "{algorithm}");
    }
    assert_eq!(refusal(&token(r#"{"kid":"k"}"#, CLAIMS)), Some(InvalidToken::Algorithm));
}

#[test]
fn accepts_types_of_access_tokens_only() {
    for allowed in ["at+jwt", "AT+JWT", "application/at+jwt", "JWT", "jwt"] {
        let header = format!(r#"{{"alg":"RS256","kid":"k","typ":"{allowed}"}}"#);
        assert_eq!(refusal(&token(&header, CLAIMS)), None, "{allowed}");
    }
    for wrong in [
        r#""logout+jwt""#,
        r#""dpop+jwt""#,
        r#""secevent+jwt""#,
        r#""oauth-authz-req+jwt""#,
        r#""JWE""#,
        r#""JOSE""#,
        r#""at+jwt ""#,
        r#""""#,
        "null",
        "1",
        r#"["at+jwt"]"#,
    ] {
        let header = format!(r#"{{"alg":"RS256","kid":"k","typ":{wrong}}}"#);
        assert_eq!(refusal(&token(&header, CLAIMS)), Some(InvalidToken::Type), "{wrong}");
    }
}

#[test]
fn refuses_headers_that_choose_keys_or_demand_extensions() {
    for name in FORBIDDEN_HEADERS {
        for value in ["null", r#""https://attacker.example""#, r#"["exp"]"#, "{}"] {
            let header = format!(r#"{{"alg":"RS256","kid":"k","{name}":{value}}}"#);
            assert_eq!(refusal(&token(&header, CLAIMS)), Some(InvalidToken::ForbiddenHeader), "{name}: {value}");
        }
    }
    // A forbidden member is recognized even if its name is escaped.
    let header = r#"{"alg":"RS256","kid":"k","\u006awk":{}}"#;
    assert_eq!(refusal(&token(header, CLAIMS)), Some(InvalidToken::ForbiddenHeader));
    // A verifier ignores other unknown members (RFC 7515, 4).
    assert_eq!(refusal(&token(r#"{"alg":"RS256","kid":"k","x5t":"abc","custom":1}"#, CLAIMS)), None);
}

#[test]
fn requires_a_short_key_identifier() {
    let long = "k".repeat(MAX_KEY_ID_BYTES + 1);
    for kid in [String::new(), r#""kid":"","#.into(), r#""kid":null,"#.into(), r#""kid":7,"#.into()]
        .into_iter()
        .chain([r#""kid":["k"],"#.to_owned(), format!(r#""kid":"{long}","#)])
    {
        let header = format!(r#"{{{kid}"alg":"RS256"}}"#);
        assert_eq!(refusal(&token(&header, CLAIMS)), Some(InvalidToken::KeyId), "{kid}");
    }
}

#[test]
fn refuses_every_form_but_the_canonical_compact_one() {
    let header = encoded(r#"{"alg":"RS256","kid":"k"}"#);
    let claims = encoded(CLAIMS);
    for form in [
        String::new(),
        ".".into(),
        "..".into(),
        header.clone(),
        format!("{header}.{claims}"),
        format!("{header}.{claims}."),
        format!(".{claims}.c2ln"),
        format!("{header}..c2ln"),
        format!("{header}.{claims}.c2ln.c2ln"),
        format!("{header}.{claims}.c2ln.c2ln.c2ln"),
        format!("{header}.{claims}.c2ln="),
        format!("{header}=.{claims}.c2ln"),
        format!("{header}==.{claims}.c2ln"),
        format!(" {header}.{claims}.c2ln"),
        format!("{header}.{claims}.c2ln\n"),
        format!("{header}.{claims}.c2l+"),
        format!("{header}.{claims}.c2l/"),
        // The last character has non-zero unused bits, so it is a second encoding of the same signature.
        format!("{header}.{claims}.c2k"),
        format!("{header}.{claims}.c2lnc"),
        format!("{{\"protected\":\"{header}\",\"payload\":\"{claims}\",\"signature\":\"c2ln\"}}"),
        format!("Bearer {header}.{claims}.c2ln"),
    ] {
        if form.ends_with(".c2k") {
            assert_eq!(refusal(&form), None, "{form} is canonical");
            assert_eq!(refusal(&form.replace(".c2k", ".c2l")), Some(InvalidToken::Malformed));
            continue;
        }
        assert_eq!(refusal(&form), Some(InvalidToken::Malformed), "{form}");
    }
    assert_eq!(refusal(&format!("{header}.{claims}.{}", "A".repeat(MAX_TOKEN_BYTES))), Some(InvalidToken::TooLong));
}

#[test]
fn refuses_json_that_two_parsers_may_read_differently() {
    let valid_header = r#"{"alg":"RS256","kid":"k"}"#;
    for header in [
        r#"{"alg":"RS256","alg":"none","kid":"k"}"#,
        r#"{"alg":"none","alg":"RS256","kid":"k"}"#,
        r#"{"alg":"RS256","\u0061lg":"none","kid":"k"}"#,
        r#"{"alg":"RS256","kid":"k","kid":"other"}"#,
        r#"{"alg":"RS256","kid":"k","x":{"a":1,"a":2}}"#,
        r#"{"alg":"RS256","kid":"k"} {}"#,
        r#"{"alg":"RS256","kid":"k",}"#,
        r#"{"alg":"RS256","kid":"k\u0000"}"#,
        "[]",
        r#""RS256""#,
        "null",
        "",
        "{",
    ] {
        assert_eq!(refusal(&token(header, CLAIMS)), Some(InvalidToken::Malformed), "{header}");
    }
    for claims in [
        r#"{"iss":"a","iss":"b"}"#,
        r#"{"exp":1,"\u0065xp":2}"#,
        r#"{"sub":"\ud800"}"#,
        r#"{"exp":1e999}"#,
        r#"{"exp":NaN}"#,
        r#"{"exp":100000000000000000000000}"#,
        "[]",
        "7",
        "",
        "\u{feff}{}",
    ] {
        assert_eq!(refusal(&token(valid_header, claims)), Some(InvalidToken::Malformed), "{claims}");
    }
    let invalid_utf8 = format!("{}.{}.c2ln", encoded(valid_header), URL_SAFE_NO_PAD.encode(b"{\"sub\":\"\xff\"}"));
    assert_eq!(refusal(&invalid_utf8), Some(InvalidToken::Malformed));
    let deep = format!(r#"{{"a":{}1{}}}"#, "[".repeat(70), "]".repeat(70));
    assert_eq!(refusal(&token(valid_header, &deep)), Some(InvalidToken::Malformed));
}

#[test]
fn debug_output_omits_every_value() {
    let text = token(r#"{"alg":"RS256","kid":"kid-canary"}"#, r#"{"iss":"iss-canary"}"#);
    assert!(!format!("{:?}", UnverifiedToken::parse_access_token(&text).unwrap()).contains("canary"));
}
