//! Reads and writes profiles: named servers with tokens, in a configuration file that only its owner can read.

use crate::{
    failure::{Candidate, Failure, candidate_hint},
    output::Format,
    sign_in::StoredSignIn,
    similar_names::similar_names,
    terminal_text::sanitize,
};
use etcetera::{BaseStrategy as _, choose_base_strategy};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    io,
    io::Write as _,
    path::PathBuf,
};

/// The name of the profile that applies when no profile is selected.
pub(crate) const DEFAULT_PROFILE: &str = "default";
/// The environment variable that overrides the path of the configuration file.
const FILE_VARIABLE: &str = "FAIRWAY_CLI_CONFIG";

/// The configuration file with all profiles.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Configuration {
    /// The name of the default profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
    #[serde(default)]
    profiles: BTreeMap<String, Profile>,
}

/// Stored defaults for command-line options.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) actor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workspace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) environment: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<Format>,
    /// The sign-in that issued the token, with the data for its renewal; absent for a token that the user stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sign_in: Option<StoredSignIn>,
}

impl Configuration {
    pub(crate) fn path() -> Result<PathBuf, Failure> {
        if let Some(path) = env::var_os(FILE_VARIABLE).filter(|path| !path.is_empty()) {
            return Ok(path.into());
        }
        let folders = choose_base_strategy();
        let folders = folders.map_err(|_| Failure::Usage(format!("no home directory found: set {FILE_VARIABLE}")))?;
        Ok(folders.config_dir().join("fairway").join("config.toml"))
    }

    /// Reads the configuration; empty when the file does not exist.
    ///
    /// # Errors
    /// When the file cannot be read or parsed, or contains a token and other users can read it.
    pub(crate) fn read() -> Result<Self, Failure> {
        let path = Self::path()?;
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            text => text.map_err(|cause| Failure::Io { path: path.clone(), cause })?,
        };
        // The error contains only the position, because the text of the file may contain a token.
        let to_failure = |error: toml::de::Error| {
            let text_before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = text_before.matches('\n').count() + 1;
            Failure::Usage(format!("{}: line {line} is not a valid profile configuration", path.display()))
        };
        let configuration: Self = toml::from_str(&text).map_err(to_failure)?;
        if configuration.profiles.values().any(|profile| profile.token.is_some()) && is_readable_by_others(&path) {
            return Err(Failure::Usage(format!(
                "{} contains a token and other users can read it: run chmod 600 on it",
                path.display()
            )));
        }
        Ok(configuration)
    }

    /// The profile with this name, or the file's default profile. Returns an empty profile when neither is set.
    ///
    /// # Errors
    /// When the named profile does not exist.
    pub(crate) fn profile(self, selected: Option<&str>) -> Result<Profile, Failure> {
        let selected = selected.or(self.profile.as_deref());
        match (self.profiles.get(selected.unwrap_or(DEFAULT_PROFILE)), selected) {
            (Some(profile), _) => Ok(profile.clone()),
            (None, None) => Ok(Profile::default()),
            (None, Some(name)) => {
                let known = self.profiles.keys().map(String::as_str);
                let candidates = similar_names(name, known).into_iter().map(Candidate::named);
                let hint = candidate_hint(&candidates.collect::<Vec<_>>());
                let message = "the profile does not exist; `fairway login --profile NAME` creates it";
                Err(Failure::Usage(format!("{message}{hint}")))
            }
        }
    }

    /// The name of the profile that a login writes. A login without profile and server updates the default profile. A
    /// login with only a server writes `default`, so that it overwrites no other profile.
    ///
    /// # Errors
    /// When the name is empty, or contains characters that a terminal would interpret.
    pub(crate) fn login_profile_name(&self, selected: Option<&str>, server: Option<&str>) -> Result<String, Failure> {
        let is_name = |name: &str| !name.trim().is_empty() && sanitize(name) == name;
        if selected.is_some_and(|name| !is_name(name)) {
            return Err(Failure::Usage("a profile name must be non-empty and printable".to_owned()));
        }
        let current = self.profile.as_deref().filter(|_| server.is_none());
        Ok(selected.or(current).unwrap_or(DEFAULT_PROFILE).to_owned())
    }

    /// Stores a profile and makes it the default, because the login states the identity for later commands.
    pub(crate) fn store_as_default(&mut self, name: &str, profile: Profile) {
        self.profile = Some(name.to_owned());
        self.profiles.insert(name.to_owned(), profile);
    }

    /// Stores a profile without a change of the default profile.
    pub(crate) fn replace(&mut self, name: &str, profile: Profile) {
        self.profiles.insert(name.to_owned(), profile);
    }

    /// The name of the selected profile, which may not exist.
    pub(crate) fn selected_profile_name(&self, selected: Option<&str>) -> String {
        selected.or(self.profile.as_deref()).unwrap_or(DEFAULT_PROFILE).to_owned()
    }

    /// Acquires the lock for changes of tokens in this configuration, and waits for other processes. Dropping the
    /// returned file releases the lock.
    ///
    /// # Errors
    /// When the lock file cannot be created.
    pub(crate) fn lock() -> Result<File, Failure> {
        let path = Self::path()?.with_extension("lock");
        let failed = |cause| Failure::Io { path: path.clone(), cause };
        let file = File::create(&path).map_err(failed)?;
        file.lock().map_err(failed)?;
        Ok(file)
    }

    /// The stored profile with this name, or an empty one.
    pub(crate) fn stored_profile(&self, name: &str) -> Profile {
        self.profiles.get(name).cloned().unwrap_or_default()
    }

    /// Replaces the file atomically, readable by its owner only.
    pub(crate) fn write(&self) -> Result<PathBuf, Failure> {
        let path = Self::path()?;
        let failed = |cause| Failure::Io { path: path.clone(), cause };
        let text = toml::to_string(self).map_err(|error| failed(io::Error::other(error)))?;
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .map_or_else(|| PathBuf::from("."), PathBuf::from);
        fs::create_dir_all(&folder).map_err(failed)?;
        // A temporary file has owner-only permissions, which a rename preserves.
        let mut file = tempfile::NamedTempFile::new_in(&folder).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.as_file().sync_all().map_err(failed)?;
        file.persist(&path).map_err(|error| failed(error.error))?;
        Ok(path)
    }
}

/// Whether other users can read the file.
fn is_readable_by_others(path: &std::path::Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}
