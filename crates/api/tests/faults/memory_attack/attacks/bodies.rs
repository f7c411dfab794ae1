//! Attacks with request bodies and heads that expand when parsed, or that never end.

use super::{
    super::{
        Random,
        client::{AttackRequest, post, post_bytes, send_raw, send_without_last_byte},
        outcome_counts::{Aim, OutcomeCounts},
        target_fixtures::AttackTarget,
    },
    hold_connections,
    large_content::{large_documents, large_model_config},
    random_address, send_concurrently,
};
use crate::api_client::WORKSPACE;
use serde_json::json;
use std::{net::Ipv4Addr, sync::Arc};

/// The server parses the body and refuses its unknown members.
const DENSE_BODY_AIM: Aim = Aim::at("dense body").refused_as(422, "validation_error");

/// Sends bodies of 64 KiB with small objects, which parse to about 6 MiB of values.
pub(super) async fn dense_bodies(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    const CONNECTIONS: usize = 150;
    let body = format!("{{\"objects\":[{}]}}", vec!["{\"a\":1}"; 8_000].join(","));
    let request = post_bytes(target.echo.execute_path(), body.into_bytes()).with_aim(DENSE_BODY_AIM);
    let connections = CONNECTIONS * scale;
    send_concurrently(target, random, vec![request; connections], connections).await
}

/// Sends requests whose `Content-Length` is one byte larger than the sent body, each from its own address.
async fn send_withheld(target: &AttackTarget, requests: &[(Ipv4Addr, AttackRequest)]) -> OutcomeCounts {
    let connections =
        requests.iter().map(|(address, request)| send_without_last_byte(*address, target.address, request)).collect();
    let mut counts = OutcomeCounts::default();
    for ((_, request), bytes) in requests.iter().zip(hold_connections(connections).await) {
        match bytes {
            // Without a response, the server still waits for the last byte.
            Some(bytes) if bytes.is_empty() => counts.count_connection(request.aim.name, true),
            bytes => counts.count(request, &super::AttackResponse::parse(&bytes.unwrap_or_default())),
        }
    }
    counts
}

pub(super) async fn withheld_bodies(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let unavailable = |name: &'static str| Aim::at(name).refused_as(503, "unavailable");
    let large = post(format!("/v1/assets/{}/versions", target.config), &large_model_config(random));
    let documents = post_bytes(
        format!("/v1/assets/{}/documents?workspace_id={WORKSPACE}", target.knowledge_base),
        large_documents(random, 90_000),
    );
    let run =
        post(target.echo.execute_path(), &json!({ "environment": "dev", "inputs": { "x": "x".repeat(1_000_000) } }));
    let unauthorized = Aim::at("withheld version without permission").refused_as(403, "forbidden");
    let bodies = [
        large.clone().with_aim(unavailable("withheld version")).with_actor("user:author"),
        run.clone().with_aim(unavailable("withheld run")).with_actor("user:viewer"),
        documents.with_aim(unavailable("withheld documents")).with_actor("user:author"),
        large.with_aim(unauthorized).with_actor("user:viewer"),
        run.with_aim(unavailable("withheld anonymous run")).with_actor("anonymous"),
    ];
    let requests: Vec<_> =
        (0..60 * scale).map(|index| (random_address(random), bodies[index % bodies.len()].clone())).collect();
    send_withheld(target, &requests).await
}

pub(super) async fn withheld_heads(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let head_start = format!("GET /v1/workloads HTTP/1.1\r\nHost: {}\r\nX-Long: ", target.address);
    let mut counts = OutcomeCounts::default();
    // The first head is shorter than the limit, so the server waits for its rest. The second is far longer, so the
    // server closes the connection.
    for (name, bytes) in [("unfinished head", 12_000), ("endless head", 100_000)] {
        let head = format!("{head_start}{}", "x".repeat(bytes));
        let addresses: Vec<Ipv4Addr> = (0..100 * scale).map(|_| random_address(random)).collect();
        let connections =
            addresses.into_iter().map(|address| send_raw(address, target.address, head.as_bytes())).collect();
        for bytes in hold_connections(connections).await {
            counts.count_connection(name, bytes.as_ref().is_some_and(Vec::is_empty));
        }
    }
    counts
}

/// Sends many small requests and requests with long heads on one connection, without waiting for responses.
pub(super) async fn pipelined_requests(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let small_request = format!("GET /v1/workloads?limit=1 HTTP/1.1\r\nHost: {}\r\n\r\n", target.address);
    let large_request = small_request.replace("\r\n\r\n", &format!("\r\nX-Long: {}\r\n\r\n", "x".repeat(100_000)));
    let mut counts = OutcomeCounts::default();
    for (name, requests) in
        [("pipelined requests", small_request.repeat(4_000)), ("pipelined long heads", large_request.repeat(8))]
    {
        let addresses: Vec<Ipv4Addr> = (0..50 * scale).map(|_| random_address(random)).collect();
        let connections =
            addresses.into_iter().map(|address| send_raw(address, target.address, requests.as_bytes())).collect();
        for bytes in hold_connections(connections).await {
            counts.count_connection(name, bytes.is_some_and(|bytes| bytes.starts_with(b"HTTP/1.1 200")));
        }
    }
    counts
}
