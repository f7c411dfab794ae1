use super::*;
use crate::http::load_shedding::ClientKey;
use actix_web::{
    ResponseError as _,
    http::{StatusCode, header::CONTENT_TYPE},
    test::TestRequest,
    web::Bytes,
};
use fairway_domain::{access::ActorRef, client_address::ClientAddress};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;

#[derive(Deserialize, Validate, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
struct Thing {
    name: String,
    #[serde(default)]
    count: Option<u32>,
    #[serde(default)]
    parts: Vec<Part>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    kind: Option<Kind>,
}

#[derive(Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
struct Part {
    #[serde(rename = "type")]
    kind: Kind,
}

#[derive(Deserialize, PartialEq, Debug)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Plain,
    Sized { width: u8 },
}

#[derive(Deserialize, Validate, Debug)]
#[serde(deny_unknown_fields)]
struct Optional {
    note: Option<String>,
}

/// Wrapper of a type without validation rules.
#[derive(Deserialize, Debug)]
#[serde(transparent)]
struct Unruled<T>(T);

impl<T> Validate for Unruled<T> {
    fn validate(&self) -> Result<(), validator::ValidationErrors> {
        Ok(())
    }
}

fn with_base(request: TestRequest) -> TestRequest {
    request.app_data(web::Data::new(crate::http::test_support::http_state()))
}

async fn read<T: DeserializeOwned + Validate>(request: TestRequest) -> Result<Body<T, 512>, ApiError> {
    let (request, mut payload) = with_base(request).to_http_parts();
    Body::<T, 512>::from_request(&request, &mut payload).await
}

fn json_request(text: &'static str) -> TestRequest {
    TestRequest::post().insert_header((CONTENT_TYPE, "application/json")).set_payload(text)
}

#[actix_web::test]
async fn deserializes_a_body() {
    let body = read::<Thing>(json_request(
        r#"{"name": "a", "count": 3, "parts": [{"type": "plain"}, {"type": {"sized": {"width": 2}}}], "labels": {"x": "y"}}"#,
    ))
    .await
    .unwrap();
    assert_eq!(body.name, "a");
    assert_eq!(body.document().pointer("/count"), Some(&json!(3)));
    assert_eq!(body.into_inner().parts, [Part { kind: Kind::Plain }, Part { kind: Kind::Sized { width: 2 } }]);
}

#[actix_web::test]
async fn treats_absent_body_as_empty_object() {
    assert_eq!(read::<Optional>(TestRequest::post()).await.unwrap().into_inner().note, None);
    let refusal = read::<Thing>(TestRequest::post()).await.unwrap_err();
    assert_eq!(fields(&refusal), json!([{"path": "name", "code": "missing", "message": "this field is required"}]));
}

