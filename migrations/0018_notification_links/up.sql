-- The path of the console's page about the subject of a notification, digests of announcements, and further filters of
-- suppressed decisions.

ALTER TABLE notification ADD COLUMN link text;
ALTER TABLE notification_delivery ADD COLUMN link text;
-- The salt of the digest of the text, which the fact of the announcement holds. Without it, the digest would let anybody
-- check a guess of a text that was erased.
ALTER TABLE announcement ADD COLUMN text_salt bytea CHECK (length(text_salt) = 16);

-- The filters of suppressed decisions by recipient and by source event. A fact has at most 1,000 recipients, so one index
-- serves each combination with the source event.
CREATE INDEX suppressed_decision_by_recipient ON suppressed_decision (tenant_id, recipient, suppressed_decision_id);
CREATE INDEX suppressed_decision_by_both
    ON suppressed_decision (tenant_id, workspace_id, recipient, suppressed_decision_id);
CREATE INDEX suppressed_decision_by_event ON suppressed_decision (tenant_id, event_id, suppressed_decision_id);
