//! What all processes over one database know.

use crate::{
    database::Database,
    row::{Columns, known},
};
use fairway_domain::store::StoreError;

impl Database {
    /// The key that this installation's cursors are sealed with.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn cursor_key(&self) -> Result<[u8; 32], StoreError> {
        let row = self.read_one("SELECT cursor_key FROM installation", &[]).await?;
        let row = known("installation", row)?;
        known("cursor_key", row.column::<&[u8]>("cursor_key")?.try_into().ok())
    }
}
