//! stub
use crate::{failure::Failure, session::Session};
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Test,
}
pub(crate) fn run(_: &Command, _: &Session) -> Result<(), Failure> {
    Ok(())
}
