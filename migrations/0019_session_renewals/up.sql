-- The claim of a session's renewal: providers accept a refresh token once, so one server at a time may spend it. A claim
-- that its server did not release ends by itself.
ALTER TABLE session ADD COLUMN renewal_id uuid;
ALTER TABLE session ADD COLUMN renewal_until timestamptz;

-- Serves the deletion of sessions that ended or expired long ago.
CREATE INDEX session_by_end ON session ((least(expires_at, coalesce(ended_at, expires_at))));
