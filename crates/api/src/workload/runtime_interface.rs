//! Routes of runtime interfaces, the forms of workloads for end users.

use crate::{
    asset::parse_owner,
    caller::{IdentifiedCaller, RuntimeClient},
    compose::Api,
    error::{ApiError, FieldProblem},
    http::{
        body::to_validation_errors, paging::ListRequest, path::Path, request_id_log_and_metrics::request_id_or_new,
    },
    openapi::{ErrorBody, PageParams, ReadRefusals, ShareTokenParams},
    response::ResourceResponse,
};
use actix_web::{HttpResponse, get, web};
use fairway_domain::{
    slug::Slug,
    workload::{
        Workload,
        interface::{InterfaceConfig, InterfaceProblem, PresentationMode},
    },
};
use fairway_operations::workload::{InterfaceFilter, RuntimeWorkload};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use validator::{Validate, ValidationErrors};

/// The end-user interface of a workload. Only `presentation_mode` is required. The JSON has at most 64 KiB.
#[derive(ToSchema)]
#[schema(as = InterfaceConfig)]
#[expect(dead_code, reason = "only its description is used; the domain reads and writes the value")]
pub(crate) struct InterfaceShape {
    presentation_mode: PresentationShape,
    /// Description that end users see.
    #[schema(required = false, max_length = 2000)]
    description: String,
    /// The fields of the form. The server validates the inputs of runs against them.
    #[schema(required = false, max_items = 50)]
    input_fields: Vec<InputFieldShape>,
    #[schema(required = false)]
    output_display: OutputShape,
    #[schema(required = false)]
    theme: ThemeShape,
    #[schema(required = false)]
    rollout_config: RollbackThresholdsShape,
    #[schema(required = false)]
    access_mode: AccessShape,
}

/// The layout of an interface.
#[derive(ToSchema)]
#[schema(as = PresentationMode, rename_all = "snake_case")]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum PresentationShape {
    Form,
    Chat,
    Block,
}

/// The display of a result; default `text`.
#[derive(ToSchema)]
#[schema(as = OutputDisplay, rename_all = "snake_case")]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum OutputShape {
    Text,
    Json,
    Markdown,
    Table,
}

/// The access to an interface; default `authenticated`. A change requires `workload.expose`.
#[derive(ToSchema)]
#[schema(as = AccessMode, rename_all = "snake_case")]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum AccessShape {
    Authenticated,
    Public,
    LinkShared,
}

/// A field of the form.
#[derive(ToSchema)]
#[schema(as = InputField)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct InputFieldShape {
    /// Name that is unique among the fields.
    #[schema(pattern = "^[a-z][a-z0-9_]{0,62}$")]
    name: String,
    /// Label that end users see.
    #[schema(required = false, min_length = 1, max_length = 200)]
    label: String,
    r#type: FieldTypeShape,
    /// Whether a run requires a value; an empty text counts as missing.
    #[schema(required = false)]
    required: bool,
    /// The choices; required for `select`.
    #[schema(required = false, min_items = 1, max_items = 200)]
    options: Vec<String>,
    /// Minimum value of a `number` field.
    #[schema(required = false)]
    min: f64,
    /// Maximum value of a `number` field.
    #[schema(required = false)]
    max: f64,
    /// Number of visible lines, for `textarea`.
    #[schema(required = false, minimum = 1, maximum = 50)]
    rows: u32,
    /// Default value of the field's type, for runs that omit the field.
    #[schema(required = false)]
    default: Value,
}

/// The type of a field. A `date` is `YYYY-MM-DD`.
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

/// The theme of an interface. Absent values take the defaults of the portal.
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

/// The thresholds of the rollback recommendation.
#[derive(ToSchema)]
#[schema(as = RolloutConfig)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct RollbackThresholdsShape {
    /// Number of evaluated runs; default 20.
    #[schema(required = false, minimum = 1, maximum = 1000)]
    sample_size: u32,
    /// Error rate above which a rollback is recommended; default 0.3.
    #[schema(required = false, minimum = 0, maximum = 1)]
    error_threshold: f64,
}

/// An interface in a request body. The domain validates it as one document.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct InterfaceDocument(Value);

impl InterfaceDocument {
    /// Parses the interface.
    ///
    /// # Errors
    /// With all problems, whose paths are relative to the interface.
    pub(super) fn parse(&self) -> Result<InterfaceConfig, Vec<FieldProblem>> {
        let problem = |finding: &InterfaceProblem| {
            FieldProblem::new(finding.path.clone(), finding.kind.code(), finding.kind.to_string())
        };
        InterfaceConfig::parse(&self.0).map_err(|findings| findings.iter().map(problem).collect())
    }
}

impl Validate for InterfaceDocument {
    fn validate(&self) -> Result<(), ValidationErrors> {
        self.parse().map(drop).map_err(to_validation_errors)
    }
}

