-- The filters of suppressed decisions by recipient and by source event. A fact has at most 1,000 recipients, so one index
-- serves each combination with the source event.
CREATE INDEX suppressed_decision_by_recipient ON suppressed_decision (tenant_id, recipient, suppressed_decision_id);
CREATE INDEX suppressed_decision_by_both
    ON suppressed_decision (tenant_id, workspace_id, recipient, suppressed_decision_id);
CREATE INDEX suppressed_decision_by_event ON suppressed_decision (tenant_id, event_id, suppressed_decision_id);
