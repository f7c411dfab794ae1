//! The application: all routes and the middleware stack.

use crate::{
    access, access_request, asset, asset_kind, audit, builtin_tool,
    compose::Api,
    connection, embeddable_page, environment, erasure, evidence, execution, flow,
    http::{
        HttpState,
        authentication::authenticate,
        body_drain::body_drain,
        fallback::{KnownMethods, fallback},
        load_shedding::middleware::shed_load,
        request_id_log_and_metrics::identify_and_record_request,
        response_memory::reserve_response_memory,
        site_guard::site_guard,
        unknown_query_parameters::{KnownQueries, refuse_unknown_query_parameters},
    },
    knowledge, mcp, memory, notification,
    openapi::{BaseDocument, document},
    operator_endpoints, portal, release, rollout, runtime_info, share_link, sign_in, tenant, transparency_log,
    use_case, workload, workspace,
};
use actix_web::{
    App, Error, HttpResponse,
    body::BoxBody,
    dev::{HttpServiceFactory, ServiceFactory, ServiceRequest, ServiceResponse},
    guard,
    http::header::{ContentType, LOCATION},
    middleware::from_fn,
    web,
};
use bytes::Bytes;
use utoipa::{OpenApi as _, openapi::OpenApi};
use utoipa_actix_web::{AppExt as _, OpenApiFactory, service_config::ServiceConfig};
use utoipa_swagger_ui::{Config, SwaggerUi};

const OPENAPI_PATH: &str = "/openapi.json";

/// A service configuration that registers routes. One implementation also collects their OpenAPI descriptions;
/// the one for worker threads does not.
trait RouteConfig {
    fn service<F: HttpServiceFactory + OpenApiFactory + 'static>(&mut self, factory: F) -> &mut Self;
}

impl RouteConfig for ServiceConfig<'_> {
    fn service<F: HttpServiceFactory + OpenApiFactory + 'static>(&mut self, factory: F) -> &mut Self {
        ServiceConfig::service(self, factory)
    }
}

impl RouteConfig for web::ServiceConfig {
    fn service<F: HttpServiceFactory + OpenApiFactory + 'static>(&mut self, factory: F) -> &mut Self {
        web::ServiceConfig::service(self, factory)
    }
}

/// Registers all routes. The router matches them in order, each by a regular expression, so the most frequent routes
/// come first.
fn routes(config: &mut impl RouteConfig) {
    config
        .service(execution::execute_workload)
        // Before the next route, which would match the slug `active-release`.
        .service(workload::runtime_interface::read_runtime_workload)
        .service(release::read_active_release)
        .service(execution::read_execution)
        .service(execution::events::read_execution_events)
        .service(execution::list::list_executions)
        .service(evidence::read_evidence_graph);
    operator_routes(config);
    content_routes(config);
    workload_routes(config);
    run_routes(config);
    use_case_routes(config);
    notification_routes(config);
}

/// Registers the routes of use cases, connections and access requests.
fn use_case_routes(config: &mut impl RouteConfig) {
    config
        .service(connection::list_connections)
        .service(connection::create_connection)
        .service(connection::read_connection)
        .service(connection::change_connection)
        .service(connection::delete_connection)
        .service(connection::check_connection)
        .service(access_request::list_access_requests)
        .service(access_request::grant_access_request)
        .service(access_request::deny_access_request)
        .service(use_case::generate::generate_use_case)
        .service(use_case::generate::refine_use_case)
        .service(use_case::create_use_case)
        .service(use_case::list_use_cases)
        .service(use_case::read_use_case)
        .service(use_case::read_use_case_bundle)
        .service(use_case::changes::read_use_case_changes)
        .service(use_case::publish_use_case)
        .service(use_case::activate_use_case)
        .service(use_case::archive_use_case)
        .service(use_case::reopen_use_case);
}

/// Registers the routes of health, tenants and access.
fn operator_routes(config: &mut impl RouteConfig) {
    config
        .service(operator_endpoints::healthz)
        .service(operator_endpoints::readyz)
        .service(operator_endpoints::metrics)
        .service(tenant::list_tenants)
        .service(tenant::create_tenant)
        .service(tenant::read_tenant_settings)
        .service(tenant::change_tenant_settings)
        .service(erasure::list_erasures)
        .service(erasure::request_erasure)
        .service(erasure::read_erasure)
        .service(erasure::approve_erasure)
        .service(erasure::refuse_erasure)
        .service(workspace::list_workspaces)
        .service(workspace::create_workspace)
        .service(workspace::read_workspace)
        .service(access::caller_description::read_session)
        .service(access::explanation::explain_access)
        .service(sign_in::read_sign_in_settings)
        .service(sign_in::end_session)
        .service(access::list_roles)
        .service(access::list_role_bindings)
        .service(access::create_role_binding)
        .service(access::delete_role_binding)
        .service(access::principal_binding::list_principal_bindings)
        .service(access::principal_binding::set_principal_binding)
        .service(access::principal_binding::delete_principal_binding);
}

