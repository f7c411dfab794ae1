//! Commands for notifications: the inbox, preferences, destinations and deliveries.

mod destination;
mod watch;

use crate::{
    command_context::CommandContext,
    dynamic_completion,
    failure::Failure,
    http_client::{Method, ServerClient, string_or_empty},
    output::{Column, Output},
    workload::find_workload,
};
use clap::{Args, Subcommand, builder::PossibleValuesParser};
use fairway_domain::{
    notification::{Channel, delivery::DeliveryStatus, inbox::InboxStatus},
    notification_category::NotificationCategory,
};
use serde_json::{Value, json};

const INBOX_COLUMNS: [Column; 5] = [
    ("NOTIFICATION", "/notification_id"),
    ("STATUS", "/status"),
    ("SEVERITY", "/severity"),
    ("TITLE", "/title"),
    ("CREATED", "/created_at"),
];
const PREFERENCE_COLUMNS: [Column; 3] = [("CATEGORY", "/category"), ("CHANNEL", "/channel"), ("ENABLED", "/enabled")];
const EFFECTIVE_COLUMNS: [Column; 3] = [("CHANNEL", "/channel"), ("ENABLED", "/enabled"), ("DECIDED BY", "/scope")];
const DELIVERY_COLUMNS: [Column; 9] = [
    ("CREATED", "/created_at"),
    ("CHANNEL", "/channel"),
    ("TO", "/to"),
    ("EVENT", "/source_event/kind"),
    ("STATUS", "/status"),
    ("ATTEMPTS", "/attempt_count"),
    ("LAST ERROR", "/last_error"),
    ("NEXT", "/next_retry_at"),
    ("DELIVERY", "/delivery_id"),
];
const SUPPRESSED_COLUMNS: [Column; 9] = [
    ("CREATED", "/created_at"),
    ("RECIPIENT", "/recipient"),
    ("CATEGORY", "/category"),
    ("REASON", "/reason_code"),
    ("SCOPE", "/scope"),
    ("CHANNEL", "/channel"),
    ("NO RECEIVER", "/unreachable_channels"),
    ("EVENT", "/source_event/kind"),
    ("EVENT ID", "/source_event/id"),
];

/// The subcommands of `fairway notifications`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List your notifications, newest first
    #[command(after_help = "Example:\n  fairway notifications inbox --status unread")]
    Inbox {
        /// Only this status
        #[arg(long, value_parser = inbox_statuses())]
        status: Option<String>,
        /// Only this category
        #[arg(long, value_parser = categories())]
        category: Option<String>,
    },
    /// Mark a notification as read, unread or archived, or all as read
    #[command(
        after_help = "Examples:\n  fairway notifications mark --all\n  fairway notifications mark ID --status archived"
    )]
    Mark {
        /// The notification's id
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        notification: Option<String>,
        /// Mark all notifications as read
        #[arg(long)]
        all: bool,
        /// The new status
        #[arg(long, default_value = "read", value_parser = inbox_statuses())]
        status: String,
    },
    /// Print new notifications as they arrive
    #[command(after_help = "Example:\n  fairway notifications watch")]
    Watch {
        /// End after this number of notifications
        #[arg(long)]
        count: Option<usize>,
    },
    /// Show your preferences, or set one
    #[command(after_help = "Examples:\n  fairway notifications preferences\n  \
        fairway notifications preferences --category incidents --channel email --on")]
    Preferences(PreferenceArguments),
    /// Explain on which channels a category reaches you in the workspace, and what decides
    #[command(after_help = "Examples:\n  fairway notifications explain incidents\n  \
        fairway notifications explain incidents --workload ticket-classifier --env production")]
    Explain {
        /// The category
        #[arg(value_parser = categories())]
        category: String,
        /// The workload whose events are explained
        #[arg(long, value_name = "SLUG", add = dynamic_completion::workloads())]
        workload: Option<String>,
        /// The environment of the workload whose events are explained
        #[arg(long = "env", value_name = "NAME", requires = "workload")]
        environment: Option<String>,
    },
    /// Manage destinations: shared webhooks, chats, pagers and mailboxes
    #[command(subcommand, alias = "destination")]
    Destinations(destination::Command),
    /// List deliveries outside the inbox, newest first, or retry a failed one
    #[command(after_help = "Examples:\n  fairway notifications deliveries --status failed\n  \
        fairway notifications deliveries --destination ID\n  \
        fairway notifications deliveries --retry ID")]
    Deliveries(DeliveryArguments),
    /// List the records of notifications that were not delivered, and why
    #[command(after_help = "Example:\n  fairway notifications suppressed --recipient user:ada")]
    Suppressed {
        /// Only records of this recipient
        #[arg(long)]
        recipient: Option<String>,
        /// Only records about this event of the audit log
        #[arg(long, value_name = "ID")]
        event: Option<String>,
        /// Only those of the selected workspace
        #[arg(long)]
        in_workspace: bool,
    },
    /// Announce a text to everybody, or to the holders of roles
    #[command(
        after_help = "Example:\n  fairway notifications announce 'Maintenance' 'Tonight from ten.' --role viewer"
    )]
    Announce {
        /// The title, which is one line
        title: String,
        /// The text
        body: String,
        /// Only holders of this role; repeat for several
        #[arg(long = "role")]
        roles: Vec<String>,
    },
}

