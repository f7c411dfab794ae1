//! Notifications: inboxes, preferences, records of suppressed notifications, and the projection of facts.

mod inbox;
mod preference;
mod projection;
mod suppressed;
