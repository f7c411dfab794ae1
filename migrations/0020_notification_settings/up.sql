-- The times of notification settings, and the daily checks of connections.

-- When a notification setting was last turned on, by the clock that dates facts. Facts of the time before produce no
-- notification in that setting, even if they are projected later; null if it was never turned on.
ALTER TABLE tenant ADD COLUMN notifications_on_since timestamptz;
ALTER TABLE tenant ADD COLUMN advanced_notifications_on_since timestamptz;

-- The connections whose daily check is due.
CREATE INDEX connection_by_check ON connection (coalesce(checked_at, updated_at))
    WHERE status = 'active' AND endpoint IS NOT NULL AND connector_kind <> 'other';