/// Registers the routes of assets, memory, knowledge and flows.
fn content_routes(config: &mut impl RouteConfig) {
    config
        .service(asset::list_assets)
        .service(asset::create_asset)
        .service(asset::draft_generation::generate_asset_draft)
        .service(asset::read_asset)
        .service(asset::list_asset_versions)
        .service(asset::create_asset_version)
        .service(asset::read_asset_version)
        .service(asset::dry_run::preview_prompt)
        .service(asset::dry_run::try_policy)
        .service(asset_kind::list_asset_kinds)
        .service(asset_kind::read_asset_kind_schema)
        .service(asset::diff::diff_asset_versions)
        .service(asset::impact::read_blast_radius)
        .service(asset::lifecycle::activate_asset)
        .service(asset::lifecycle::retire_asset)
        .service(asset::lifecycle::archive_asset)
        .service(asset::grant::list_asset_grants)
        .service(asset::grant::create_asset_grant)
        .service(asset::grant::delete_asset_grant)
        .service(memory::read_session_memory)
        .service(memory::erase_session_memory)
        .service(knowledge::list_documents)
        .service(knowledge::add_documents)
        .service(knowledge::reembed_documents)
        .service(knowledge::revoke_access_contract)
        .service(flow::list_flows)
        .service(flow::create_flow)
        .service(flow::read_flow)
        .service(flow::create_flow_version)
        .service(flow::validate_flow);
}

/// Registers the routes of workloads, share links, environments, releases and rollouts.
fn workload_routes(config: &mut impl RouteConfig) {
    config
        .service(workload::list_workloads)
        .service(workload::create_workload)
        .service(workload::runtime_interface::list_runtime_workloads)
        .service(workload::read_workload)
        .service(workload::change_workload)
        .service(share_link::list_share_links)
        .service(share_link::read_share_link)
        .service(share_link::create_share_link)
        .service(share_link::revoke_share_link)
        .service(release::list_workload_releases)
        .service(release::list_releases)
        .service(release::create_release)
        .service(release::read_release)
        .service(environment::read_environment_settings)
        .service(environment::change_environment_settings)
        .service(release::read_release_gates)
        .service(release::unbind_version)
        .service(release::list_lanes)
        .service(rollout::advance_rollout)
        .service(rollout::read_rollout)
        .service(release::rollback::roll_back_release)
        .service(release::rollback::read_rollback_recommendation)
        .service(release::transition_artifact::list_release_artifacts)
        .service(release::transition_artifact::read_release_artifact)
        .service(release::bind_version)
        .service(release::transition_release)
        .service(release::review_release)
        .service(release::list_approvals)
        .service(evidence::read_release_bundle);
}

/// Registers the routes of runs, evidence, tools and the audit log.
fn run_routes(config: &mut impl RouteConfig) {
    config
        .service(execution::usage::read_usage)
        .service(execution::cancel::cancel_execution)
        .service(execution::review::read_execution_review)
        .service(execution::review::review_execution)
        .service(execution::resolve_unknown::settle_execution)
        .service(execution::script::run_code)
        .service(evidence::read_evidence_artifact)
        .service(evidence::read_evidence_bundle)
        .service(evidence::read_context_lineage)
        .service(builtin_tool::call_tool)
        .service(runtime_info::read_runtime_plugins)
        .service(runtime_info::read_runtime_system_meta)
        .service(runtime_info::read_runtime_mcp_manifest)
        .service(audit::list_audit_events)
        .service(transparency_log::read_checkpoint)
        .service(transparency_log::read_checkpoint_keys)
        .service(transparency_log::read_inclusion_proof)
        .service(transparency_log::read_consistency_proof)
        .service(transparency_log::read_log_tile);
}

