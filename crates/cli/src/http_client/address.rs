//! The origin of a server's address, for messages about failed connections.

use crate::{command_context::DEFAULT_SERVER, command_line::SERVER_VARIABLE};
use std::io::ErrorKind;

/// Where the address of a server comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AddressSource {
    /// Nothing names an address.
    Default,
    /// The profile.
    Profile,
    /// The option `--server` or its variable.
    Option,
}

impl AddressSource {
    /// The source of the address that the command line and the profile give.
    pub(crate) const fn of(given: Option<&String>, profile: Option<&String>) -> Self {
        match (given, profile) {
            (Some(_), _) => Self::Option,
            (None, Some(_)) => Self::Profile,
            (None, None) => Self::Default,
        }
    }

    /// The end of a message about a failed connection: the source of the address, and what to do.
    pub(super) fn describe(self) -> String {
        match self {
            Self::Default => format!(
                "{DEFAULT_SERVER} is the default: start the server, or store the address of another one with `fairway \
                 login --server URL`"
            ),
            Self::Profile => {
                "the address is from the profile: start the server, or store another address with `fairway \
                              login --server URL`"
                    .to_owned()
            }
            Self::Option => {
                format!("the address is from `--server` or {SERVER_VARIABLE}: start the server, or correct the address")
            }
        }
    }
}

/// Whether no connection was made, so that the server is not running or the address is wrong.
pub(super) fn is_failed_connection(error: &ureq::Error) -> bool {
    if let ureq::Error::Io(cause) = error {
        return cause.kind() == ErrorKind::ConnectionRefused;
    }
    matches!(
        error,
        ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed
            | ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_source_of_the_address() {
        let address = "http://127.0.0.1:9".to_owned();
        for (given, profile, expected) in [
            (None, None, "is the default: start the server, or store"),
            (None, Some(&address), "is from the profile: start the server, or store"),
            (Some(&address), Some(&address), "is from `--server` or FAIRWAY_CLI_SERVER: start the server"),
        ] {
            let text = AddressSource::of(given, profile).describe();
            assert!(text.contains(expected), "{text}");
        }
    }
}
