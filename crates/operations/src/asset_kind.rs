//! Asset kinds and their schemas. They are the same for every tenant, and every member of a tenant may read them.

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
    /// Lists every asset kind, in documented order.
    ///
    /// # Errors
    /// When the caller is not a member of the tenant.
    pub fn list_asset_kinds(&self, caller: &Caller) -> Result<[AssetKind; 19], Failure> {
        authorize::authorize(caller, Operation::ListAssetKinds, &ResourcePosition::tenant(caller.tenant))
            .map(|_| AssetKind::ALL)
    }

    /// Returns the JSON Schema of the named kind, as text.
    ///
    /// # Errors
    /// When the caller is not a member of the tenant, or the kind does not exist.
    pub fn read_asset_kind_schema(&self, caller: &Caller, kind: &str) -> Result<&'static str, Failure> {
        authorize::authorize(caller, Operation::ReadAssetKindSchema, &ResourcePosition::tenant(caller.tenant))?;
        AssetKind::parse(kind).map(content::schema_text).ok_or(Failure::NotFound)
    }
}
