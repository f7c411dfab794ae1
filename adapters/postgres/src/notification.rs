//! Notifications: inboxes, preferences, profiles, destinations, deliveries, announcements, records of suppressed
//! notifications, and the projection of facts.

mod announcement;
mod backlog;
mod delivery;
mod destination;
mod inbox;
mod outbox;
mod preference;
mod profile;
mod projection;
mod suppressed;
