//! Runtime interfaces: how a workload shows itself to people, and the list of all that do.

use crate::{
    answer::Answer,
    asset::owner,
    caller::{Identified, Visitor},
    compose::Api,
    document::{ErrorBody, PageParams, ReadRefusals, TokenParams},
    error::{ApiError, FieldProblem},
    http::{paging::List, path::Path, request_context::request_id},
};
use actix_web::{HttpResponse, get, web};
use fairway_domain::{
    slug::Slug,
    workload::{
        Workload,
        interface::{Finding, InterfaceConfig, PresentationMode},
    },
};
use fairway_operations::workload::RuntimeQuestion;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// How a workload shows itself to people. Only `presentation_mode` is required. It has at most 64 KiB as JSON.
#[derive(ToSchema)]
#[schema(as = InterfaceConfig)]
#[expect(dead_code, reason = "the domain reads and writes it; this is its description")]
pub(crate) struct InterfaceShape {
    presentation_mode: PresentationShape,
    /// For people.
    #[schema(required = false, max_length = 2000)]
    description: String,
    /// What a run is asked for. Inputs are held against it.
    #[schema(required = false, max_items = 50)]
    input_fields: Vec<InputFieldShape>,
    #[schema(required = false)]
    output_display: OutputShape,
    #[schema(required = false)]
    theme: ThemeShape,
    #[schema(required = false)]
    rollout_config: RolloutShape,
    #[schema(required = false)]
    access_mode: AccessShape,
}

/// What an interface looks like.
#[derive(ToSchema)]
#[schema(as = PresentationMode, rename_all = "snake_case")]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum PresentationShape {
    Form,
    Chat,
    Block,
}

/// How an answer is shown; `text` where nothing is said.
#[derive(ToSchema)]
#[schema(as = OutputDisplay, rename_all = "snake_case")]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum OutputShape {
    Text,
    Json,
    Markdown,
    Table,
}

/// Who may come; `authenticated` where nothing is said. Changing it needs `workload.expose`.
#[derive(ToSchema)]
#[schema(as = AccessMode, rename_all = "snake_case")]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum AccessShape {
    Authenticated,
    Public,
    LinkShared,
}

/// One field of the form.
#[derive(ToSchema)]
#[schema(as = InputField)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct InputFieldShape {
    /// Unique among the fields.
    #[schema(pattern = "^[a-z][a-z0-9_]{0,62}$")]
    name: String,
    /// For people.
    #[schema(required = false, min_length = 1, max_length = 200)]
    label: String,
    r#type: FieldTypeShape,
    /// Whether a run needs a value; an empty text is none.
    #[schema(required = false)]
    required: bool,
    /// For `select`, and there required.
    #[schema(required = false, min_items = 1, max_items = 200)]
    options: Vec<String>,
    /// For `number`.
    #[schema(required = false)]
    min: f64,
    /// For `number`.
    #[schema(required = false)]
    max: f64,
    /// For `textarea`.
    #[schema(required = false, minimum = 1, maximum = 50)]
    rows: u32,
    /// A value of the field's type, which a run that leaves the field out gets.
    #[schema(required = false, value_type = Object)]
    default: Value,
}

/// What a field asks for. A `date` is `YYYY-MM-DD`.
#[derive(ToSchema)]
#[schema(as = FieldType, rename_all = "snake_case")]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum FieldTypeShape {
    Text,
    Number,
    Select,
    Textarea,
    Boolean,
    Date,
}

/// How an interface looks. What is left out is the portal's.
#[derive(ToSchema)]
#[schema(as = Theme)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct ThemeShape {
    /// A CSS colour, for `--svc-accent`.
    #[schema(required = false, max_length = 256)]
    accent_color: String,
    /// A CSS colour, for `--svc-bg`.
    #[schema(required = false, max_length = 256)]
    background_color: String,
    /// A CSS list of font families, for `--svc-font`.
    #[schema(required = false, max_length = 256)]
    font_family: String,
    /// A CSS length of at most 64 px, for `--svc-radius`.
    #[schema(required = false, max_length = 256)]
    border_radius: String,
}

/// When a rollback is recommended.
#[derive(ToSchema)]
#[schema(as = RolloutConfig)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct RolloutShape {
    /// How many executions are looked at; 20 where nothing is said.
    #[schema(required = false, minimum = 1, maximum = 1000)]
    sample_size: u32,
    /// The share of failures beyond which it is; 0.3 where nothing is said.
    #[schema(required = false, minimum = 0, maximum = 1)]
    error_threshold: f64,
}

/// Reads an interface out of a request's body.
///
/// # Errors
/// With everything that is wrong with it.
pub(super) fn interface(document: &Value) -> Result<InterfaceConfig, Vec<FieldProblem>> {
    InterfaceConfig::read(document)
        .map_err(|findings| findings.iter().map(|finding| problem("interface_config", finding)).collect())
}