/// The preference to set. Without a category, the command lists all preferences.
#[derive(Args)]
pub(crate) struct PreferenceArguments {
    /// The category
    #[arg(long, value_parser = categories(), requires = "channel")]
    category: Option<String>,
    /// The channel
    #[arg(long, value_parser = PossibleValuesParser::new(Channel::ALL.iter().map(|channel| channel.as_str())), requires = "category")]
    channel: Option<String>,
    /// Turn the channel on
    #[arg(long, conflicts_with = "off", requires = "category")]
    on: bool,
    /// Turn the channel off
    #[arg(long, requires = "category")]
    off: bool,
    /// Set the preference only in the selected workspace
    #[arg(long)]
    in_workspace: bool,
}

/// Filters of the listed deliveries, or the delivery to retry.
#[derive(Args)]
pub(crate) struct DeliveryArguments {
    /// Only this status
    #[arg(long, value_parser = PossibleValuesParser::new(DeliveryStatus::ALL.iter().map(|status| status.as_str())))]
    status: Option<String>,
    /// Only deliveries to this destination
    #[arg(long, value_name = "ID")]
    destination: Option<String>,
    /// Only those of the selected workspace
    #[arg(long)]
    in_workspace: bool,
    /// Attempt this failed delivery once more
    #[arg(long, value_name = "ID", conflicts_with_all = ["status", "destination", "in_workspace"])]
    retry: Option<String>,
}

fn categories() -> PossibleValuesParser {
    PossibleValuesParser::new(NotificationCategory::ALL.iter().map(|category| category.as_str()))
}

fn inbox_statuses() -> PossibleValuesParser {
    PossibleValuesParser::new(InboxStatus::ALL.iter().map(|status| status.as_str()))
}

