//! Asset kinds and their schemas: the same for every tenant, visible to every member of one.

use crate::{
    Failure,
    access::{Operation, authorize},
    asset::Assets,
};
use fairway_domain::{
    access::{Caller, ResourcePosition},
    asset::{content, kind::AssetKind},
};

impl Assets {
    /// Every kind, in documented order.
    ///
    /// # Errors
    /// When the caller is not a member of the tenant.
    pub fn list_asset_kinds(&self, caller: &Caller) -> Result<[AssetKind; 19], Failure> {
        authorize::authorize(caller, Operation::ListAssetKinds, &ResourcePosition::tenant(caller.tenant))
            .map(|_| AssetKind::ALL)
    }

    /// The JSON Schema of the kind of that name, as text.
    ///
    /// # Errors
    /// When the caller is not a member of the tenant, or the kind does not exist.
    pub fn read_asset_kind_schema(&self, caller: &Caller, kind: &str) -> Result<&'static str, Failure> {
        authorize::authorize(caller, Operation::ReadAssetKindSchema, &ResourcePosition::tenant(caller.tenant))?;
        AssetKind::parse(kind).map(content::schema_text).ok_or(Failure::NotFound)
    }
}
