//! Reads secrets from files.

use crate::{MAX_SECRET_BYTES, to_secret};
use fairway_domain::{
    secret::{Secret, SecretError},
    slug::Slug,
};
use std::{
    io::{self, ErrorKind},
    path::Path,
};
use tokio::{
    fs::{self, File},
    io::AsyncReadExt as _,
};
use zeroize::Zeroizing;

/// Reads a file in a tenant's folder.
///
/// Symbolic links are followed, because mounted secrets are links. A link that leads out of the tenant's folder is
/// refused.
pub(crate) async fn read_below(folder: &Path, tenant: &Slug, name: &str) -> Result<Secret, SecretError> {
    let folder = fs::canonicalize(folder).await.map_err(|failure| read_error(folder, &failure))?;
    let tenant_folder = folder.join(tenant.as_str());
    let link = tenant_folder.join(name);
    let path = fs::canonicalize(&link).await.map_err(|failure| read_error(&link, &failure))?;
    // The tenant's folder itself must not be a link, because the link could lead to another tenant's folder.
    if !path.starts_with(&tenant_folder) {
        tracing::warn!(
            tenant = tenant.as_str(),
            path = %link.display(),
            "a symbolic link leads from the path of a secret out of its tenant's folder; refusing to read the secret"
        );
        return Err(SecretError::OtherTenant);
    }
    read(&path).await
}

/// Reads a file. Removes one trailing line feed, which editors append.
pub(crate) async fn read(path: &Path) -> Result<Secret, SecretError> {
    // Only regular files are opened, because opening a pipe or a device could block.
    if !fs::metadata(path).await.map_err(|failure| read_error(path, &failure))?.is_file() {
        return Err(SecretError::Malformed);
    }
    let file = File::open(path).await.map_err(|failure| read_error(path, &failure))?;
    // The buffer has the maximum size from the start, because a growing buffer would leave copies of the secret in
    // freed memory.
    let max_bytes = MAX_SECRET_BYTES.saturating_add(2);
    let mut bytes = Zeroizing::new(Vec::with_capacity(max_bytes));
    file.take(u64::try_from(max_bytes).unwrap_or(u64::MAX))
        .read_to_end(&mut bytes)
        .await
        .map_err(|failure| read_error(path, &failure))?;
    let text = str::from_utf8(&bytes).map_err(|_| SecretError::Malformed)?;
    let text = text.strip_suffix('\n').map_or(text, |line| line.strip_suffix('\r').unwrap_or(line));
    to_secret(text.to_owned())
}

/// Converts the failure of a read, and logs it unless the file does not exist. The path of a secret is not secret.
fn read_error(path: &Path, failure: &io::Error) -> SecretError {
    if matches!(failure.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
        return SecretError::Missing;
    }
    tracing::warn!(
        path = %path.display(),
        error = failure as &dyn std::error::Error,
        "failed to read a secret file; reporting the secret as unavailable"
    );
    SecretError::Unavailable
}