pub(crate) fn run(command: &Command, context: &CommandContext) -> Result<(), Failure> {
    let (output, server) = context.open()?;
    match command {
        Command::Inbox { status, category } => {
            let query = given_parameters([("status", status.as_deref()), ("category", category.as_deref())]);
            output.list(&server.list(&["notifications", "inbox"], &query)?, &INBOX_COLUMNS)
        }
        Command::Mark { notification: Some(id), status, .. } => {
            let path = ["notifications", "inbox", id];
            let changed = server.update(&Method::PATCH, &path, &json!({ "status": status }))?;
            output.change_result(&changed, "fairway notifications inbox")
        }
        Command::Mark { notification: None, .. } => {
            let marked = server.post(&["notifications", "inbox", "read-all"], &json!({}))?;
            output.change_result(&marked, "fairway notifications inbox")
        }
        Command::Watch { count } => watch::run(&server, output, *count),
        Command::Preferences(arguments) => {
            let current = preferences(&server, arguments)?;
            output.list(&current, &PREFERENCE_COLUMNS)
        }
        Command::Explain { category, workload, environment } => {
            let workload = workload.as_deref().map(|slug| find_workload(&server, slug)).transpose()?;
            let workload = workload.as_ref().map(|found| string_or_empty(found, "workload_id"));
            // The request names the workspace, because its preferences take precedence over those for all workspaces.
            let query = given_parameters([
                ("category", Some(category.as_str())),
                ("workspace_id", Some(server.workspace_id()?)),
                ("workload_id", workload),
                ("environment", environment.as_deref()),
            ]);
            let path = ["notifications", "preferences", "effective"];
            output.list(&items(server.get(&path, &query)?), &EFFECTIVE_COLUMNS)
        }
        Command::Destinations(command) => destination::run(command, &server, output),
        Command::Deliveries(arguments) => deliveries(&server, output, arguments),
        Command::Suppressed { recipient, event, in_workspace } => {
            let workspace = in_workspace.then(|| server.workspace_id()).transpose()?;
            let query = given_parameters([
                ("recipient", recipient.as_deref()),
                ("source_event_id", event.as_deref()),
                ("workspace_id", workspace),
            ]);
            output.list(&server.list(&["notifications", "suppressed-decisions"], &query)?, &SUPPRESSED_COLUMNS)
        }
        Command::Announce { title, body, roles } => {
            let body = json!({ "title": title, "body": body, "audience": { "roles": roles, "workspaces": [] } });
            output
                .change_result(&server.post(&["notifications", "announcements"], &body)?, "fairway notifications inbox")
        }
    }
}

/// Lists deliveries, or retries one.
fn deliveries(server: &ServerClient, output: Output, arguments: &DeliveryArguments) -> Result<(), Failure> {
    let DeliveryArguments { status, destination, in_workspace, retry } = arguments;
    if let Some(id) = retry {
        let path = ["notifications", "deliveries", id, "retry"];
        return output.change_result(&server.post(&path, &json!({}))?, "fairway notifications deliveries");
    }
    let workspace = in_workspace.then(|| server.workspace_id()).transpose()?;
    let query = given_parameters([
        ("status", status.as_deref()),
        ("destination_id", destination.as_deref()),
        ("workspace_id", workspace),
    ]);
    let mut found = server.list(&["notifications", "deliveries"], &query)?;
    if output.is_for_people() {
        // A delivery has either a recipient or a destination. The table shows both in one column.
        for delivery in &mut found {
            let receiver = ["recipient", "destination_id"].iter().find_map(|name| delivery.get(*name)?.as_str());
            let receiver = receiver.unwrap_or_default().to_owned();
            if let Value::Object(members) = delivery {
                members.insert("to".to_owned(), Value::String(receiver));
            }
        }
    }
    output.list(&found, &DELIVERY_COLUMNS)
}

/// The query parameters whose value is given.
fn given_parameters<'a, const N: usize>(filters: [(&'static str, Option<&'a str>); N]) -> Vec<(&'static str, &'a str)> {
    filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Sets the preference in the arguments, if any, and returns all preferences of the caller.
fn preferences(server: &ServerClient, arguments: &PreferenceArguments) -> Result<Vec<Value>, Failure> {
    let PreferenceArguments { category, channel, on, off, in_workspace } = arguments;
    let mut path = vec!["notifications"];
    if *in_workspace {
        path.extend(["workspaces", server.workspace_id()?]);
    }
    path.push("preferences");
    match (category, channel) {
        (Some(category), Some(channel)) if *on || *off => {
            let set = json!([{ "category": category, "channel": channel, "enabled": on }]);
            Ok(items(server.update(&Method::PUT, &path, &set)?))
        }
        (None, None) => Ok(items(server.get(&path, &[])?)),
        _ => Err(Failure::Usage("a preference needs --category, --channel, and --on or --off".to_owned())),
    }
}

/// The items of an array; none for any other value.
fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => Vec::new(),
    }
}
