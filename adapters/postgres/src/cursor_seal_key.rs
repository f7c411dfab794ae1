//! The key that seals list cursors. All processes of a database share it.

use crate::{database::Database, row::require_decoded, schema::installation};
use diesel::QueryDsl as _;
use fairway_domain::store::StoreError;

impl Database {
    /// Reads the key with which this installation authenticates list cursors.
    ///
    /// # Errors
    /// When the read fails.
    pub async fn cursor_seal_key(&self) -> Result<[u8; 32], StoreError> {
        let key: Option<Vec<u8>> =
            self.first("cursor key", || installation::table.select(installation::cursor_key)).await?;
        require_decoded("cursor_key", key.and_then(|key| key.try_into().ok()))
    }
}
