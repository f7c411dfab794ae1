//! The page at `/` for browsers: what this server is, where its documentation is, and the command to try. It is static
//! text without scripts. A portal replaces [`home`] by a redirect to its gallery.

use crate::{
    compose::Api,
    embeddable_page::{BUILTIN_SLUG, load_workload},
    http::{
        HttpBase,
        fallback::not_found,
        html_page::{self, escape},
    },
};
use actix_web::{HttpRequest, HttpResponse, guard, http::StatusCode, web};
use fairway_domain::slug::Slug;
use std::fmt::Write as _;

/// Maximum number of workloads that the page links. Each costs a read.
const MAX_LINKS: usize = 5;
/// The command that runs the demo.
const DEMO_COMMAND: &str = "fairway run ticket-classifier --env dev --input ticket='I was charged twice'";

/// The route, for GET only: other methods get a 404.
pub(crate) fn resource() -> actix_web::Resource {
    web::resource("/").guard(guard::Get()).to(home)
}

/// The page for clients that prefer HTML, and the 404 of an unknown path for others.
async fn home(request: HttpRequest, api: web::Data<Api>, base: web::Data<HttpBase>) -> HttpResponse {
    if !html_page::prefers_html(request.headers()) {
        return not_found(&request);
    }
    let mut body = String::from(
        "<p>A control plane for AI workloads: what runs was reviewed, a policy decides whether it runs, and each \
         answer has evidence.</p>\n<ul>\n<li><a href=\"/docs/\">Documentation of the API</a></li>\n",
    );
    let mut example = "fairway workloads list";
    let slugs: Vec<Slug> = base.embed_policy.slugs().take(MAX_LINKS).collect();
    for slug in slugs {
        // Only workloads whose page this caller may read are named, so the list reveals nothing.
        if let Ok(workload) = load_workload(&request, &api, &slug).await {
            let _ = writeln!(body, "<li><a href=\"/{slug}\">{}</a></li>", escape(&workload.name));
            if slug.as_str() == BUILTIN_SLUG {
                example = DEMO_COMMAND;
            }
        }
    }
    let _ = write!(body, "</ul>\n<p>Try it in a terminal:</p>\n<pre>{}</pre>", escape(example));
    html_page::page(StatusCode::OK, "Fairway", &body)
}
