//! The kinds of assets and their schemas: the same for every tenant, shown to whoever belongs to one.

use crate::{
    Failure, Services,
    access::{Operation, gate},
};
use fairway_domain::{
    access::{Caller, Place},
    asset::{content, kind::AssetKind},
};

impl Services {
    /// Every kind, in the order of the public list.
    ///
    /// # Errors
    /// When the caller belongs to no tenant.
    pub fn list_asset_kinds(&self, caller: &Caller) -> Result<[AssetKind; 19], Failure> {
        gate::enter(caller, Operation::ListAssetKinds, &Place::tenant(caller.tenant)).map(|_| AssetKind::ALL)
    }

    /// The JSON Schema of the kind of that name, as text.
    ///
    /// # Errors
    /// When the caller belongs to no tenant, or there is no such kind.
    pub fn read_asset_kind_schema(&self, caller: &Caller, kind: &str) -> Result<&'static str, Failure> {
        gate::enter(caller, Operation::ReadAssetKindSchema, &Place::tenant(caller.tenant))?;
        AssetKind::parse(kind).map(content::schema).ok_or(Failure::NotFound)
    }
}
