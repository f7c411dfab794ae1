//! The metadata of this server as a protected resource (RFC 9728). It names the issuers whose tokens MCP clients
//! can use.

use crate::{compose::Api, error::ApiError};
use actix_web::{HttpRequest, HttpResponse, guard, web};
use serde::Serialize;

/// Path of the server's metadata. For a resource below the root, the path of the resource is appended.
const PATH: &str = "/.well-known/oauth-protected-resource";
/// Path of the MCP endpoint, the protected resource of MCP clients.
const MCP_PATH: &str = "/mcp";

/// Metadata of a protected resource.
#[derive(Serialize)]
struct ResourceMetadata<'a> {
    /// The address of the resource.
    resource: String,
    resource_name: &'static str,
    /// The issuers whose tokens the resource accepts.
    authorization_servers: Vec<&'a str>,
    /// Only `header`, because tokens in the query would appear in logs.
    bearer_methods_supported: [&'static str; 1],
}

/// The route for the whole server.
pub(crate) fn server_metadata_route() -> actix_web::Resource {
    web::resource(PATH).guard(guard::Get()).to(read_metadata)
}

/// The route for the MCP endpoint.
pub(crate) fn mcp_metadata_route() -> actix_web::Resource {
    web::resource(format!("{PATH}{MCP_PATH}")).guard(guard::Get()).to(read_metadata)
}

/// Reads the metadata. A server in local mode has no authorization server, so it has no metadata.
async fn read_metadata(request: HttpRequest, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let authentication = api.authentication.as_ref().ok_or_else(ApiError::not_found)?;
    let path = request.path().strip_prefix(PATH).unwrap_or_default();
    Ok(HttpResponse::Ok().json(ResourceMetadata {
        resource: format!("{}{path}", authentication.base_url()),
        resource_name: "Fairway",
        authorization_servers: authentication.issuers().iter().map(String::as_str).collect(),
        bearer_methods_supported: ["header"],
    }))
}
