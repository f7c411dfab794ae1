//! Commands for share links, which open one workload for a limited time and number of runs.

use crate::{
    command_context::CommandContext,
    dynamic_completion,
    failure::{Candidate, Failure},
    http_client::{ServerClient, required_string, string_or_empty},
    output::{Column, eprint, print},
    terminal_text::{sanitize, shorten},
    workload::find_workload,
};
use clap::{Subcommand, builder::PossibleValuesParser};
use fairway_domain::{
    release::lane::Lane,
    share_link::{ALLOWED_MAX_USES, ALLOWED_TTL_HOURS, DEFAULT_MAX_USES, DEFAULT_TTL_HOURS},
};
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

const COLUMNS: [Column; 6] = [
    ("LINK", "/share_link_id"),
    ("LABEL", "/label"),
    ("USED", "/use_count"),
    ("OF", "/max_uses"),
    ("EXPIRES", "/expires_at"),
    ("STATE", "/state"),
];

/// The subcommands of `fairway share-links`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create a share link, and print its whole address, which the server shows only once
    #[command(after_help = "Example:\n  fairway share-links create ticket-classifier --label 'For Tina' --hours 48")]
    Create {
        /// The workload's slug or id
        #[arg(add = dynamic_completion::workloads())]
        workload: String,
        /// The lifetime in hours
        #[arg(long, value_name = "HOURS", default_value_t = DEFAULT_TTL_HOURS,
            value_parser = clap::value_parser!(u32).range(i64::from(*ALLOWED_TTL_HOURS.start())..=i64::from(*ALLOWED_TTL_HOURS.end())))]
        hours: u32,
        /// The maximum number of runs; without it, the link opens one run
        #[arg(long, value_name = "RUNS", default_value_t = DEFAULT_MAX_USES,
            value_parser = clap::value_parser!(u32).range(i64::from(*ALLOWED_MAX_USES.start())..=i64::from(*ALLOWED_MAX_USES.end())))]
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
        #[arg(add = dynamic_completion::workloads())]
        workload: String,
    },
    /// Revoke a share link with immediate effect
    #[command(after_help = "Example:\n  fairway share-links revoke ticket-classifier 'For Tina'")]
    Revoke {
        /// The workload's slug or id
        #[arg(add = dynamic_completion::workloads())]
        workload: String,
        /// The link's id, the unique beginning of its id, or its label
        link: String,
    },
}

pub(crate) fn run(command: &Command, context: &CommandContext) -> Result<(), Failure> {
    let (output, server) = context.open()?;
    match command {
        Command::Create { workload, hours, max_uses, label, lane } => {
            let workload = find_workload(&server, workload)?;
            let mut body = json!({ "ttl_hours": hours, "max_uses": max_uses });
            if let Some(members) = body.as_object_mut() {
                members.extend(label.as_ref().map(|label| ("label".to_owned(), json!(label))));
                members.extend(lane.as_ref().map(|lane| ("lane".to_owned(), json!(lane))));
            }
            let mut created = server.post(&path(&workload)?, &body)?;
            let slug = required_string(&workload, "slug")?;
            let address = server
                .portal_page_address(&["workload-runtime", slug], &[("token", required_string(&created, "token")?)])?;
            if !output.is_for_people() {
                if let Some(members) = created.as_object_mut() {
                    members.insert("address".to_owned(), json!(address));
                }
                return output.record(&created);
            }
            print(&address)?;
            eprint("the address contains the link's token, which cannot be shown again");
            output.hint(&format!("fairway share-links revoke {slug} {}", required_string(&created, "share_link_id")?));
            Ok(())
        }
        Command::List { workload } => {
            let workload = find_workload(&server, workload)?;
            let mut links = server.list(&path(&workload)?, &[])?;
            if output.is_for_people() {
                add_states(&mut links, OffsetDateTime::now_utc());
            }
            output.list(&links, &COLUMNS)
        }
        Command::Revoke { workload, link } => {
            let workload = find_workload(&server, workload)?;
            let link = find_link(&server, &workload, link)?;
            if is_revoked(&link) {
                eprint("the link is revoked already");
                return output.record(&link);
            }
            let id = required_string(&link, "share_link_id")?;
            let path = ["workloads", required_string(&workload, "workload_id")?, "share-links", id];
            server.delete(&path)?;
            output.change_result(
                &server.get(&path, &[])?,
                &format!("fairway share-links list {}", string_or_empty(&workload, "slug")),
            )
        }
    }
}