/// Registers the routes of inboxes, preferences, destinations and suppressed notifications.
fn notification_routes(config: &mut impl RouteConfig) {
    config
        .service(notification::inbox::list_inbox)
        .service(notification::stream::read_inbox_stream)
        .service(notification::inbox::mark_inbox_read)
        .service(notification::inbox::change_inbox_status)
        .service(notification::preference::read_preferences)
        .service(notification::preference::change_preferences)
        .service(notification::preference::read_effective_preferences)
        .service(notification::preference::read_workspace_preferences)
        .service(notification::preference::change_workspace_preferences)
        .service(notification::preference::read_workload_preferences)
        .service(notification::preference::change_workload_preferences)
        .service(notification::preference::read_environment_preferences)
        .service(notification::preference::change_environment_preferences)
        .service(notification::preference::list_workload_environments)
        .service(notification::preference::read_default_profiles)
        .service(notification::preference::change_default_profiles)
        .service(notification::destination::list_workspace_destinations)
        .service(notification::destination::create_workspace_destination)
        .service(notification::destination::read_workspace_destination)
        .service(notification::destination::change_workspace_destination)
        .service(notification::destination::delete_workspace_destination)
        .service(notification::destination::list_organization_destinations)
        .service(notification::destination::create_organization_destination)
        .service(notification::destination::read_organization_destination)
        .service(notification::destination::change_organization_destination)
        .service(notification::destination::delete_organization_destination)
        .service(notification::destination::test_workspace_destination)
        .service(notification::destination::test_organization_destination)
        .service(notification::delivery::list_deliveries)
        .service(notification::delivery::retry_delivery)
        .service(notification::profile::read_notification_profile)
        .service(notification::profile::change_notification_profile)
        .service(notification::announcement::make_announcement)
        .service(notification::announcement::read_announcement)
        .service(notification::suppressed::list_suppressed_decisions);
}

/// Collects the OpenAPI document that the handlers' attributes describe, before the `openapi` module completes it.
pub(crate) fn collect_openapi() -> OpenApi {
    let routes = |config: &mut ServiceConfig<'_>| routes(config);
    let (_, document) =
        App::new().into_utoipa_app().openapi(BaseDocument::openapi()).configure(routes).split_for_parts();
    document
}

/// Builds the application of one worker thread; `api` contains its stores.
pub fn app(
    api: web::Data<Api>,
    base: web::Data<HttpState>,
    documents: web::Data<ServedOpenApi>,
) -> App<
    impl ServiceFactory<ServiceRequest, Config = (), Response = ServiceResponse<BoxBody>, Error = Error, InitError = ()>,
> {
    let page = SwaggerUi::new("/docs/{_:.*}").config(Config::from(OPENAPI_PATH));
    App::new()
        .configure(|config: &mut web::ServiceConfig| routes(config))
        .app_data(api)
        .app_data(base)
        .app_data(documents)
        .service(web::resource(OPENAPI_PATH).guard(guard::Get()).to(serve_openapi))
        .service(web::resource("/docs").guard(guard::Get()).to(redirect_to_docs))
        .service(page)
        .service(mcp::mcp_route())
        .service(mcp::protected_resource_metadata::server_metadata_route())
        .service(mcp::protected_resource_metadata::mcp_metadata_route())
        .service(sign_in::sign_in_route())
        .service(sign_in::sign_in_callback_route())
        .service(sign_in::sign_in_test_route())
        .service(sign_in::sign_out_route())
        .service(sign_in::backchannel_logout_route())
        .configure(portal::routes::configure)
        .service(embeddable_page::embeddable_page_route())
        .default_service(web::to(fallback))
        .wrap(from_fn(refuse_unknown_query_parameters))
        .wrap(from_fn(shed_load))
        .wrap(from_fn(authenticate))
        .wrap(from_fn(site_guard))
        .wrap(from_fn(body_drain))
        .wrap(from_fn(reserve_response_memory))
        .wrap(from_fn(identify_and_record_request))
}

/// Redirects `/docs` to `/docs/`, because the relative links of the pages need the trailing slash.
async fn redirect_to_docs() -> HttpResponse {
    HttpResponse::TemporaryRedirect().insert_header((LOCATION, "/docs/")).finish()
}

async fn serve_openapi(documents: web::Data<ServedOpenApi>) -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::json()).body(documents.json.clone())
}

/// Data derived from the OpenAPI document, once per process. The document itself is dropped, because it occupies
/// ten times as much memory.
#[derive(Clone)]
pub struct ServedOpenApi {
    json: Bytes,
    /// HTTP methods of each documented path.
    pub(crate) known_methods: KnownMethods,
    /// The query parameters of each operation.
    pub(crate) known_queries: KnownQueries,
}

impl ServedOpenApi {
    /// Builds the OpenAPI document, and derives this data from it.
    ///
    /// # Errors
    /// When the document cannot be serialized as JSON.
    pub fn new() -> Result<Self, serde_json::Error> {
        let document = document();
        Ok(Self {
            json: serde_json::to_vec(&document)?.into(),
            known_methods: KnownMethods::of(&document),
            known_queries: KnownQueries::from_openapi(&document),
        })
    }
}
