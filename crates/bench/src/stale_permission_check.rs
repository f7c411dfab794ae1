//! Checks that changed permissions apply to the next request, although reads are cached.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::connection::{BenchRequest, Connection, delete, get, post, with_header};
use crate::fixtures::{ENVIRONMENT, Fixtures};

/// The actor that reads. No other scenario uses this name, so the actor has no other role bindings.
const READER: &str = "user:bench-reader";
/// Number of times that the role is granted and revoked.
const ROUNDS: u32 = 50;

/// The number of rounds, and of reads with outdated permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutdatedReads {
    pub(crate) rounds: u32,
    /// Reads that the server answered according to the previous permissions.
    pub(crate) late: u32,
}

/// Grants and revokes a role in turn. The reads in between fill the permission cache.
///
/// # Errors
/// When a role cannot be granted or revoked.
pub(crate) async fn count_outdated_reads(address: SocketAddr, fixtures: &Fixtures) -> Result<OutdatedReads> {
    let mut connection = Connection::open(address).await?;
    let workload = fixtures.workloads.first().context("there is no workload to read")?;
    let path = format!("/v1/workloads/{}/active-release?environment={ENVIRONMENT}", workload.id);
    let read = || with_header(get(&path), "x-actor-ref", READER);
    // An actor with a role binding has only that role. This binding permits no read of releases.
    grant(&mut connection, "runtime_user", &workload.id).await?;
    let mut outdated = OutdatedReads { rounds: ROUNDS, late: 0 };
    for _ in 0..ROUNDS {
        let role_binding_id = grant(&mut connection, "viewer", &workload.id).await?;
        let (first, second) = (status(&mut connection, read()).await?, status(&mut connection, read()).await?);
        let response = connection.send(delete(&format!("/v1/role-bindings/{role_binding_id}"))).await?;
        if !response.is_success() {
            bail!("revoking a role responded with {response}");
        }
        let third = status(&mut connection, read()).await?;
        let is_late = first != 200 || second != 200 || !matches!(third, 403 | 404);
        outdated.late = outdated.late.saturating_add(u32::from(is_late));
    }
    Ok(outdated)
}

async fn grant(connection: &mut Connection, role: &str, workload: &str) -> Result<String> {
    let body = json!({"principal": READER, "role": role, "scope_kind": "workload", "scope_ref": workload});
    let response = connection.json(post("/v1/role-bindings", &body)).await?;
    let id = response.get("role_binding_id").and_then(Value::as_str);
    Ok(id.context("a role binding without `role_binding_id`")?.to_owned())
}

async fn status(connection: &mut Connection, request: BenchRequest) -> Result<u16> {
    Ok(connection.send(request).await?.status)
}