fn path(workload: &Value) -> Result<[&str; 3], Failure> {
    Ok(["workloads", required_string(workload, "workload_id")?, "share-links"])
}

/// Adds the state of each link for the table. The server's response has no state.
fn add_states(links: &mut [Value], now: OffsetDateTime) {
    for link in links {
        let state = link_state(link, now);
        if let Some(members) = link.as_object_mut() {
            members.insert("state".to_owned(), json!(state));
        }
    }
}

/// Why a link starts no run, in the server's order of precedence; `active` if it starts runs.
fn link_state(link: &Value, now: OffsetDateTime) -> &'static str {
    let number = |name: &str| link.get(name).and_then(Value::as_u64);
    let expires_at = OffsetDateTime::parse(string_or_empty(link, "expires_at"), &Rfc3339);
    if is_revoked(link) {
        return "revoked";
    }
    if expires_at.is_ok_and(|expiry| expiry <= now) {
        return "expired";
    }
    let is_used_up = number("use_count").zip(number("max_uses")).is_some_and(|(used, limit)| used >= limit);
    if is_used_up { "used up" } else { "active" }
}

fn is_revoked(link: &Value) -> bool {
    link.get("revoked").and_then(Value::as_bool).unwrap_or_default()
}

/// Finds a link by its id, the unique beginning of its id, or its label.
fn find_link(server: &ServerClient, workload: &Value, reference: &str) -> Result<Value, Failure> {
    choose_link(&server.list(&path(workload)?, &[])?, reference)
}

/// The link that matches a reference. The label of a revoked link matches only if no other link does.
fn choose_link(links: &[Value], reference: &str) -> Result<Value, Failure> {
    let has_label = |link: &Value| string_or_empty(link, "label") == reference;
    let fits = |link: &&Value| {
        string_or_empty(link, "share_link_id").starts_with(reference) || (has_label(link) && !is_revoked(link))
    };
    let candidate = |link: &Value| Candidate {
        name: string_or_empty(link, "share_link_id").to_owned(),
        note: link.get("label").and_then(Value::as_str).map(str::to_owned),
    };
    match links.iter().filter(fits).collect::<Vec<_>>().as_slice() {
        [only] => Ok((*only).clone()),
        several => {
            if let (true, Some(revoked)) = (several.is_empty(), links.iter().find(|link| has_label(link))) {
                return Ok(revoked.clone());
            }
            let name = shorten(&sanitize(reference)).into_owned();
            let message = match several.len() {
                0 => format!("the workload has no share link `{name}`; `fairway share-links list` lists all"),
                count => format!("`{name}` fits {count} share links"),
            };
            Err(Failure::Unknown { message, candidates: several.iter().take(5).map(|link| candidate(link)).collect() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_why_a_link_starts_no_run() {
        let now = OffsetDateTime::parse("2026-03-31T12:00:00Z", &Rfc3339).unwrap();
        for (used, expires_at, revoked, expected) in [
            (0, "2026-04-01T12:00:00Z", false, "active"),
            (1, "2026-04-01T12:00:00Z", false, "used up"),
            (1, "2026-03-31T12:00:00Z", false, "expired"),
            (1, "2026-03-31T11:00:00Z", true, "revoked"),
        ] {
            let link = json!({ "use_count": used, "max_uses": 1, "expires_at": expires_at, "revoked": revoked });
            let mut links = [link];
            add_states(&mut links, now);
            assert_eq!(links[0]["state"], expected, "{links:?}");
        }
    }

    #[test]
    fn finds_a_revoked_link_by_its_label_unless_another_has_the_label() {
        let link = |id: &str, revoked: bool| json!({ "share_link_id": id, "label": "For Tina", "revoked": revoked });
        let links = [link("019b", false), link("019a", true)];
        let choose = |links: &[Value], reference: &str| choose_link(links, reference).unwrap()["share_link_id"].clone();
        assert_eq!(choose(&links, "For Tina"), "019b");
        assert_eq!(choose(&links, "019a"), "019a");
        let revoked = choose_link(&links[1..], "For Tina").unwrap();
        assert!(is_revoked(&revoked), "{revoked}");
        assert!(choose_link(&links, "019").unwrap_err().to_string().contains("fits 2 share links"));
        assert!(choose_link(&links, "For Bea").unwrap_err().to_string().contains("has no share link"));
    }
}
