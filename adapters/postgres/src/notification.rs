//! Notifications: inboxes, preferences, destinations, records of suppressed notifications, and the projection of facts.

mod destination;
mod inbox;
mod preference;
mod projection;
mod suppressed;
