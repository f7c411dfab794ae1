//! Under construction.
/// Applies.
/// # Errors
/// None.
pub async fn seed(_server: &str, _directory: &std::path::Path) -> anyhow::Result<()> { Ok(()) }
