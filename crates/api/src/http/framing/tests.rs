use super::*;
use actix_http::{
    ServiceConfig,
    h1::{Codec, Message, MessageType},
};
use bytes::BytesMut;
use proptest::{prelude::*, test_runner::TestRunner};
use tokio_util::codec::Decoder as _;

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\na\nb\n\n";
const CHUNKED: &str =
    "POST / HTTP/1.1\r\nHost: x\r\ntransfer-encoding: Chunked\r\n\r\n5;x\r\na\nb\n\n\r\n0\r\nT: x\r\n\r\n";

/// Feeds bytes in parts of `part_length`. Returns the number of complete heads, and the offset of the first refusal.
fn feed(bytes: &[u8], part_length: usize) -> (usize, Option<usize>) {
    let mut framing = Framing::default();
    let mut offset = 0;
    for mut part in bytes.chunks(part_length) {
        while !part.is_empty() {
            match framing.advance(part) {
                Ok(at) => {
                    offset += at;
                    part = &part[at..];
                }
                Err(StopReason::Refused(at)) => return (framing.heads, Some(offset + at)),
                Err(StopReason::Ended(at)) => panic!("ended at {}", offset + at),
            }
        }
    }
    (framing.heads, None)
}

#[test]
fn tracks_pipelined_requests() {
    let requests = [GET, POST, CHUNKED, "\r\n\r\n", GET, CHUNKED, POST].concat();
    for part_length in [1, 2, 3, 7, 1024] {
        assert_eq!(feed(requests.as_bytes(), part_length), (6, None));
    }
}

#[test]
fn refuses_bare_lf_in_every_head() {
    for invalid in [
        "GET / HTTP/1.1\n\n",
        "GET / HTTP/1.1\nHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\n\n",
        "\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "\r\n\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT: x\n\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\n\r\n",
    ] {
        for valid in ["", GET, POST, CHUNKED, "\r\n\r\n", "\r\n"] {
            let requests = [valid, invalid].concat();
            let blank = if valid.starts_with('\r') || invalid.starts_with("\r\n") { 2 } else { 0 };
            let (_, at) = feed(requests.as_bytes(), 1024);
            let at = at.unwrap_or_else(|| panic!("{valid:?} {invalid:?} is not refused"));
            assert!((valid.len()..=valid.len() + blank).contains(&at), "{valid:?} {invalid:?}: {at}");
            for part_length in [1, 3] {
                assert!(feed(requests.as_bytes(), part_length).1.is_some(), "{valid:?} {invalid:?}");
            }
        }
    }
}

#[test]
fn stops_after_trace() {
    for message in [GET, POST, CHUNKED] {
        let method = message.split(' ').next().unwrap();
        let trace = message.replacen(method, "TRACE", 1);
        let end = GET.len() + trace.len();
        let requests = [GET, &trace, GET].concat();
        let mut framing = Framing::default();
        assert_eq!(framing.advance(requests.as_bytes()), Ok(GET.len()), "{trace:?}");
        assert_eq!(framing.advance(&requests.as_bytes()[GET.len()..]), Ok(trace.len()), "{trace:?}");
        assert_eq!((framing.messages(), end), (2, GET.len() + trace.len()));
        assert_eq!(framing.advance(GET.as_bytes()), Err(StopReason::Ended(0)));
    }
}

#[test]
fn refuses_ambiguous_body_framing() {
    let long = format!("Content-Length: {}5", " ".repeat(MAX_STORED_BYTES));
    for fields in [
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: gzip, chunked",
        "Content-Length: +5",
        "Content-Length: 0x5",
        "Content-Length: 5, 5",
        "Content-Length:",
        "Content-Length: 18446744073709551616",
        &long,
    ] {
        let head = format!("POST / HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n");
        assert_eq!(feed(head.as_bytes(), 1024), (0, Some(0)), "{fields}");
    }
}

/// The result of the framework's codec for the same bytes.
#[derive(Debug)]
struct Decoded {
    heads: usize,
    /// Whether one of the decoded heads contains a bare line feed.
    has_bare_line_feed: bool,
    is_refused: bool,
}

fn has_bare_line_feed(head: &[u8]) -> bool {
    (0..head.len()).any(|at| head[at] == b'\n' && (at == 0 || head[at - 1] != b'\r'))
}

