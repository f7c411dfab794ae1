//! The key of list cursors, which all processes of a database share.

use crate::{database::Database, row::require_decoded};
use fairway_domain::store::StoreError;

impl Database {
    /// Reads the key with which this installation authenticates list cursors.
    ///
    /// # Errors
    /// When the read fails.
    pub async fn cursor_key(&self) -> Result<[u8; 32], StoreError> {
        let row = self.read_one("SELECT cursor_key FROM installation", &[]).await?;
        let row = require_decoded("installation", row)?;
        require_decoded("cursor_key", row.column::<&[u8]>("cursor_key")?.try_into().ok())
    }
}
