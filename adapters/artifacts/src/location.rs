//! The location of the artifact store, from the settings.

use std::{fmt, path::PathBuf};
use url::Url;

/// The location of the artifact store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// A directory of this machine.
    Directory(PathBuf),
    /// A bucket.
    Bucket(S3Location),
}

/// A bucket with its access settings. Credentials come only from the `AWS_*` variables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct S3Location {
    /// The bucket's name.
    pub bucket: String,
    /// The prefix of every key; may be empty.
    pub prefix: String,
    /// The address of the S3 service; `None` for Amazon S3.
    pub endpoint: Option<String>,
    /// The region; if `None`, `AWS_REGION` applies.
    pub region: Option<String>,
    /// Whether the bucket name is part of the path instead of the host name.
    pub path_style: bool,
}

/// Reason why a text is not a valid location. No variant contains the text, which may contain credentials.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LocationRefusal {
    /// The text matches neither `file:///directory` nor `s3://bucket/prefix`.
    #[error("expected `file:///directory` or `s3://bucket/prefix`")]
    Form,
    /// The address contains a user name or password.
    #[error("credentials belong into the `AWS_*` variables, not into the address")]
    Credentials,
    /// The address has an unknown query parameter.
    #[error("the only parameters are `endpoint`, `region` and `path_style`")]
    Parameter,
    /// The endpoint is not a plain http or https address.
    #[error("`endpoint` must be an http or https address without credentials")]
    Endpoint,
    /// `path_style` is neither true nor false.
    #[error("`path_style` must be `true` or `false`")]
    PathStyle,
}

impl Location {
    /// Parses `file:///directory` or `s3://bucket/prefix?endpoint=…&region=…&path_style=true`.
    ///
    /// # Errors
    /// When the text has another form or unknown parameters.
    pub fn parse(text: &str) -> Result<Self, LocationRefusal> {
        // URL parsing would turn a relative `file:` address into an absolute one, so three slashes are required.
        if text.starts_with("file:") && !text.starts_with("file:///") {
            return Err(LocationRefusal::Form);
        }
        let url = Url::parse(text).map_err(|_| LocationRefusal::Form)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(LocationRefusal::Credentials);
        }
        if url.fragment().is_some() {
            return Err(LocationRefusal::Form);
        }
        match url.scheme() {
            "file" if url.query().is_some() => Err(LocationRefusal::Parameter),
            "file" => url.to_file_path().map(Self::Directory).map_err(|()| LocationRefusal::Form),
            "s3" => S3Location::from_url(&url).map(Self::Bucket),
            _ => Err(LocationRefusal::Form),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(directory) => write!(formatter, "file:{}", directory.display()),
            Self::Bucket(bucket) => write!(formatter, "s3://{}/{}", bucket.bucket, bucket.prefix),
        }
    }
}

impl S3Location {
    fn from_url(url: &Url) -> Result<Self, LocationRefusal> {
        let bucket = url.host_str().filter(|host| !host.is_empty()).ok_or(LocationRefusal::Form)?;
        let mut location = Self {
            bucket: bucket.to_owned(),
            prefix: url.path().trim_matches('/').to_owned(),
            endpoint: None,
            region: None,
            path_style: false,
        };
        for (name, value) in url.query_pairs() {
            match name.as_ref() {
                "endpoint" => location.endpoint = Some(endpoint(&value)?),
                "region" => location.region = Some(value.into_owned()),
                "path_style" => location.path_style = value.parse().map_err(|_| LocationRefusal::PathStyle)?,
                _ => return Err(LocationRefusal::Parameter),
            }
        }
        Ok(location)
    }
}

fn endpoint(text: &str) -> Result<String, LocationRefusal> {
    let url = Url::parse(text).map_err(|_| LocationRefusal::Endpoint)?;
    let is_plain = matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
    if is_plain { Ok(text.trim_end_matches('/').to_owned()) } else { Err(LocationRefusal::Endpoint) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_directories() {
        assert_eq!(Location::parse("file:///var/lib/x"), Ok(Location::Directory("/var/lib/x".into())));
        assert_eq!(Location::parse("file:///a%20b"), Ok(Location::Directory("/a b".into())));
        for bad in ["file:relative", "file:/x", "/var/lib/x", "", "ftp://x", "file:///x?y=1", "file://host/x"] {
            assert!(Location::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn reads_buckets() {
        let location =
            Location::parse("s3://b-1/some/prefix/?endpoint=http://127.0.0.1:9000/&region=eu-1&path_style=true");
        let bucket = S3Location {
            bucket: "b-1".into(),
            prefix: "some/prefix".into(),
            endpoint: Some("http://127.0.0.1:9000".into()),
            region: Some("eu-1".into()),
            path_style: true,
        };
        assert_eq!(location, Ok(Location::Bucket(bucket.clone())));
        assert_eq!(Location::Bucket(bucket).to_string(), "s3://b-1/some/prefix");
        for (bad, refusal) in [
            ("s3://", LocationRefusal::Form),
            ("s3://key:secret@b", LocationRefusal::Credentials),
            ("s3://b?secret=1", LocationRefusal::Parameter),
            ("s3://b?endpoint=gopher://x", LocationRefusal::Endpoint),
            ("s3://b?endpoint=https://k:s@x", LocationRefusal::Endpoint),
            ("s3://b?path_style=yes", LocationRefusal::PathStyle),
        ] {
            assert_eq!(Location::parse(bad), Err(refusal), "{bad}");
        }
    }
}
