//! What a reference from one content to another asset means: by slug, as seen from a place.

use crate::{Failure, Services};
use fairway_domain::{
    access::{Caller, Place},
    asset::{Asset, AssetVersion, VersionLabel},
    slug::Slug,
    tenant::TenantScope,
};

/// Why a reference means nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unresolved {
    /// There is no such asset or version, or the caller may not know of it.
    Unknown,
    /// The caller may see the asset, but not from here.
    Elsewhere,
}

impl Services {
    /// The version that a reference means: the labelled one, else the newest. `from` is the workspace that it is looked
    /// at from. A slug is unique in the tenant, so what is not seen from there may well exist: only who may see it where
    /// it is learns that.
    pub(crate) async fn resolve(
        &self,
        caller: &Caller,
        from: &Place,
        (slug, label): (&Slug, Option<&VersionLabel>),
    ) -> Result<Result<(Asset, AssetVersion), Unresolved>, Failure> {
        let found = self.stores.assets.find_by_slug(TenantScope::of(caller), slug, label).await?;
        let Some((asset, version)) = found else { return Ok(Err(Unresolved::Unknown)) };
        if !self.is_seen_in(caller, &asset, from).await? {
            let known = self.sees_asset(caller, &asset, None).await?;
            return Ok(Err(if known { Unresolved::Elsewhere } else { Unresolved::Unknown }));
        }
        Ok(version.map(|version| (asset, version)).ok_or(Unresolved::Unknown))
    }
}
