//! The source of a server's address (option, profile or default), for messages about failed connections.

use crate::{command_context::DEFAULT_SERVER, command_line::SERVER_VARIABLE};
use std::io::ErrorKind;

/// The source of a server's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AddressSource {
    /// The default address, because neither an option nor the profile contains an address.
    Default,
    /// The profile of the command.
    Profile,
    /// The option `--server` or its environment variable.
    Option,
}

impl AddressSource {
    /// Determines the source from the address of the command line and the address of the profile.
    pub(crate) const fn of(given: Option<&String>, profile: Option<&String>) -> Self {
        match (given, profile) {
            (Some(_), _) => Self::Option,
            (None, Some(_)) => Self::Profile,
            (None, None) => Self::Default,
        }
    }

    /// The end of a message about a failed connection: the source of the address, and the next step.
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

/// Whether the connection failed, which means that the server is not running or the address is wrong.
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