fn problem(within: &str, finding: &Finding) -> FieldProblem {
    let path = if finding.path.is_empty() { within.to_owned() } else { format!("{within}.{}", finding.path) };
    FieldProblem::new(path, finding.fault.code(), finding.fault.to_string())
}

/// A workload with a runtime interface, in a list.
#[derive(Serialize, ToSchema)]
#[schema(as = RuntimeWorkloadEntry)]
pub(crate) struct EntryView {
    slug: String,
    name: String,
    /// The interface's own, else the workload's.
    description: String,
    #[schema(value_type = PresentationShape)]
    presentation_mode: Option<&'static str>,
    owner_ref: String,
    #[schema(format = DateTime)]
    updated_at: String,
}

impl EntryView {
    fn of(workload: &Workload) -> Self {
        Self {
            slug: workload.slug.to_string(),
            name: workload.name.clone(),
            description: workload.shown_description().to_owned(),
            presentation_mode: workload.interface_config.as_ref().map(|config| config.presentation_mode().as_str()),
            owner_ref: workload.owner_ref.to_string(),
            updated_at: workload.updated_at.to_string(),
        }
    }
}

/// A workload with a runtime interface, as its page needs it.
#[derive(Serialize, ToSchema)]
#[schema(as = RuntimeWorkload)]
pub(crate) struct DetailView {
    slug: String,
    workload_id: Uuid,
    name: String,
    /// With its defaults spelled out; `theme` may be empty.
    #[schema(value_type = InterfaceShape)]
    interface_config: Option<Value>,
}

impl DetailView {
    fn of(workload: &Workload) -> Self {
        Self {
            slug: workload.slug.to_string(),
            workload_id: workload.workload_id.uuid(),
            name: workload.name.clone(),
            interface_config: workload.interface_config.as_ref().map(|config| config.in_full().to_document()),
        }
    }
}

/// Which runtime interfaces to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RuntimeListQuery {
    /// Those of this look: `form`, `chat` or `block`.
    presentation_mode: Option<String>,
    /// Those that `team:<name>` or `user:<name>` answers for.
    owner_ref: Option<String>,
    /// Those with these words, or words that begin so, in their name or description. Marks between words mean nothing,
    /// nor does it matter whether letters are capitals; another spelling is another word (`strasse` is not `Straße`).
    #[param(max_length = 256)]
    q: Option<String>,
}

/// Workloads with a runtime interface that take executions, newest first.
#[utoipa::path(
    operation_id = "list_runtime_workloads",
    tag = "workloads",
    params(RuntimeListQuery, PageParams),
    responses((status = 200, description = "A page of runtime interfaces", body = Vec<EntryView>), ReadRefusals)
)]
#[get("/v1/workloads/runtime-enabled")]
pub(crate) async fn list_runtime_workloads(
    api: web::Data<Api>,
    caller: Identified,
    list: List<RuntimeListQuery>,
) -> Result<HttpResponse, ApiError> {
    let mode = |text: &str| PresentationMode::parse(text).ok_or_else(|| FieldProblem::invalid("presentation_mode"));
    let RuntimeListQuery { presentation_mode, owner_ref, q } = &list.filter;
    let asked = RuntimeQuestion {
        presentation_mode: presentation_mode.as_deref().map(mode).transpose()?,
        owner: owner_ref.as_deref().map(owner).transpose()?,
        text: q.clone(),
    };
    let workloads = api.services.list_runtime_workloads(&caller, asked, list.paging()).await?;
    Ok(list.answer(&workloads.map(|workload| EntryView::of(&workload))))
}

/// A workload's runtime interface.
#[utoipa::path(
    operation_id = "read_runtime_workload",
    tag = "workloads",
    params(("slug" = String, Path, description = "The workload's slug"), TokenParams),
    responses(
        (status = 200, description = "The runtime interface", body = DetailView),
        (status = 429, description = "The workload is public, and you ask too often", body = ErrorBody),
        ReadRefusals,
    )
)]
#[get("/v1/workloads/by-slug/{slug}")]
pub(crate) async fn read_runtime_workload(
    api: web::Data<Api>,
    Visitor(arrival): Visitor,
    slug: Path<String>,
) -> Result<HttpResponse, ApiError> {
    // What is no slug names no workload.
    let slug = Slug::parse(&slug.into_inner()).map_err(|_| ApiError::not_found())?;
    let visit = api.services.receive(arrival).await?;
    let caller = api.services.identify(api.mode, &visit.claims, request_id()).await?;
    let workload = api.services.read_runtime_workload(&caller, &visit, &slug).await?;
    Ok(Answer::ok(&DetailView::of(&workload)).send())
}
