//! Profiles: servers and tokens by name, in a file that nobody else can read.

use crate::{failure::Failure, output::Format, text::plain};
use etcetera::{BaseStrategy as _, choose_base_strategy};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, env, fs, io, io::Write as _, path::PathBuf};

/// The profile of those who name none.
pub(crate) const DEFAULT_PROFILE: &str = "default";
/// Names another file.
const FILE_VARIABLE: &str = "FAIRWAY_CLI_CONFIG";

/// All profiles.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Configuration {
    /// The profile that is meant where none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
    #[serde(default)]
    profiles: BTreeMap<String, Profile>,
}

/// What a command line need not say again.
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
    pub(crate) output: Option<Format>,
}

impl Configuration {
    /// The file.
    pub(crate) fn path() -> Result<PathBuf, Failure> {
        if let Some(named) = env::var_os(FILE_VARIABLE).filter(|named| !named.is_empty()) {
            return Ok(named.into());
        }
        let folders = choose_base_strategy();
        let folders =
            folders.map_err(|_| Failure::Usage(format!("there is no home directory: set {FILE_VARIABLE}")))?;
        Ok(folders.config_dir().join("fairway").join("config.toml"))
    }

    /// Reads it; empty where there is none yet.
    ///
    /// # Errors
    /// When it is there and cannot be read as profiles, or others can read it and it holds a token.
    pub(crate) fn read() -> Result<Self, Failure> {
        let path = Self::path()?;
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            text => text.map_err(|cause| Failure::Io { path: path.clone(), cause })?,
        };
        // What stands in it is not repeated: it may be a token.
        let wrong = |error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            Failure::Usage(format!("{}: line {line} is not as profiles are written", path.display()))
        };
        let read: Self = toml::from_str(&text).map_err(wrong)?;
        if read.profiles.values().any(|profile| profile.token.is_some()) && is_open(&path) {
            return Err(Failure::Usage(format!(
                "{} holds a token and others can read it: chmod 600 it",
                path.display()
            )));
        }
        Ok(read)
    }

    /// The profile of that name, else the one that the file means; an empty one where nothing is named at all.
    ///
    /// # Errors
    /// When one is named that is not there.
    pub(crate) fn profile(self, named: Option<&str>) -> Result<Profile, Failure> {
        let named = named.or(self.profile.as_deref());
        match (self.profiles.get(named.unwrap_or(DEFAULT_PROFILE)), named) {
            (Some(profile), _) => Ok(profile.clone()),
            (None, None) => Ok(Profile::default()),
            (None, Some(_)) => {
                Err(Failure::Usage("there is no such profile; `fairway login --profile NAME` makes one".to_owned()))
            }
        }
    }

    /// The name of the profile that a login is for. One that names neither a profile nor a server renews what every other
    /// command means; a server that is given for no profile is that of `default`, so that no other is written over.
    ///
    /// # Errors
    /// When the name is empty, or a terminal would not show it as it is: nobody could name it again.
    pub(crate) fn renewed(&self, named: Option<&str>, server: Option<&str>) -> Result<String, Failure> {
        let is_name = |name: &str| !name.trim().is_empty() && plain(name) == name;
        if named.is_some_and(|name| !is_name(name)) {
            return Err(Failure::Usage("the name of a profile is a text that can be seen".to_owned()));
        }
        let current = self.profile.as_deref().filter(|_| server.is_none());
        Ok(named.or(current).unwrap_or(DEFAULT_PROFILE).to_owned())
    }

    /// Keeps a profile under a name, and makes it the one that is meant where none is named: who has just said who they are
    /// goes on as that.
    pub(crate) fn keep(&mut self, name: &str, profile: Profile) {
        self.profile = Some(name.to_owned());
        self.profiles.insert(name.to_owned(), profile);
    }

    /// The profile of that name as it is now.
    pub(crate) fn known(&self, name: &str) -> Profile {
        self.profiles.get(name).cloned().unwrap_or_default()
    }

    /// Writes the file anew, whole or not at all, for its owner alone.
    pub(crate) fn write(&self) -> Result<PathBuf, Failure> {
        let path = Self::path()?;
        let failed = |cause| Failure::Io { path: path.clone(), cause };
        let text = toml::to_string(self).map_err(|error| failed(io::Error::other(error)))?;
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .map_or_else(|| PathBuf::from("."), PathBuf::from);
        fs::create_dir_all(&folder).map_err(failed)?;
        // A temporary file can be read by its owner alone, and takes that along.
        let mut file = tempfile::NamedTempFile::new_in(&folder).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.as_file().sync_all().map_err(failed)?;
        file.persist(&path).map_err(|error| failed(error.error))?;
        Ok(path)
    }
}

/// Whether others than its owner can read the file.
fn is_open(path: &std::path::Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o077 != 0)
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}