/// A list entry of a workload with a runtime interface.
#[derive(Serialize, ToSchema)]
#[schema(as = RuntimeWorkloadEntry)]
pub(crate) struct RuntimeWorkloadEntryView {
    slug: String,
    name: String,
    /// The description of the interface, else of the workload.
    description: String,
    #[schema(value_type = PresentationShape)]
    presentation_mode: Option<&'static str>,
    owner_ref: String,
    #[schema(format = DateTime)]
    updated_at: String,
}

impl RuntimeWorkloadEntryView {
    fn of(workload: &Workload) -> Self {
        Self {
            slug: workload.slug.to_string(),
            name: workload.name.clone(),
            description: workload.display_description().to_owned(),
            presentation_mode: workload.interface_config.as_ref().map(|config| config.presentation_mode().as_str()),
            owner_ref: workload.owner_ref.to_string(),
            updated_at: workload.updated_at.to_string(),
        }
    }
}

/// A workload with its runtime interface.
#[derive(Serialize, ToSchema)]
#[schema(as = RuntimeWorkload)]
pub(crate) struct RuntimeWorkloadView {
    slug: String,
    workload_id: Uuid,
    name: String,
    /// The interface with all defaults filled in; `theme` may be empty.
    #[schema(value_type = InterfaceShape)]
    interface_config: Option<Value>,
    /// Names of the environments in which a release serves. A run can name one of them.
    environments: Vec<String>,
}

impl RuntimeWorkloadView {
    fn of(runtime: &RuntimeWorkload) -> Self {
        let workload = &runtime.workload;
        Self {
            environments: runtime.environments.iter().map(ToString::to_string).collect(),
            slug: workload.slug.to_string(),
            workload_id: workload.workload_id.uuid(),
            name: workload.name.clone(),
            interface_config: workload.interface_config.as_ref().map(|config| config.with_defaults().to_document()),
        }
    }
}

/// Filters of the list of runtime interfaces.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RuntimeListQuery {
    /// Only interfaces with this layout: `form`, `chat` or `block`.
    presentation_mode: Option<String>,
    /// Only workloads of this owner: `team:<name>` or `user:<name>`.
    owner_ref: Option<String>,
    /// Only workloads whose name or description contains these words or word prefixes. The search ignores case and
    /// punctuation, but not spelling variants (`strasse` does not match `Straße`).
    #[param(max_length = 256)]
    q: Option<String>,
}

/// Lists the runnable workloads with a runtime interface, newest first.
#[utoipa::path(
    operation_id = "list_runtime_workloads",
    tag = "workloads",
    params(RuntimeListQuery, PageParams),
    responses((status = 200, description = "A page of runtime interfaces", body = Vec<RuntimeWorkloadEntryView>), ReadRefusals)
)]
#[get("/v1/workloads/runtime-enabled")]
pub(crate) async fn list_runtime_workloads(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    list: ListRequest<RuntimeListQuery>,
) -> Result<HttpResponse, ApiError> {
    let mode = |text: &str| PresentationMode::parse(text).ok_or_else(|| FieldProblem::invalid("presentation_mode"));
    let RuntimeListQuery { presentation_mode, owner_ref, q } = &list.filter;
    let filter = InterfaceFilter {
        presentation_mode: presentation_mode.as_deref().map(mode).transpose()?,
        owner: owner_ref.as_deref().map(parse_owner).transpose()?,
        text: q.clone(),
    };
    let workloads = api.services.workloads.list_runtime_workloads(&caller, filter, list.paging()).await?;
    Ok(list.respond(&workloads.map(|workload| RuntimeWorkloadEntryView::of(&workload))))
}

/// Reads the runtime interface of a workload by the workload's slug.
#[utoipa::path(
    operation_id = "read_runtime_workload",
    tag = "workloads",
    params(("slug" = String, Path, description = "The workload's slug"), ShareTokenParams),
    responses(
        (status = 200, description = "The runtime interface", body = RuntimeWorkloadView),
        (status = 429, description = "The rate limit of a public workload is exceeded", body = ErrorBody),
        ReadRefusals,
    )
)]
#[get("/v1/workloads/by-slug/{slug}")]
pub(crate) async fn read_runtime_workload(
    api: web::Data<Api>,
    RuntimeClient(runtime_request): RuntimeClient,
    slug: Path<String>,
) -> Result<HttpResponse, ApiError> {
    // A malformed slug cannot name a workload, so the response is 404.
    let slug = Slug::parse(&slug.into_inner()).map_err(|_| ApiError::not_found())?;
    let runtime_caller = api.services.share_links.resolve_runtime_caller(runtime_request).await?;
    let caller = api.services.identities.resolve_caller(api.mode, &runtime_caller.claims, request_id_or_new()).await?;
    let workload = api.services.workloads.read_runtime_workload(&caller, &runtime_caller, &slug).await?;
    Ok(ResourceResponse::ok(&RuntimeWorkloadView::of(&workload)).into_response())
}
