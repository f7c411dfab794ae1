//! Commands for share links, which open one workload for a limited time and number of runs.

use crate::{
    completion,
    failure::{Candidate, Failure},
    output::{Column, eprint, print},
    server::{Server, required_string, string_or_empty},
    session::Session,
    text::{sanitize, shorten},
    workload::find_workload,
};
use clap::{Subcommand, builder::PossibleValuesParser};
use fairway_domain::{
    release::lane::Lane,
    share_link::{DEFAULT_MAX_USES, DEFAULT_TTL_HOURS, TTL_HOURS, USE_LIMITS},
};
use serde_json::{Value, json};

const COLUMNS: [Column; 6] = [
    ("LINK", "/share_link_id"),
    ("LABEL", "/label"),
    ("USED", "/use_count"),
    ("OF", "/max_uses"),
    ("EXPIRES", "/expires_at"),
    ("REVOKED", "/revoked"),
];

/// Share link commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create a share link, and print its whole address, which the server shows only once
    #[command(after_help = "Example:\n  fairway share-links create ticket-classifier --label 'For Tina' --hours 48")]
    Create {
        /// The workload's slug or id
        #[arg(add = completion::workloads())]
        workload: String,
        /// The lifetime in hours
        #[arg(long, value_name = "HOURS", default_value_t = DEFAULT_TTL_HOURS,
            value_parser = clap::value_parser!(u32).range(i64::from(*TTL_HOURS.start())..=i64::from(*TTL_HOURS.end())))]
        hours: u32,
        /// The maximum number of runs
        #[arg(long, value_name = "RUNS", default_value_t = DEFAULT_MAX_USES,
            value_parser = clap::value_parser!(u32).range(i64::from(*USE_LIMITS.start())..=i64::from(*USE_LIMITS.end())))]
        max_uses: u32,
        /// A label for those who manage the link
        #[arg(long)]
        label: Option<String>,
        /// The lane of its runs
        #[arg(long, value_parser = PossibleValuesParser::new(Lane::ALL.map(Lane::as_str)))]
        lane: Option<String>,
    },
    /// List the share links of a workload, newest first
    #[command(after_help = "Example:\n  fairway share-links list ticket-classifier")]
    List {
        /// The workload's slug or id
        #[arg(add = completion::workloads())]
        workload: String,
    },
    /// Revoke a share link with immediate effect
    #[command(after_help = "Example:\n  fairway share-links revoke ticket-classifier 'For Tina'")]
    Revoke {
        /// The workload's slug or id
        #[arg(add = completion::workloads())]
        workload: String,
        /// The link's id, the unique beginning of its id, or its label
        link: String,
    },
}

pub(crate) fn run(command: &Command, session: &Session) -> Result<(), Failure> {
    let (output, server) = session.open()?;
    match command {
        Command::Create { workload, hours, max_uses, label, lane } => {
            let workload = find_workload(&server, workload)?;
            let mut body = json!({ "ttl_hours": hours, "max_uses": max_uses });
            if let Some(members) = body.as_object_mut() {
                members.extend(label.as_ref().map(|label| ("label".to_owned(), json!(label))));
                members.extend(lane.as_ref().map(|lane| ("lane".to_owned(), json!(lane))));
            }
            let mut made = server.post(&path(&workload)?, &body)?;
            let slug = required_string(&workload, "slug")?;
            let address =
                server.page_address(&["workload-runtime", slug], &[("token", required_string(&made, "token")?)])?;
            if !output.is_for_people() {
                if let Some(members) = made.as_object_mut() {
                    members.insert("address".to_owned(), json!(address));
                }
                return output.one(&made);
            }
            print(&address)?;
            eprint("the address contains the link's token, which cannot be shown again");
            output.hint(&format!("fairway share-links revoke {slug} {}", required_string(&made, "share_link_id")?));
            Ok(())
        }
        Command::List { workload } => {
            let workload = find_workload(&server, workload)?;
            output.list(&server.list(&path(&workload)?, &[])?, &COLUMNS)
        }
        Command::Revoke { workload, link } => {
            let workload = find_workload(&server, workload)?;
            let id = find_link(&server, &workload, link)?;
            let path = ["workloads", required_string(&workload, "workload_id")?, "share-links", &id];
            server.delete(&path)?;
            output.changed(
                &server.get(&path, &[])?,
                &format!("fairway share-links list {}", string_or_empty(&workload, "slug")),
            )
        }
    }
}

fn path(workload: &Value) -> Result<[&str; 3], Failure> {
    Ok(["workloads", required_string(workload, "workload_id")?, "share-links"])
}

/// Finds a link by its id, the unique beginning of its id, or its label. Revoked links have their labels no more.
fn find_link(server: &Server, workload: &Value, reference: &str) -> Result<String, Failure> {
    let links = server.list(&path(workload)?, &[])?;
    let fits = |link: &&Value| {
        let is_revoked = link.get("revoked").and_then(Value::as_bool).unwrap_or_default();
        string_or_empty(link, "share_link_id").starts_with(reference)
            || (string_or_empty(link, "label") == reference && !is_revoked)
    };
    let candidate = |link: &Value| Candidate {
        name: string_or_empty(link, "share_link_id").to_owned(),
        note: link.get("label").and_then(Value::as_str).map(str::to_owned),
    };
    match links.iter().filter(fits).collect::<Vec<_>>().as_slice() {
        [only] => required_string(only, "share_link_id").map(str::to_owned),
        several => {
            let name = shorten(&sanitize(reference)).into_owned();
            let message = match several.len() {
                0 => format!("the workload has no share link `{name}`; `fairway share-links list` lists all"),
                count => format!("`{name}` fits {count} share links"),
            };
            Err(Failure::Unknown { message, candidates: several.iter().take(5).map(|link| candidate(link)).collect() })
        }
    }
}
