//! Routes of the transparency log: checkpoints, proofs and tiles. With the prefix `/v1/audit` they form a log as
//! C2SP `tlog-tiles` describes it. They omit the entries, because the entries contain more than an auditor of one
//! scope may read.

use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::ApiError,
    http::{
        path::{Path, PathId},
        query::Query,
    },
    openapi::ReadRefusals,
    response::ResourceResponse,
};
use actix_web::{
    HttpResponse, get,
    http::header::{CACHE_CONTROL, ContentType},
    web,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use fairway_domain::{
    id::FactId,
    transparency_log::{TileRequest, TreeHash, VerifierKey},
};
use fairway_operations::transparency_log::{ConsistencyProof, InclusionProof};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Cache directive of tiles. A tile never changes, and only authorized readers may cache it.
const IMMUTABLE: &str = "private, max-age=31536000, immutable";

/// A public key that signs checkpoints.
#[derive(Serialize, ToSchema)]
#[schema(as = CheckpointKey)]
pub(crate) struct CheckpointKeyView {
    /// The key as C2SP `signed-note` encodes it: name, key id and base64, joined by `+`. `fairway verify --key`
    /// accepts it.
    verifier_key: String,
    /// The origin of the log, which is the name of its keys.
    name: String,
    /// The raw Ed25519 public key in base64.
    public_key: String,
    /// `current`, or `previous` while keys are rotated.
    status: &'static str,
}

/// The proof that an event is part of the log (RFC 6962).
#[derive(Serialize, ToSchema)]
#[schema(as = InclusionProof)]
pub(crate) struct InclusionProofView {
    /// Index of the event in the log.
    index: u64,
    /// Number of events in the tree.
    tree_size: u64,
    /// Root of the tree, in hex.
    root_hash: String,
    /// Hashes from the leaf to the root, in hex.
    proof: Vec<String>,
}

/// The proof that an earlier tree is a prefix of a later one (RFC 6962).
#[derive(Serialize, ToSchema)]
#[schema(as = ConsistencyProof)]
pub(crate) struct ConsistencyProofView {
    /// Number of events in the earlier tree.
    from: u64,
    /// Root of the earlier tree, in hex.
    from_root_hash: String,
    /// Number of events in the later tree.
    tree_size: u64,
    /// Root of the later tree, in hex.
    root_hash: String,
    /// Hashes of the proof, in hex.
    proof: Vec<String>,
}

fn hex(hashes: &[TreeHash]) -> Vec<String> {
    hashes.iter().map(TreeHash::to_string).collect()
}

impl InclusionProofView {
    fn of(proof: &InclusionProof) -> Self {
        let InclusionProof { index, tree_size, root, hashes } = proof;
        Self { index: *index, tree_size: *tree_size, root_hash: root.to_string(), proof: hex(hashes) }
    }
}

impl ConsistencyProofView {
    fn of(proof: &ConsistencyProof) -> Self {
        let ConsistencyProof { from_size, from_root, to_size, to_root, hashes } = proof;
        Self {
            from: *from_size,
            from_root_hash: from_root.to_string(),
            tree_size: *to_size,
            root_hash: to_root.to_string(),
            proof: hex(hashes),
        }
    }
}

/// The tree of the proof.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct InclusionQuery {
    /// Number of events in the tree of an earlier checkpoint; by default the tree of the latest checkpoint.
    tree_size: Option<u64>,
}

/// The trees of the proof.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ConsistencyQuery {
    /// Number of events in the earlier tree.
    from: u64,
    /// Number of events in the later tree, at most as many as in the tree of the latest checkpoint.
    to: u64,
}

/// Reads the latest checkpoint of the tenant's log: a signed note (C2SP `tlog-checkpoint`, Ed25519).
#[utoipa::path(
    operation_id = "read_checkpoint",
    tag = "audit",
    responses(
        (status = 200, description = "The signed note", body = String, content_type = "text/plain"),
        ReadRefusals,
    )
)]
#[get("/v1/audit/checkpoint")]
pub(crate) async fn read_checkpoint(api: web::Data<Api>, caller: IdentifiedCaller) -> Result<HttpResponse, ApiError> {
    let note = api.services.transparency_logs.checkpoint(&caller).await?;
    Ok(HttpResponse::Ok().content_type(ContentType::plaintext()).body(note))
}

