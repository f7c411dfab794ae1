//! Forged tokens: the attacks of RFC 8725 and published attacks on JOSE libraries. Each token is refused without
//! fetching keys. Only an unknown key identifier may cause a fetch.

use crate::{
    issuer_server::{IssuerServer, START, Setup, config, key_set},
    signing::{Scheme, TestKey, hmac_token, signed_part, with_signature},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use fairway_domain::access::identity::InvalidToken;
use serde_json::{Value, json};

/// The order of the curve P-256, big-endian.
const P256_ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6, 0xfa,
    0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];

/// A forged token, with the expected reason of its refusal.
struct Forgery {
    name: String,
    token: String,
    reason: InvalidToken,
}

fn forgery(name: impl Into<String>, token: String, reason: InvalidToken) -> Forgery {
    Forgery { name: name.into(), token, reason }
}

/// Two issuers with their keys, and the keys of an attacker.
struct TestIssuers {
    setup: Setup,
    rsa: TestKey,
    rsa_only_rs256: TestKey,
    ec: TestKey,
    ed: TestKey,
    /// Keys of the second issuer. The key `shared` has the same identifier as a key of the first issuer.
    other: TestKey,
    shared: TestKey,
    attacker: TestKey,
}

impl TestIssuers {
    async fn new() -> Self {
        let (rsa, ec, ed) = (TestKey::rsa("rsa"), TestKey::ec("ec"), TestKey::ed("ed"));
        let (rsa_only_rs256, attacker) = (TestKey::rsa("rs256"), TestKey::rsa("rsa"));
        let (other, shared) = (TestKey::ec("other"), TestKey::ec("ec"));
        let server = IssuerServer::start().await;
        server.publish("a", &[&rsa, &ec, &ed]);
        server.publish("b", &[&other, &shared]);
        let mut rs256_jwk = rsa_only_rs256.jwk();
        rs256_jwk["alg"] = json!("RS256");
        let keys = json!({"keys": [rsa.jwk(), ec.jwk(), ed.jwk(), rs256_jwk, TestKey::p384("p384").jwk()]});
        server.set("/a/keys", crate::issuer_server::Reply::Json(keys.to_string()));
        server.set("/attacker", crate::issuer_server::Reply::Json(key_set(&[&attacker])));
        let issuers = vec![config(&server.issuer("a")), config(&server.issuer("b"))];
        let setup = Setup::new(server, issuers);
        Self { setup, rsa, rsa_only_rs256, ec, ed, other, shared, attacker }
    }

    /// The valid claims of issuer `a` with one claim changed, or removed if the value is `null`.
    fn claims_with(&self, name: &str, value: Value) -> Value {
        let mut claims = self.setup.claims();
        claims[name] = value;
        claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        claims
    }

    /// A token with one header member added or changed, signed with the genuine key.
    fn token_with_header(&self, name: &str, value: Value) -> String {
        let mut header = self.rsa.header();
        header[name] = value;
        self.rsa.token_with(&header, &self.setup.claims())
    }

    /// A token whose header and claims are these texts, signed with the genuine key.
    fn token_of_texts(&self, header: &str, claims: &str) -> String {
        self.rsa.token_of(Scheme::Own, header, claims)
    }
}

/// Verifies each forgery. The clock is advanced first, so that a fetch would be permitted. No forgery may cause one.
async fn refuse_all(issuers: &TestIssuers, forgeries: Vec<Forgery>) {
    let genuine = issuers.rsa.token(&issuers.setup.claims());
    assert_eq!(issuers.setup.refusal(&genuine).await, None, "the genuine token");
    let mut other_claims = issuers.setup.claims();
    other_claims["iss"] = json!(issuers.setup.server.issuer("b"));
    assert_eq!(issuers.setup.refusal(&issuers.other.token(&other_claims)).await, None, "the other issuer's token");
    issuers.setup.clock.advance(31);
    let requests = issuers.setup.server.total();
    for Forgery { name, token, reason } in forgeries {
        assert_eq!(issuers.setup.refusal(&token).await, Some(reason), "{name}");
        assert_eq!(issuers.setup.server.total(), requests, "{name} causes a fetch");
    }
    assert_eq!(issuers.setup.refusal(&genuine).await, None, "the genuine token afterwards");
}

