//! Previews of prompts: the rendered text of a template that is not stored as a version. A preview stores nothing.

use super::include::{body_of, refusal_of};
use crate::{
    Failure,
    access::Operation,
    asset::{Assets, ValidContent, validate},
    blocking::{ProcessorPermit, ProcessorWait, permit_failure},
    resolve_reference::ResolutionFailure,
};
use fairway_domain::{
    access::{Caller, ResourcePosition},
    asset::{Asset, kind::AssetKind},
    id::{AssetId, WorkspaceId},
    prompt::{IncludedAsset, MAX_RENDERED_BYTES, PromptRefusal, PromptTemplate, composition::IncludedBody},
};
use fairway_fair_queue::AcquireError;
use fairway_memory_limit::admit;
use serde_json::{Map, Value};
use std::{collections::BTreeMap, time::Duration};

/// Peak memory of a preview, in bytes: the included bodies, a copy of these bodies, and the rendered text.
const PREVIEW_BYTES: usize = 32 << 20;
/// Maximum time for which a preview waits for this memory.
const PREVIEW_WAIT: Duration = Duration::from_secs(5);

impl Assets {
    /// Renders a template that is not stored, with the assets that a version would currently include. The asset of the
    /// template must be visible from `from_workspace`, or from any workspace if this argument is `None`.
    ///
    /// # Errors
    /// Not found when the caller does not see the asset; also in these cases: the asset is not a prompt template; a
    /// version with the content would be refused; the caller does not see an included asset; an argument has the wrong
    /// name or type.
    pub async fn preview_prompt(
        &self,
        caller: &Caller,
        id: AssetId,
        from_workspace: Option<WorkspaceId>,
        content: Value,
        arguments: Map<String, Value>,
    ) -> Result<String, Failure> {
        let (scope, asset) =
            self.authorize_asset_from_optional(caller, Operation::PreviewPrompt, id, from_workspace).await?;
        if asset.kind != AssetKind::PromptTemplate {
            return Err(Failure::invalid_field("asset_id", "wrong_asset_kind", "the asset is no prompt template"));
        }
        let ValidContent { prompt, .. } = validate(scope, asset.kind, content).await?;
        let prompt = prompt.ok_or(Failure::Inconsistent("valid content of a prompt template is no template"))?;
        let processor = ProcessorPermit::acquire(scope, ProcessorWait::Request).await?;
        let _memory = admit(PREVIEW_BYTES, PREVIEW_WAIT).await.map_err(|_| permit_failure(AcquireError::TimedOut))?;
        let bodies = self.read_visible_includes(caller, &asset, from_workspace, &prompt).await?;
        let render = move || prompt.compose(|reference| bodies.get(reference).cloned())?.render(&arguments);
        processor.run(render).await?.map_err(Failure::from_prompt_refusal)
    }

    /// Reads the bodies of the assets that a version of the template would currently include.
    ///
    /// A version may include all assets that are visible from the workspace of its own asset. A preview shows their
    /// texts, so the caller itself must also see each included asset, from the workspace in which it sees the template.
    /// A grant of the template alone therefore reveals no other asset.
    async fn read_visible_includes(
        &self,
        caller: &Caller,
        template_asset: &Asset,
        from_workspace: Option<WorkspaceId>,
        prompt: &PromptTemplate,
    ) -> Result<BTreeMap<IncludedAsset, IncludedBody>, Failure> {
        let home_position =
            ResourcePosition::workspace(caller.tenant, template_asset.namespace_id, template_asset.workspace_id);
        let from_position = match from_workspace {
            Some(workspace) => Some(self.scope_resolver.workspace_position_unchecked(caller, workspace).await?),
            None => None,
        };
        let mut bodies = BTreeMap::new();
        let mut bytes = 0_usize;
        for (reference, offset) in prompt.distinct_references() {
            if reference.slug == template_asset.slug {
                return Err(Failure::from_prompt_refusal(PromptRefusal::NestedReference { offset }));
            }
            let (asset, version) = self
                .find_include(caller, &home_position, reference, offset)
                .await?
                .map_err(Failure::from_prompt_refusal)?;
            if !self.sees_asset(caller, &asset, from_position.as_ref()).await? {
                let is_visible_elsewhere = from_position.is_some() && self.sees_asset(caller, &asset, None).await?;
                let unresolved =
                    if is_visible_elsewhere { ResolutionFailure::OtherWorkspace } else { ResolutionFailure::Unknown };
                return Err(Failure::from_prompt_refusal(refusal_of(unresolved, offset)));
            }
            let body = body_of(&asset, &version)?;
            let body = body.map_err(|refusal| Failure::from_prompt_refusal(refusal.to_prompt_refusal(offset)))?;
            bytes = bytes.saturating_add(body.bytes());
            if bytes > MAX_RENDERED_BYTES {
                return Err(Failure::from_prompt_refusal(PromptRefusal::TooLarge { offset }));
            }
            bodies.insert(reference.clone(), body);
        }
        Ok(bodies)
    }
}
