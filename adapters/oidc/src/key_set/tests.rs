use super::*;
use serde_json::json;

fn decoded(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).unwrap()
}

fn parse(keys: Value) -> Result<KeySet, KeySetError> {
    KeySet::parse(json!({ "keys": keys }).to_string().as_bytes())
}

fn rsa_key() -> Value {
    json!({"kty": "RSA", "kid": "rsa", "e": "AQAB", "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddx\
        HmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf\
        63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXF\
        vUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"})
}

fn ec_key() -> Value {
    json!({"kty": "EC", "crv": "P-256", "kid": "ec", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"})
}

fn ed_key() -> Value {
    json!({"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"})
}

/// Examples of RFC 7515, A.2 and A.3, and of RFC 8037, A.4.
#[test]
fn verifies_published_examples() {
    let payload = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    for (key, algorithm, message, signature) in [
        (
            rsa_key(),
            SignatureAlgorithm::Rs256,
            format!("eyJhbGciOiJSUzI1NiJ9.{payload}"),
            "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdb\
             F9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383\
             LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWy\
             wlVmtVrBp0igcN_IoypGlUPQGe77Rw",
        ),
        (
            ec_key(),
            SignatureAlgorithm::Es256,
            format!("eyJhbGciOiJFUzI1NiJ9.{payload}"),
            "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
        ),
        (
            ed_key(),
            SignatureAlgorithm::EdDsa,
            "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc".to_owned(),
            "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
        ),
    ] {
        let material = Material::parse(key.as_object().unwrap()).unwrap();
        let signature = decoded(signature);
        assert!(material.verifies(algorithm, message.as_bytes(), &signature), "{algorithm:?}");
        assert!(!material.verifies(algorithm, &message.as_bytes()[1..], &signature), "{algorithm:?}");
        for other in
            [SignatureAlgorithm::Rs256, SignatureAlgorithm::Ps256, SignatureAlgorithm::Es256, SignatureAlgorithm::EdDsa]
        {
            let verifies = material.verifies(other, message.as_bytes(), &signature);
            assert_eq!(verifies, other == algorithm, "{algorithm:?} as {other:?}");
        }
    }
}

#[test]
fn leaves_out_keys_that_cannot_verify_access_tokens() {
    let with = |mut key: Value, name: &str, value: Value| {
        key[name] = value;
        key
    };
    let mut without_kid = ec_key();
    without_kid.as_object_mut().unwrap().remove("kid");
    for unusable in [
        without_kid,
        with(ec_key(), "kid", json!("")),
        with(ec_key(), "kid", json!(7)),
        with(ec_key(), "kid", json!("k".repeat(256))),
        with(ec_key(), "use", json!("enc")),
        with(ec_key(), "use", json!(["sig"])),
        with(ec_key(), "key_ops", json!(["sign"])),
        with(ec_key(), "key_ops", json!("verify")),
        with(ec_key(), "alg", json!("ES384")),
        with(ec_key(), "alg", json!("RS256")),
        with(ec_key(), "alg", json!("none")),
        with(ec_key(), "alg", json!("HS256")),
        with(ec_key(), "alg", json!(null)),
        with(ec_key(), "d", json!("AQAB")),
        with(ec_key(), "crv", json!("P-384")),
        with(ec_key(), "crv", json!("secp256k1")),
        with(ec_key(), "crv", json!("P-256K")),
        with(ec_key(), "kty", json!("ec")),
        with(ec_key(), "x", json!("AQAB")),
        with(ec_key(), "x", json!("f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU=")),
        with(rsa_key(), "e", json!("AQ")),
        with(rsa_key(), "e", json!("Ag")),
        with(rsa_key(), "e", json!("")),
        with(rsa_key(), "e", json!("AQAAAAAAAAAB")),
        with(rsa_key(), "n", json!("A".repeat(100))),
        // 1024 bits: too short.
        with(rsa_key(), "n", json!("_".repeat(170))),
        // More than 8192 bits: too long.
        with(rsa_key(), "n", json!("_".repeat(1_368))),
        with(ed_key(), "crv", json!("X25519")),
        with(ed_key(), "crv", json!("Ed448")),
        with(ed_key(), "x", json!("AQAB")),
        json!({"kty": "oct", "kid": "oct", "k": "AQAB"}),
        json!({"kty": "AKP", "kid": "pq", "alg": "ML-DSA-44", "pub": "AQAB"}),
        json!("key"),
        json!(null),
    ] {
        assert_eq!(parse(json!([unusable])).err(), Some(KeySetError::Empty), "{unusable}");
        // An unusable key does not affect the other keys of the set.
        assert!(parse(json!([unusable, ed_key()])).unwrap().has_key("ed"), "{unusable}");
    }
    for usable in [
        with(ec_key(), "use", json!("sig")),
        with(ec_key(), "key_ops", json!(["verify"])),
        with(ec_key(), "alg", json!("ES256")),
        with(ec_key(), "x5c", json!(["AQAB"])),
    ] {
        assert!(parse(json!([usable])).unwrap().has_key("ec"), "{usable}");
    }
}

#[test]
fn refuses_malformed_empty_and_oversized_sets() {
    for malformed in
        ["", "[]", "null", "{}", r#"{"keys":{}}"#, r#"{"keys":null}"#, r#"{"keys":[],"keys":[]}"#, "<html>"]
    {
        assert_eq!(KeySet::parse(malformed.as_bytes()).err(), Some(KeySetError::Malformed), "{malformed}");
    }
    assert_eq!(parse(json!([])).err(), Some(KeySetError::Empty));
    assert!(parse(json!(vec![ed_key(); MAX_KEYS])).is_ok());
    assert_eq!(parse(json!(vec![ed_key(); MAX_KEYS + 1])).err(), Some(KeySetError::TooMany));
}