fn fields(refusal: &ApiError) -> Value {
    assert_eq!(refusal.status_code(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(refusal.code(), "validation_error");
    let body = refusal.error_response().into_body();
    let bytes = actix_web::body::MessageBody::try_into_bytes(body).unwrap();
    serde_json::from_slice::<Value>(&bytes).unwrap().pointer("/detail/fields").unwrap().clone()
}

#[actix_web::test]
async fn reports_path_of_invalid_values() {
    for (text, path, code) in [
        ("{}", "name", "missing"),
        (r#"{"name": "a", "parts": [{}]}"#, "parts[0].type", "missing"),
        (r#"{"name": "a", "extra": 1}"#, "extra", "unknown_field"),
        (
            r#"{"name": "a", "parts": [{"type": "plain"}, {"type": "plain", "tpye": 1}]}"#,
            "parts[1].tpye",
            "unknown_field",
        ),
        (r#"{"name": "a", "parts": [{"type": "secret-value"}]}"#, "parts[0].type", "invalid"),
        (r#"{"name": 1}"#, "name", "invalid"),
        (r#"{"name": null}"#, "name", "invalid"),
        (r#"{"name": "a", "count": -1}"#, "count", "invalid"),
        (r#"{"name": "a", "count": 4294967296}"#, "count", "invalid"),
        (r#"{"name": "a", "count": 1.5}"#, "count", "invalid"),
        (r#"{"name": "a", "labels": {"x": 1}}"#, "labels.x", "invalid"),
        (r#"{"name": "a", "parts": [["plain"]]}"#, "parts[0]", "invalid"),
        (r#"{"name": "a", "kind": {"sized": {"width": 256}}}"#, "kind.sized.width", "invalid"),
        (r#"{"name": "a", "kind": {"plain": null, "sized": null}}"#, "kind", "invalid"),
        (r#"["a"]"#, "", "invalid"),
        ("null", "", "invalid"),
        ("7", "", "invalid"),
    ] {
        let problems = fields(&read::<Thing>(json_request(text)).await.unwrap_err());
        assert_eq!(problems.pointer("/0/path"), Some(&json!(path)), "{text}: {problems}");
        assert_eq!(problems.pointer("/0/code"), Some(&json!(code)), "{text}: {problems}");
        assert!(!problems.to_string().contains("secret-value"));
    }
}

#[derive(Deserialize, Validate, Debug)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its shape is read")]
struct Order {
    id: uuid::Uuid,
    name: String,
    items: Vec<Item>,
    #[serde(default, deserialize_with = "deserialize_present")]
    note: Option<Option<String>>,
    later: DeferredMember,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its shape is read")]
struct Item {
    kind: Kind,
    count: u8,
    odd: OddNumber,
}

/// A type that refuses even numbers by its own rule.
#[derive(Deserialize, Debug)]
#[serde(try_from = "u32")]
struct OddNumber;

impl TryFrom<u32> for OddNumber {
    type Error = &'static str;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        (number % 2 == 1).then_some(Self).ok_or("the number is even")
    }
}

fn problems_of(value: &Value) -> Vec<(String, &'static str)> {
    let problems = deserialize_strict::<Order>(value).unwrap_err();
    problems.into_iter().map(|problem| (problem.path, problem.code)).collect()
}

fn expected_problems(problems: &[(&str, &'static str)]) -> Vec<(String, &'static str)> {
    problems.iter().map(|(path, code)| ((*path).to_owned(), *code)).collect()
}

#[test]
fn reports_all_problems_at_once() {
    let valid = json!({
        "id": "0190f000-0000-7000-8000-000000000001", "name": "a", "later": 1,
        "items": [{ "kind": "plain", "count": 1, "odd": 3 }],
    });
    assert!(deserialize_strict::<Order>(&valid).is_ok());
    let missing = [("id", "missing"), ("name", "missing"), ("items", "missing"), ("later", "missing")];
    assert_eq!(problems_of(&json!({})), expected_problems(&missing));
    let mut invalid_body = valid.clone();
    invalid_body["id"] = json!("0190f000");
    invalid_body["name"] = json!(7);
    invalid_body["note"] = json!(false);
    invalid_body["extra"] = json!({});
    invalid_body["other"] = json!([]);
    invalid_body["items"] = json!([
        { "kind": "round", "count": 300 },
        { "kind": { "sized": { "width": "wide" } }, "count": 1, "odd": 4 },
        { "kind": "plain", "count": 1.5, "odd": 3, "more": 1 },
        ["plain", 1],
        { "kind": "plain", "count": 2, "odd": 6 },
    ]);
    invalid_body.as_object_mut().unwrap().remove("later");
    let expected = [
        ("extra", "unknown_field"),
        ("id", "invalid"),
        ("items[0].count", "invalid"),
        ("items[0].kind", "invalid"),
        ("items[0].odd", "missing"),
        ("items[1].kind.sized.width", "invalid"),
        ("items[1].odd", "invalid"),
        ("items[2].count", "invalid"),
        ("items[2].more", "unknown_field"),
        ("items[3]", "invalid"),
        ("items[4].odd", "invalid"),
        ("later", "missing"),
        ("name", "invalid"),
        ("note", "invalid"),
        ("other", "unknown_field"),
    ];
    let mut problems = problems_of(&invalid_body);
    problems.sort();
    assert_eq!(problems, expected_problems(&expected));
    // A value of another type has no fields.
    for value in [json!(null), json!([1, 2]), json!("x"), json!(1)] {
        assert_eq!(problems_of(&value), expected_problems(&[("", "invalid")]), "{value}");
    }
}

#[test]
fn bounds_problems_of_a_large_body() {
    let items: Vec<Value> = (0..20_000).map(|count| json!({ "kind": count, "odd": 3, "surplus": count })).collect();
    let problems = deserialize_strict::<Order>(&json!({ "items": items })).unwrap_err();
    assert_eq!(problems.len(), 200);
}

#[actix_web::test]
async fn accepts_only_unencoded_json() {
    let request =
        |kind: &'static str| TestRequest::post().insert_header((CONTENT_TYPE, kind)).set_payload(r#"{"name":"a"}"#);
    for accepted_type in [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=\"UTF-8\"",
        "application/json; profile=x",
    ] {
        assert!(read::<Thing>(request(accepted_type)).await.is_ok(), "{accepted_type}");
    }
    for refused_type in [
        "text/plain",
        "application/json; charset=latin1",
        "application/jsonx",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json, text/plain",
        "",
    ] {
        let refusal = read::<Thing>(request(refused_type)).await.unwrap_err();
        assert_eq!(refusal.code(), "unsupported_media_type", "{refused_type}");
    }
    let untyped = TestRequest::post().insert_header(("content-length", "12")).set_payload(r#"{"name":"a"}"#);
    assert_eq!(read::<Thing>(untyped).await.unwrap_err().code(), "unsupported_media_type");
    let chunked = TestRequest::post().insert_header(("transfer-encoding", "chunked")).set_payload("{}");
    assert_eq!(read::<Thing>(chunked).await.unwrap_err().code(), "unsupported_media_type");
    for encoding in ["gzip", "br", "identity", "Identity", "identity, gzip", ""] {
        let encoded = request("application/json").insert_header(("content-encoding", encoding));
        assert_eq!(read::<Thing>(encoded).await.unwrap_err().code(), "unsupported_media_type", "{encoding}");
    }
}

#[actix_web::test]
async fn refuses_bodies_beyond_the_limit() {
    let announced = json_request("{}").insert_header(("content-length", "513"));
    assert_eq!(read::<Optional>(announced).await.unwrap_err().code(), "payload_too_large");
    let huge = json_request("{}").insert_header(("content-length", "99999999999999999999999"));
    assert_eq!(read::<Optional>(huge).await.unwrap_err().code(), "payload_too_large");
    // Without `Content-Length`, the received length counts.
    let text = |length: usize| format!("{:length$}", "{}");
    for (length, accepted) in [(512, true), (513, false)] {
        let request = TestRequest::post().insert_header((CONTENT_TYPE, "application/json"));
        let (request, _) = with_base(request).to_http_parts();
        let (mut sender, payload) = actix_http::h1::Payload::create(true);
        sender.feed_data(Bytes::from(text(length)));
        sender.feed_eof();
        let mut payload = Payload::from(payload);
        let read = Body::<Optional, 512>::from_request(&request, &mut payload).await;
        assert_eq!(read.is_ok(), accepted, "{length}");
    }
}

#[actix_web::test]
async fn refuses_truncated_body_as_malformed() {
    let (request, _) = with_base(json_request("")).to_http_parts();
    let (mut sender, payload) = actix_http::h1::Payload::create(false);
    sender.feed_data(Bytes::from_static(b"{\"note\":"));
    sender.set_error(actix_http::error::PayloadError::Incomplete(None));
    let mut payload = Payload::from(payload);
    let refusal = Body::<Optional>::from_request(&request, &mut payload).await.unwrap_err();
    assert_eq!(refusal.code(), "malformed_json");
}

#[actix_web::test]
async fn digest_depends_only_on_canonical_content() {
    let first = read::<Unruled<Value>>(json_request(r#"{"a": 1.0, "b": "é"}"#)).await.unwrap().digest();
    let reordered = read::<Unruled<Value>>(json_request(r#"{ "b":"\u00e9","a":1 }"#)).await.unwrap().digest();
    let changed = read::<Unruled<Value>>(json_request(r#"{"a": 2, "b": "é"}"#)).await.unwrap().digest();
    assert_eq!(first, reordered);
    assert_ne!(first, changed);
    let large = |number: &str| digest(&serde_json::from_str(&format!("{{\"a\": {number}}}")).unwrap());
    assert_eq!(large("9007199254740993"), large("9007199254740993"));
    assert_ne!(large("9007199254740993"), large("9007199254740992"));
}

#[test]
fn accepts_integers_with_zero_fraction() {
    let count = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap();
        u32::deserialize(no_array_as_struct::StrictValue(&value)).ok()
    };
    assert_eq!([count("22"), count("22.0"), count("2.2e1")], [Some(22); 3]);
    assert_eq!([count("22.5"), count("-1.0"), count("1e300"), count("4294967296.0")], [None; 4]);
}

/// A sender with an identity. Test requests have no identity, so they belong to another sender.
fn other_sender() -> BodySender {
    BodySender::of_client(&ClientKey::Caller(ActorRef::parse("user:other").unwrap()))
}

/// Reads a body of any shape, for a route with a limit of 1 MiB.
async fn read_any(base: &web::Data<crate::http::HttpState>, text: &str) -> Result<(Value, usize), ApiError> {
    let request = TestRequest::post().insert_header((CONTENT_TYPE, "application/json")).app_data(base.clone());
    let (request, mut payload) = request.set_payload(text.to_owned()).to_http_parts();
    let Unruled(value) = Body::<Unruled<Value>>::from_request(&request, &mut payload).await?.into_inner();
    let reserved = request.extensions().get::<RequestMemory>().unwrap().bytes();
    Ok((value, reserved))
}

/// 64 KiB of small objects become 6 MiB of values, so the server reserves memory before it parses a body.
#[actix_web::test]
async fn reserves_memory_before_parsing() {
    tokio::time::pause();
    let base = web::Data::new(crate::http::test_support::http_state());
    let mut other_memory = Vec::new();
    for address in ["192.0.2.1", "192.0.2.2"] {
        for sender in [BodySender::default(), other_sender()] {
            let address = ClientAddress::from_ip_truncating_v6(address.parse().unwrap());
            let mut memory = base.memory_budgets.empty_request_reservation(address, sender);
            memory.resize_for_values(16 << 20).await.unwrap();
            other_memory.push(memory);
        }
    }
    let dense = format!("[{}]", vec!["{\"a\":1}"; 8_000].join(","));
    // Without the reservation, the parser would find the missing bracket first.
    let unclosed = dense.trim_end_matches(']');
    assert_eq!(read_any(&base, unclosed).await.unwrap_err().code(), "unavailable");
    assert_eq!(read_any(&base, &dense).await.unwrap_err().code(), "unavailable");
    drop(other_memory);
    assert_eq!(read_any(&base, unclosed).await.unwrap_err().code(), "malformed_json");
    // After the parse, the request has reserved the measured size of its values, not the estimate.
    let (_, measured) = json::read_measured(dense.as_bytes()).unwrap();
    assert_eq!(read_any(&base, &dense).await.unwrap().1, measured * DOCUMENT_COPIES);
}

/// Two half-received bodies that together reserve the whole budget would deadlock.
#[actix_web::test]
async fn reads_two_concurrent_large_bodies() {
    const LIMIT: usize = 4 << 20;
    tokio::time::pause();
    let base = web::Data::new(crate::http::test_support::http_state());
    let client = ClientAddress::from_ip_truncating_v6([0, 0, 0, 0].into());
    // The rest of the client's budget is enough for one of the two bodies.
    let mut other_memory = base.memory_budgets.empty_request_reservation(client, other_sender());
    other_memory.reserve_arriving(11 << 20).await.unwrap();
    let text = format!("\"{}\"", "x".repeat(LIMIT - 2));
    let (first, second) = text.split_at(LIMIT / 2);
    let mut tasks = Vec::new();
    let mut senders = Vec::new();
    for _ in 0..2 {
        let request = TestRequest::post().insert_header((CONTENT_TYPE, "application/json"));
        let request = request.insert_header(("content-length", LIMIT.to_string())).app_data(base.clone());
        let (sender, payload) = actix_http::h1::Payload::create(false);
        let (request, mut payload) = (request.to_http_request(), Payload::from(payload));
        let read = Body::<Unruled<String>, LIMIT>::from_request(&request, &mut payload);
        drop(request);
        tasks.push(actix_web::rt::spawn(async move { read.await.map(|body| body.0.len()) }));
        senders.push(sender);
    }
    for half in [first, second] {
        for sender in &mut senders {
            sender.feed_data(Bytes::copy_from_slice(half.as_bytes()));
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    for mut sender in senders {
        sender.feed_eof();
    }
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), LIMIT - 2);
    }
}