#[tokio::test]
async fn refuses_other_algorithms_than_the_keys() {
    let issuers = TestIssuers::new().await;
    let claims = issuers.setup.claims();
    let mut forgeries = Vec::new();
    for name in ["none", "None", "NONE", "nOnE"] {
        let signed = signed_part(&json!({"alg": name, "kid": "rsa"}).to_string(), &claims.to_string());
        forgeries.push(forgery(format!("{name} without signature"), format!("{signed}."), InvalidToken::Algorithm));
        let signature = issuers.rsa.sign(Scheme::Own, signed.as_bytes());
        forgeries.push(forgery(
            format!("{name} with signature"),
            with_signature(&signed, &signature),
            InvalidToken::Algorithm,
        ));
    }
    for key in [&issuers.rsa, &issuers.ec, &issuers.ed] {
        for (encoding, secret) in key.public_encodings() {
            for algorithm in ["HS256", "HS384", "HS512"] {
                let token = hmac_token(algorithm, key.id, &secret, &claims);
                forgeries.push(forgery(format!("{algorithm} with {encoding}"), token, InvalidToken::Algorithm));
            }
        }
    }
    forgeries.push(forgery("HS256 with no key", hmac_token("HS256", "rsa", b"", &claims), InvalidToken::Algorithm));
    for name in ["RS384", "RS512", "PS512", "ES384", "ES256K", "rs256", "RS256 ", "", "dir", "RSA-OAEP", "Ed25519"] {
        forgeries.push(forgery(
            format!("alg `{name}`"),
            issuers.token_with_header("alg", json!(name)),
            InvalidToken::Algorithm,
        ));
    }
    for value in [json!(null), json!(7), json!(["RS256"]), json!({"RS256": true})] {
        forgeries.push(forgery(
            format!("alg {value}"),
            issuers.token_with_header("alg", value),
            InvalidToken::Algorithm,
        ));
    }
    forgeries.push(forgery(
        "no alg",
        issuers.token_of_texts(r#"{"kid":"rsa"}"#, &claims.to_string()),
        InvalidToken::Algorithm,
    ));
    // The header names an algorithm for a different type of key.
    for (name, id) in [("EdDSA", "rsa"), ("ES256", "rsa"), ("RS256", "ec"), ("PS256", "ed"), ("EdDSA", "ec")] {
        let header = json!({"alg": name, "kid": id}).to_string();
        forgeries.push(forgery(
            format!("{name} with {id}"),
            issuers.token_of_texts(&header, &claims.to_string()),
            InvalidToken::KeyAlgorithm,
        ));
    }
    refuse_all(&issuers, forgeries).await;
}

#[tokio::test]
async fn refuses_keys_that_the_sender_chooses() {
    let issuers = TestIssuers::new().await;
    let claims = issuers.setup.claims();
    let attacker = |name: &str, value: Value| {
        let mut header = issuers.attacker.header();
        header[name] = value;
        issuers.attacker.token_with(&header, &claims)
    };
    let address = format!("http://{}/attacker", issuers.setup.server.address);
    let certificate = json!(["MIIB"]);
    let mut forgeries = Vec::new();
    for (name, value) in [
        ("jwk", issuers.attacker.jwk()),
        ("jwk", issuers.rsa.jwk()),
        ("jwk", json!(null)),
        ("jku", json!(address)),
        ("jku", json!(format!("{}/keys", issuers.setup.server.issuer("a")))),
        ("jku", json!(format!("{}@{address}", issuers.setup.server.issuer("a")))),
        ("x5u", json!(address)),
        ("x5c", certificate),
        ("crit", json!(["exp"])),
        ("crit", json!([])),
        ("b64", json!(false)),
        ("enc", json!("A128GCM")),
        ("zip", json!("DEF")),
        ("epk", issuers.ec.jwk()),
        ("p2c", json!(2_147_483_647)),
    ] {
        let title = format!("{name} {value}");
        forgeries.push(forgery(title.clone(), attacker(name, value.clone()), InvalidToken::ForbiddenHeader));
        forgeries.push(forgery(
            format!("{title}, genuine"),
            issuers.token_with_header(name, value),
            InvalidToken::ForbiddenHeader,
        ));
    }
    forgeries.push(forgery("attacker's key", issuers.attacker.token(&claims), InvalidToken::Signature));
    forgeries.push(forgery("x5t ignored", attacker("x5t", json!("AQAB")), InvalidToken::Signature));
    for value in [json!(null), json!(""), json!(7), json!(["rsa"]), json!({"id": "rsa"}), json!("k".repeat(256))] {
        forgeries.push(forgery(format!("kid {value}"), issuers.token_with_header("kid", value), InvalidToken::KeyId));
    }
    let without_key_id = issuers.token_of_texts(r#"{"alg":"RS256"}"#, &claims.to_string());
    forgeries.push(forgery("no kid", without_key_id, InvalidToken::KeyId));
    let with_nul = issuers.token_of_texts(r#"{"alg":"RS256","kid":"rsa\u0000"}"#, &claims.to_string());
    forgeries.push(forgery("kid with NUL", with_nul, InvalidToken::Malformed));
    let requests = issuers.setup.server.count("/attacker");
    refuse_all(&issuers, forgeries).await;
    assert_eq!(issuers.setup.server.count("/attacker"), requests, "the sender's address is never contacted");
}

#[tokio::test]
async fn unknown_key_identifiers_share_one_fetch() {
    let issuers = TestIssuers::new().await;
    assert_eq!(issuers.setup.refusal(&issuers.rsa.token(&issuers.setup.claims())).await, None);
    issuers.setup.clock.advance(31);
    let fetches = issuers.setup.fetches();
    for kid in [
        "../../../../../../dev/null",
        "/dev/null",
        "/proc/sys/kernel/randomize_va_space",
        "' OR '1'='1",
        "x' UNION SELECT 'secret' -- ",
        "rsa; sleep 10",
        "|cat /etc/passwd",
        "http://127.0.0.1/attacker",
        "RSA",
        "rsa ",
        " rsa",
        "rsa\n",
        "rs",
        "rsa%00",
        "*",
        "%",
        "p384",
        "other",
    ] {
        assert_eq!(
            issuers.setup.refusal(&issuers.token_with_header("kid", json!(kid))).await,
            Some(InvalidToken::UnknownKey),
            "{kid}"
        );
    }
    assert_eq!(issuers.setup.fetches(), fetches + 1);
    assert_eq!(issuers.setup.server.count("/attacker"), 0);
}

#[tokio::test]
async fn refuses_other_serializations_and_ambiguous_json() {
    let issuers = TestIssuers::new().await;
    let claims = issuers.setup.claims();
    let genuine_token = issuers.rsa.token(&claims);
    let [header, payload, signature] = genuine_token.split('.').collect::<Vec<_>>()[..] else { panic!("three parts") };
    let genuine_claims = claims.to_string();
    let members = genuine_claims.trim_start_matches('{');
    let mut forgeries = Vec::new();
    for (name, token) in [
        ("empty", String::new()),
        ("no signature part", format!("{header}.{payload}")),
        ("empty signature", format!("{header}.{payload}.")),
        ("no payload", format!("{header}..{signature}")),
        ("no header", format!(".{payload}.{signature}")),
        ("four parts", format!("{genuine_token}.{signature}")),
        ("five parts", format!("{genuine_token}.{signature}.{signature}")),
        ("detached payload and two tokens", format!("{genuine_token}{genuine_token}")),
        ("padded signature", format!("{genuine_token}==")),
        ("padded header", format!("{header}=.{payload}.{signature}")),
        ("leading space", format!(" {genuine_token}")),
        ("trailing line end", format!("{genuine_token}\n")),
        ("inner line end", format!("{header}.\n{payload}.{signature}")),
        ("scheme", format!("Bearer {genuine_token}")),
        ("standard alphabet", format!("{header}.{payload}.{}+/", &signature[2..])),
        ("JSON serialization", json!({"protected": header, "payload": payload, "signature": signature}).to_string()),
    ] {
        forgeries.push(forgery(name, token, InvalidToken::Malformed));
    }
    let encrypted = URL_SAFE_NO_PAD.encode(r#"{"alg":"RSA-OAEP","enc":"A128GCM","kid":"rsa"}"#);
    forgeries.push(forgery("JWE", format!("{encrypted}.a2V5.aXY.dGV4dA.dGFn"), InvalidToken::ForbiddenHeader));
    forgeries.push(forgery(
        "too long",
        issuers.rsa.token(&issuers.claims_with("pad", json!("x".repeat(8_192)))),
        InvalidToken::TooLong,
    ));
    for header in [
        r#"{"alg":"none","alg":"RS256","kid":"rsa"}"#,
        r#"{"alg":"RS256","alg":"none","kid":"rsa"}"#,
        r#"{"alg":"RS256","\u0061lg":"HS256","kid":"rsa"}"#,
        r#"{"alg":"RS256","kid":"rsa","kid":"ec"}"#,
        r#"{"alg":"RS256","kid":"rsa","typ":"at+jwt","typ":"JWT"}"#,
        r#"{"alg":"RS256","kid":"rsa"}{}"#,
        r#"["RS256"]"#,
    ] {
        forgeries.push(forgery(header, issuers.token_of_texts(header, &genuine_claims), InvalidToken::Malformed));
    }
    let header = r#"{"alg":"RS256","kid":"rsa"}"#;
    for duplicate in ["\"exp\":9999999999,", "\"iss\":\"x\",", "\"\\u0061ud\":\"x\",", "\"sub\":\"admin\","] {
        let token = issuers.token_of_texts(header, &format!("{{{duplicate}{members}"));
        forgeries.push(forgery(format!("duplicate {duplicate}"), token, InvalidToken::Malformed));
    }
    for text in ["", "null", "[]", "\"text\"", "{", "\u{feff}{}"] {
        forgeries.push(forgery(
            format!("claims {text}"),
            issuers.token_of_texts(header, text),
            InvalidToken::Malformed,
        ));
    }
    refuse_all(&issuers, forgeries).await;
}

#[tokio::test]
async fn refuses_wrong_signatures() {
    let issuers = TestIssuers::new().await;
    let claims = issuers.setup.claims();
    let text = claims.to_string();
    let rsa_with = |algorithm: &str, scheme| {
        issuers.rsa.token_of(scheme, &json!({"alg": algorithm, "kid": "rsa"}).to_string(), &text)
    };
    let signed = signed_part(&issuers.ec.header().to_string(), &text);
    let ec_with = |signature: &[u8]| with_signature(&signed, signature);
    let genuine_signature = issuers.ec.sign(Scheme::Own, signed.as_bytes());
    let (r, s) = genuine_signature.split_at(32);
    let zero = [0_u8; 32];
    let mut forgeries = vec![
        forgery("PKCS1 as PS256", rsa_with("PS256", Scheme::Pkcs1), InvalidToken::Signature),
        forgery("PSS as RS256", rsa_with("RS256", Scheme::Pss), InvalidToken::Signature),
        forgery("SHA-512 as RS256", rsa_with("RS256", Scheme::Pkcs1Sha512), InvalidToken::Signature),
    ];
    let token = issuers.rsa_only_rs256.token_of(Scheme::Pss, r#"{"alg":"PS256","kid":"rs256"}"#, &text);
    forgeries.push(forgery("PS256 with a key for RS256", token, InvalidToken::KeyAlgorithm));
    let mut bad_signatures: Vec<(&str, Vec<u8>)> = vec![
        ("r = s = 0", [zero, zero].concat()),
        ("r = 0", [&zero, s].concat()),
        ("s = 0", [r, &zero].concat()),
        ("r = s = n", [P256_ORDER, P256_ORDER].concat()),
        ("r = n", [&P256_ORDER, s].concat()),
        ("s = n", [r, &P256_ORDER].concat()),
        ("r and s swapped", [s, r].concat()),
        ("64 bytes ff", vec![0xff; 64]),
        ("one byte short", genuine_signature[..63].to_vec()),
        ("one byte long", [&genuine_signature[..], &[0]].concat()),
        ("leading zero", [&[0], &genuine_signature[..]].concat()),
        ("r alone", r.to_vec()),
        ("one zero byte", vec![0]),
    ];
    bad_signatures.push(("DER", TestKey::ec_der("ec").sign(Scheme::Own, signed.as_bytes())));
    bad_signatures.push(("P-384", TestKey::p384("ec").sign(Scheme::Own, signed.as_bytes())));
    bad_signatures.push(("another key", TestKey::ec("ec").sign(Scheme::Own, signed.as_bytes())));
    forgeries.extend(
        bad_signatures
            .into_iter()
            .map(|(name, bytes)| forgery(format!("ES256: {name}"), ec_with(&bytes), InvalidToken::Signature)),
    );
    for (name, length, fill) in [("zeros", 256, 0), ("ff", 256, 0xff), ("short", 255, 1), ("long", 257, 1)] {
        let token = with_signature(&signed_part(&issuers.rsa.header().to_string(), &text), &vec![fill; length]);
        forgeries.push(forgery(format!("RSA: {name}"), token, InvalidToken::Signature));
    }
    for length in [1, 63, 64, 65] {
        let token = with_signature(&signed_part(&issuers.ed.header().to_string(), &text), &vec![0; length]);
        forgeries.push(forgery(format!("EdDSA: {length} zeros"), token, InvalidToken::Signature));
    }
    // The signature is genuine, but the signed bytes are changed.
    for key in [&issuers.rsa, &issuers.ec, &issuers.ed] {
        let token = key.token(&claims);
        let signature = token.rsplit_once('.').unwrap().1;
        for (name, header, claims) in [
            ("subject", key.header(), issuers.claims_with("sub", json!("admin"))),
            ("header", json!({"alg": key.algorithm(), "kid": key.id}), claims.clone()),
        ] {
            let token = format!("{}.{signature}", signed_part(&header.to_string(), &claims.to_string()));
            forgeries.push(forgery(format!("changed {name} of {}", key.id), token, InvalidToken::Signature));
        }
    }
    refuse_all(&issuers, forgeries).await;
}

#[tokio::test]
async fn refuses_wrong_types_audiences_and_issuers() {
    let issuers = TestIssuers::new().await;
    let issuer = issuers.setup.server.issuer("a");
    let mut forgeries = Vec::new();
    for typ in ["logout+jwt", "dpop+jwt", "secevent+jwt", "oauth-authz-req+jwt", "id_token", "JOSE", ""] {
        forgeries.push(forgery(
            format!("typ `{typ}`"),
            issuers.token_with_header("typ", json!(typ)),
            InvalidToken::Type,
        ));
    }
    for value in [json!(null), json!(7), json!(["at+jwt"])] {
        forgeries.push(forgery(format!("typ {value}"), issuers.token_with_header("typ", value), InvalidToken::Type));
    }
    let mut claim = |name: &str, value: Value, reason: InvalidToken| {
        let token = issuers.rsa.token(&issuers.claims_with(name, value.clone()));
        forgeries.push(forgery(format!("{name} {value}"), token, reason));
    };
    for name in ["nonce", "at_hash", "c_hash"] {
        claim(name, json!("AQAB"), InvalidToken::OtherPurpose);
    }
    let logout = json!({"http://schemas.openid.net/event/backchannel-logout": {}});
    claim("events", logout, InvalidToken::OtherPurpose);
    for audience in [
        json!("https://fairway.example/"),
        json!("https://fairway.example.attacker.example"),
        json!("https://fairway"),
        json!("fairway.example"),
        json!("HTTPS://FAIRWAY.EXAMPLE"),
        json!("https://fairway.example other"),
        json!(["https://fairway.example/"]),
        json!([]),
        json!(null),
    ] {
        claim("aud", audience, InvalidToken::Audience);
    }
    for audience in [json!([["https://fairway.example"]]), json!(["https://fairway.example", 7]), json!({}), json!(7)] {
        claim("aud", audience, InvalidToken::ClaimType);
    }
    claim("aud", json!("portal"), InvalidToken::PortalOnly);
    claim("aud", json!(["portal"]), InvalidToken::PortalOnly);
    for other_issuer in [
        json!(format!("{issuer}/")),
        json!(issuer.replace("http:", "https:")),
        json!(issuer.to_uppercase()),
        json!(format!("{issuer}?x")),
        json!(format!("{issuer}/../a")),
        json!(issuer.replace("127.0.0.1", "127.1")),
        json!(format!("{issuer}{issuer}")),
        json!("https://attacker.example"),
        json!(""),
        json!(null),
        json!([issuer]),
        json!(7),
    ] {
        claim("iss", other_issuer, InvalidToken::Issuer);
    }
    refuse_all(&issuers, forgeries).await;
}

#[tokio::test]
async fn refuses_wrong_times_and_subjects() {
    let issuers = TestIssuers::new().await;
    let mut forgeries = Vec::new();
    let mut claim = |name: &str, value: Value, reason: InvalidToken| {
        let token = issuers.rsa.token(&issuers.claims_with(name, value.clone()));
        forgeries.push(forgery(format!("{name} {value}"), token, reason));
    };
    claim("exp", json!(null), InvalidToken::Time);
    for name in ["exp", "nbf", "iat"] {
        for value in [
            json!(format!("{}", START + 3_600)),
            json!("2099-01-01T00:00:00Z"),
            json!(-1),
            json!(-1.5),
            json!(1e300),
            json!(u64::MAX),
            json!(253_402_300_800_u64),
            json!(true),
            json!([START + 3_600]),
        ] {
            claim(name, value, InvalidToken::Time);
        }
    }
    // `refuse_all` advances the clock by 31 seconds before it verifies these tokens.
    claim("exp", json!(START + 31 - 60), InvalidToken::Expired { seconds_ago: 60 });
    claim("exp", json!(0), InvalidToken::Expired { seconds_ago: u64::try_from(START + 31).unwrap() });
    claim("nbf", json!(START + 31 + 61), InvalidToken::NotYetValid { seconds_ahead: 61 });
    let last_second = 253_402_300_799_u64;
    claim(
        "nbf",
        json!(last_second),
        InvalidToken::NotYetValid { seconds_ahead: last_second - u64::try_from(START + 31).unwrap() },
    );
    claim("sub", json!(null), InvalidToken::Subject);
    claim("sub", json!(""), InvalidToken::Subject);
    claim("sub", json!("s".repeat(256)), InvalidToken::Subject);
    claim("sub", json!("ad\nmin"), InvalidToken::Subject);
    claim("sub", json!(248), InvalidToken::ClaimType);
    claim("sub", json!(["248"]), InvalidToken::ClaimType);
    claim("groups", json!({"admin": true}), InvalidToken::ClaimType);
    claim("preferred_username", json!(["admin"]), InvalidToken::ClaimType);
    for (name, number) in [("infinite", "1e400"), ("not a number", "NaN"), ("too wide", "99999999999999999999999")] {
        let claims = issuers
            .setup
            .claims()
            .to_string()
            .replace(&format!("\"exp\":{}", START + 3_600), &format!("\"exp\":{number}"));
        let token = issuers.token_of_texts(r#"{"alg":"RS256","kid":"rsa"}"#, &claims);
        forgeries.push(forgery(format!("exp {name}"), token, InvalidToken::Malformed));
    }
    refuse_all(&issuers, forgeries).await;
}

/// The claims are checked before the key is looked up, so only a token with valid claims can cause a fetch.
#[tokio::test]
async fn implausible_tokens_with_unknown_keys_cause_no_fetch() {
    let issuers = TestIssuers::new().await;
    let unknown_key = TestKey::ec("unknown");
    let forgeries = [
        ("expired", "exp", json!(START - 60), InvalidToken::Expired { seconds_ago: 91 }),
        ("foreign audience", "aud", json!("other"), InvalidToken::Audience),
        ("foreign issuer", "iss", json!("https://attacker.example"), InvalidToken::Issuer),
        ("ID token", "nonce", json!("AQAB"), InvalidToken::OtherPurpose),
        ("no subject", "sub", json!(null), InvalidToken::Subject),
    ];
    let forgeries = forgeries.map(|(name, claim, value, reason)| {
        forgery(name, unknown_key.token(&issuers.claims_with(claim, value)), reason)
    });
    refuse_all(&issuers, forgeries.into()).await;
}

/// Issuer mix-up: the keys of one issuer never verify a token of another issuer.
#[tokio::test]
async fn keys_belong_to_their_issuer() {
    let issuers = TestIssuers::new().await;
    let mut claims_of_b = issuers.setup.claims();
    claims_of_b["iss"] = json!(issuers.setup.server.issuer("b"));
    let forgeries = vec![
        // Both issuers have a key with the identifier `ec`.
        forgery("a's key for b", issuers.ec.token(&claims_of_b), InvalidToken::Signature),
        forgery("b's key for a", issuers.shared.token(&issuers.setup.claims()), InvalidToken::Signature),
    ];
    refuse_all(&issuers, forgeries).await;
    assert_eq!(issuers.setup.refusal(&issuers.shared.token(&claims_of_b)).await, None);
    for (name, token) in
        [("a's", issuers.rsa.token(&claims_of_b)), ("b's", issuers.other.token(&issuers.setup.claims()))]
    {
        assert_eq!(issuers.setup.refusal(&token).await, Some(InvalidToken::UnknownKey), "{name} key identifier");
    }
}
