//! Signs checkpoints with keys that are stored as secrets.

use async_trait::async_trait;
use fairway_domain::{
    secret::{Secret, SecretError, SecretReader, ServerSecretRef},
    transparency_log::{CheckpointSigner, NoteSigningKey, SigningError},
};
use std::{
    io::{self, ErrorKind, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

/// The source of the current signing key.
#[derive(Clone, Debug)]
pub enum CheckpointKeySource {
    /// A secret, named by a reference.
    Reference(ServerSecretRef),
    /// A key file of this installation. If the file is missing, it is created with a new key. All processes of the
    /// installation on one machine share the file.
    GeneratedFile(PathBuf),
}

/// Signs checkpoints. It reads the keys at each use, so that a changed secret takes effect without a restart.
pub struct SecretSigner {
    secrets: Arc<dyn SecretReader>,
    current: CheckpointKeySource,
    previous: Option<ServerSecretRef>,
    generate: fn() -> Secret,
}

impl SecretSigner {
    /// Creates a signer. During a key rotation, `previous` names the old key, and checkpoints are signed with both
    /// keys. `generate` returns a new key in base64.
    #[must_use]
    pub fn new(
        secrets: Arc<dyn SecretReader>,
        current: CheckpointKeySource,
        previous: Option<ServerSecretRef>,
        generate: fn() -> Secret,
    ) -> Self {
        Self { secrets, current, previous, generate }
    }

    async fn keys(&self) -> Result<Vec<NoteSigningKey>, SigningError> {
        let current = match &self.current {
            CheckpointKeySource::Reference(reference) => self.read(reference).await?,
            CheckpointKeySource::GeneratedFile(path) => {
                let reference = ServerSecretRef::File(path.display().to_string());
                match self.secrets.read_server_secret(&reference).await {
                    Err(SecretError::Missing) => {
                        self.create(path.clone()).await?;
                        self.read(&reference).await?
                    }
                    result => parse(&result.map_err(unavailable)?)?,
                }
            }
        };
        let mut keys = vec![current];
        if let Some(reference) = &self.previous {
            keys.push(self.read(reference).await?);
        }
        Ok(keys)
    }

    async fn read(&self, reference: &ServerSecretRef) -> Result<NoteSigningKey, SigningError> {
        parse(&self.secrets.read_server_secret(reference).await.map_err(unavailable)?)
    }

    async fn create(&self, path: PathBuf) -> Result<(), SigningError> {
        let key = (self.generate)();
        let created = tokio::task::spawn_blocking(move || create_key_file(&path, &key)).await;
        created.map_err(unavailable)?.map_err(unavailable)
    }
}

fn parse(secret: &Secret) -> Result<NoteSigningKey, SigningError> {
    NoteSigningKey::parse(secret.expose()).ok_or(SigningError::Malformed)
}

fn unavailable(source: impl std::error::Error + Send + Sync + 'static) -> SigningError {
    SigningError::Unavailable(Box::new(source))
}

/// Creates a file with a key, unless the file already exists. The key is first written to a temporary file, so that
/// other processes never see an incomplete file.
fn create_key_file(path: &Path, key: &Secret) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let temporary_path = path.with_extension(format!("{}.new", std::process::id()));
    // A process with the same id may have ended here earlier and left its temporary file.
    remove_if_present(&temporary_path)?;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary_path)?;
    file.write_all(key.expose().as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    let link_result = match std::fs::hard_link(&temporary_path, path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        link_result => link_result,
    };
    remove_if_present(&temporary_path)?;
    link_result?;
    std::fs::File::open(folder)?.sync_all()
}

fn remove_if_present(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[async_trait]
impl CheckpointSigner for SecretSigner {
    async fn public_keys(&self) -> Result<Vec<[u8; 32]>, SigningError> {
        Ok(self.keys().await?.iter().map(NoteSigningKey::public_key).collect())
    }

    async fn sign(&self, message: &[u8]) -> Result<Vec<([u8; 32], [u8; 64])>, SigningError> {
        let keys = self.keys().await?;
        Ok(keys.iter().map(|key| (key.public_key(), key.sign(message))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SecretSources;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    const FIRST: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
    const SECOND: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";

    fn signer(current: CheckpointKeySource, previous: Option<ServerSecretRef>) -> SecretSigner {
        let secrets = Arc::new(SecretSources::new(None, None));
        SecretSigner::new(secrets, current, previous, || Secret::new(FIRST.to_owned()))
    }

    fn public_key(key: &str) -> [u8; 32] {
        NoteSigningKey::parse(key).unwrap().public_key()
    }

    #[tokio::test]
    async fn creates_a_missing_key_file_once_for_the_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/checkpoint.key");
        let signer = signer(CheckpointKeySource::GeneratedFile(path.clone()), None);
        assert_eq!(signer.public_keys().await.unwrap(), [public_key(FIRST)]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no unfinished file is left");
        // An existing key file is never replaced.
        fs::write(&path, SECOND).unwrap();
        create_key_file(&path, &Secret::new(FIRST.to_owned())).unwrap();
        assert_eq!(signer.public_keys().await.unwrap(), [public_key(SECOND)]);
    }

    #[tokio::test]
    async fn signs_with_both_keys_while_they_are_rotated() {
        let directory = tempfile::tempdir().unwrap();
        let reference = |name: &str, key: &str| {
            let path = directory.path().join(name);
            fs::write(&path, key).unwrap();
            ServerSecretRef::File(path.display().to_string())
        };
        let (new, old) = (reference("new", SECOND), reference("old", FIRST));
        let signer = signer(CheckpointKeySource::Reference(new), Some(old));
        let signatures = signer.sign(b"text").await.unwrap();
        let expected = [SECOND, FIRST].map(|key| (public_key(key), NoteSigningKey::parse(key).unwrap().sign(b"text")));
        assert_eq!(signatures, expected);
    }

    #[tokio::test]
    async fn refuses_missing_and_malformed_keys() {
        let directory = tempfile::tempdir().unwrap();
        let missing = ServerSecretRef::File(directory.path().join("missing").display().to_string());
        let refused = signer(CheckpointKeySource::Reference(missing), None).public_keys().await;
        assert!(matches!(refused, Err(SigningError::Unavailable(_))));
        let path = directory.path().join("short");
        fs::write(&path, "AAAA").unwrap();
        let refused = signer(CheckpointKeySource::GeneratedFile(path), None).public_keys().await;
        assert!(matches!(refused, Err(SigningError::Malformed)));
    }
}