/// Lists the public keys that sign the checkpoints of the tenant's log, the current key first. To verify a server,
/// take the keys from another source than that server.
#[utoipa::path(
    operation_id = "read_checkpoint_keys",
    tag = "audit",
    responses((status = 200, description = "The keys", body = Vec<CheckpointKeyView>), ReadRefusals)
)]
#[get("/v1/audit/keys")]
pub(crate) async fn read_checkpoint_keys(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
) -> Result<HttpResponse, ApiError> {
    let keys = api.services.transparency_logs.checkpoint_keys(&caller).await?;
    let statuses = std::iter::once("current").chain(std::iter::repeat("previous"));
    let view = |(key, status): (&VerifierKey, &'static str)| CheckpointKeyView {
        verifier_key: key.to_string(),
        name: key.name().to_owned(),
        public_key: BASE64_STANDARD.encode(key.public_key()),
        status,
    };
    let views: Vec<CheckpointKeyView> = keys.iter().zip(statuses).map(view).collect();
    Ok(ResourceResponse::ok(&views).into_response())
}

/// Proves that an event is part of the tenant's log.
#[utoipa::path(
    operation_id = "read_inclusion_proof",
    tag = "audit",
    params(("event_id" = Uuid, Path, description = "The event"), InclusionQuery),
    responses(
        (status = 200, description = "The proof", body = InclusionProofView),
        ReadRefusals,
    )
)]
#[get("/v1/audit/events/{event_id}/inclusion-proof")]
pub(crate) async fn read_inclusion_proof(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    event: PathId<FactId>,
    query: Query<InclusionQuery>,
) -> Result<HttpResponse, ApiError> {
    let logs = &api.services.transparency_logs;
    let proof = logs.inclusion_proof(&caller, event.into_inner(), query.tree_size).await?;
    Ok(ResourceResponse::ok(&InclusionProofView::of(&proof)).into_response())
}

/// Proves that the log of an earlier checkpoint is a prefix of the log of a later one.
#[utoipa::path(
    operation_id = "read_consistency_proof",
    tag = "audit",
    params(ConsistencyQuery),
    responses(
        (status = 200, description = "The proof", body = ConsistencyProofView),
        ReadRefusals,
    )
)]
#[get("/v1/audit/consistency-proof")]
pub(crate) async fn read_consistency_proof(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    query: Query<ConsistencyQuery>,
) -> Result<HttpResponse, ApiError> {
    let ConsistencyQuery { from, to } = query.into_inner();
    let proof = api.services.transparency_logs.consistency_proof(&caller, from, to).await?;
    Ok(ResourceResponse::ok(&ConsistencyProofView::of(&proof)).into_response())
}

/// Reads a tile of the log: up to 256 hashes of one level, as C2SP `tlog-tiles` names them. A tile never changes.
#[utoipa::path(
    operation_id = "read_log_tile",
    tag = "audit",
    params(
        ("level" = String, Path, description = "The level, from 0 (the leaves) to 7"),
        ("index" = String, Path, description = "The index in groups of three digits, such as `x001/x234/067`, and \
            `.p/` with the number of hashes for a partial tile, such as `000.p/5`"),
    ),
    responses(
        (status = 200, description = "The hashes, 32 bytes each", body = String, content_type = "application/octet-stream"),
        ReadRefusals,
    )
)]
#[get("/v1/audit/tile/{level}/{index:.+}")]
pub(crate) async fn read_log_tile(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(String, String)>,
) -> Result<HttpResponse, ApiError> {
    let (level, index) = path.into_inner();
    // A malformed path cannot name a tile, so the response is 404.
    let request = TileRequest::parse(&level, &index).map_err(|_| ApiError::not_found())?;
    let bytes = api.services.transparency_logs.tile(&caller, request).await?;
    Ok(HttpResponse::Ok()
        .insert_header((CACHE_CONTROL, IMMUTABLE))
        .content_type(ContentType::octet_stream())
        .body(bytes))
}
