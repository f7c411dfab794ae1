//! The routes of the portal: its files, the gallery, the runtime pages and the console. `GET /{slug}` is in
//! [`crate::embeddable_page`].

use super::page::{PageKind, PortalPage};
use crate::{
    compose::Api,
    http::{HttpState, fallback::not_found, route_origins::RouteOrigins},
};
use actix_web::{
    HttpRequest, HttpResponse, guard,
    http::{StatusCode, header::LOCATION},
    web,
};
use fairway_domain::slug::Slug;

/// Path patterns of the portal, for `Allow` of other methods.
pub(crate) const PORTAL_PATTERNS: [&str; 6] = ["/", GALLERY, RUNTIME_PAGE, CONSOLE, CONSOLE_VIEW, FILE];
const GALLERY: &str = "/workload-runtime";
const RUNTIME_PAGE: &str = "/workload-runtime/{slug}";
const CONSOLE: &str = "/console";
/// The views of the console. The console's script interprets their paths.
const CONSOLE_VIEW: &str = "/console/{view:.*}";
const FILE: &str = "/_app/{file}";

pub(crate) fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/").guard(guard::Get()).to(redirect_to_gallery))
        .service(web::resource(GALLERY).guard(guard::Get()).to(gallery))
        .service(web::resource(RUNTIME_PAGE).guard(guard::Get()).to(runtime_page))
        .service(web::resource(CONSOLE).guard(guard::Get()).to(console))
        .service(web::resource(CONSOLE_VIEW).guard(guard::Get()).to(console))
        .service(web::resource(FILE).guard(guard::Get()).to(file));
}

async fn redirect_to_gallery() -> HttpResponse {
    HttpResponse::TemporaryRedirect().insert_header((LOCATION, GALLERY)).finish()
}

async fn gallery(api: web::Data<Api>, base: web::Data<HttpState>) -> HttpResponse {
    document(&api, &base, PageKind::Gallery, None)
}

/// Serves the console. The document is the same for every view and caller, because the script requests a sign-in
/// where one is needed.
async fn console(api: web::Data<Api>, base: web::Data<HttpState>) -> HttpResponse {
    document(&api, &base, PageKind::Console, None)
}

/// Serves a runtime page. The document is the same for every well-formed slug, so it does not reveal which
/// workloads exist.
async fn runtime_page(
    request: HttpRequest,
    api: web::Data<Api>,
    base: web::Data<HttpState>,
    slug: web::Path<String>,
) -> HttpResponse {
    match Slug::parse(&slug) {
        Ok(slug) => document(&api, &base, PageKind::Runtime, Some(&slug)),
        Err(_) => not_found(&request),
    }
}

fn document(api: &Api, base: &HttpState, kind: PageKind, slug: Option<&Slug>) -> HttpResponse {
    let pattern = if slug.is_some() { RUNTIME_PAGE } else { GALLERY };
    PortalPage {
        status: StatusCode::OK,
        kind,
        title: "Fairway",
        description: "",
        slug: slug.map(Slug::as_str),
        auth_mode: api.mode.as_str(),
        theme: Vec::new(),
        ancestors: &RouteOrigins::of(pattern).frame_ancestors(&base.embed_policy),
    }
    .render(&base.portal)
}

async fn file(request: HttpRequest, base: web::Data<HttpState>, name: web::Path<String>) -> HttpResponse {
    base.portal.file(&name, &request).unwrap_or_else(|| not_found(&request))
}
