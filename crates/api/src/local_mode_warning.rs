//! The repeated warning of a server whose local mode is exposed.

use std::time::Duration;
use tokio::time::interval;

/// Time between two warnings about the exposed local mode.
const WARNING_PERIOD: Duration = Duration::from_secs(60);

/// Logs a warning at the start and each minute after, for a server whose operator accepted local mode behind proxies.
pub(crate) async fn warn_of_exposure_forever() {
    let mut minutes = interval(WARNING_PERIOD);
    loop {
        minutes.tick().await;
        tracing::warn!(
            setting = "FAIRWAY_LOCAL_MODE_EXPOSED",
            "local mode is exposed: forwarded requests are served as `anonymous`, but a proxy without forwarding \
             headers gives its clients full access"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };
    use tracing::{Event, Level, Metadata, Subscriber, span};

    /// A log subscriber that counts warnings.
    struct Warnings(Arc<AtomicUsize>);

    impl Subscriber for Warnings {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &Event<'_>) {
            if *event.metadata().level() == Level::WARN {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    #[tokio::test(start_paused = true)]
    async fn warns_at_once_and_each_minute_after() {
        let warnings = Arc::new(AtomicUsize::new(0));
        let _guard = tracing::subscriber::set_default(Warnings(Arc::clone(&warnings)));
        let almost_three_minutes = Duration::from_secs(179);
        let outcome = tokio::time::timeout(almost_three_minutes, warn_of_exposure_forever()).await;
        assert!(outcome.is_err());
        assert_eq!(warnings.load(Ordering::Relaxed), 3);
    }
}