fn decode(service: &ServiceConfig, bytes: &[u8]) -> Decoded {
    let mut codec = Codec::new(service.clone());
    let mut remaining = BytesMut::from(bytes);
    let mut decoded = Decoded { heads: 0, has_bare_line_feed: false, is_refused: false };
    let mut in_head = true;
    loop {
        let undecoded = remaining.clone();
        match codec.decode(&mut remaining) {
            Ok(Some(Message::Item(_))) => {
                decoded.heads += 1;
                decoded.has_bare_line_feed |= has_bare_line_feed(&undecoded[..undecoded.len() - remaining.len()]);
                in_head = codec.message_type() == MessageType::None;
            }
            Ok(Some(Message::Chunk(Some(_)))) => {}
            Ok(Some(Message::Chunk(None))) => in_head = true,
            Ok(None) => {
                decoded.has_bare_line_feed |= in_head && has_bare_line_feed(&remaining);
                return decoded;
            }
            Err(_) => return Decoded { is_refused: true, ..decoded },
        }
    }
}

fn field() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => Just("Host: x\r\n".to_owned()),
        2 => (0..12_usize).prop_map(|length| format!("Content-Length: {length}\r\n")),
        1 => (0..12_usize).prop_map(|length| format!("content-length:\t{length} \r\n")),
        2 => Just("Transfer-Encoding: chunked\r\n".to_owned()),
        1 => Just("TRANSFER-ENCODING:chunked \r\n".to_owned()),
        1 => Just("Upgrade: websocket\r\n".to_owned()),
        1 => Just("Upgrade: h2c\r\n".to_owned()),
        1 => Just("Connection: upgrade\r\n".to_owned()),
        1 => "[a-z:; \t\r\n]{0,8}".prop_map(|text| format!("X: {text}\r\n")),
        1 => Just("X: y\n".to_owned()),
        1 => (50..90_usize).prop_map(|length| format!("X-Long: {}\r\n", "y".repeat(length))),
    ]
}

fn message() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        4 => Just("GET / HTTP/1.1\r\n"),
        4 => Just("POST / HTTP/1.1\r\n"),
        1 => Just("POST / HTTP/1.0\r\n"),
        1 => Just("CONNECT x:1 HTTP/1.1\r\n"),
        1 => Just("\r\nGET / HTTP/1.1\r\n"),
        1 => Just("GET / HTTP/1.1\n"),
    ];
    let fields = prop::collection::vec(field(), 0..4);
    let body = prop_oneof![
        4 => Just(String::new()),
        3 => "[a\r\n]{0,12}",
        3 => "[a\r\n]{1,9}".prop_map(|data| format!("{:x}\r\n{data}\r\n0\r\n\r\n", data.len())),
        1 => "[a\r\n]{1,9}".prop_map(|data| format!("{:X} ;a=b\r\n{data}\r\n00\r\nT: x\r\n\r\n", data.len())),
        1 => "[0-9a-f;\r\n \t]{0,12}",
    ];
    (line, fields, body).prop_map(|(line, fields, body)| {
        let host = if fields.iter().any(|field| field.starts_with("Host")) { "" } else { "Host: x\r\n" };
        format!("{line}{host}{}\r\n{body}", fields.concat())
    })
}

/// Accepted bytes have the same framing as in the framework, and no head with a bare line feed.
#[actix_web::test]
async fn matches_framing_of_framework_codec() {
    let config = ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new(config);
    let service = ServiceConfig::default();
    let connections = (prop::collection::vec(message(), 1..5), 1..40_usize);
    let agrees = |(messages, part_length): (Vec<String>, usize)| {
        let bytes = messages.concat().into_bytes();
        let decoded = decode(&service, &bytes);
        let (heads, refused_at) = feed(&bytes, part_length);
        match refused_at {
            // The framework reads nothing after a refused message.
            None if decoded.is_refused => prop_assert!(heads >= decoded.heads),
            None => {
                prop_assert!(!decoded.has_bare_line_feed, "{decoded:?}");
                prop_assert_eq!(heads, decoded.heads);
            }
            // The accepted prefix gives the same result in the framework.
            Some(at) => {
                let prefix = decode(&service, &bytes[..at]);
                prop_assert!(!prefix.has_bare_line_feed, "{prefix:?}");
                prop_assert!(prefix.is_refused || prefix.heads <= heads);
                // A line feed at the start of a head is bare, even if the previous body ends with a carriage return.
                let has_bare_lf = decoded.has_bare_line_feed || has_bare_line_feed(&bytes);
                prop_assert!(decoded.is_refused || has_bare_lf, "{decoded:?}");
            }
        }
        Ok(())
    };
    runner.run(&connections, agrees).unwrap();
}
