-- The channels of suppressed notifications.

ALTER TABLE suppressed_decision
    -- The channel whose setting decided. Null where a setting of the tenant decided.
    ADD COLUMN deciding_channel text CHECK (deciding_channel IN
        ('portal', 'email', 'chat_a', 'chat_b', 'chat_c', 'paging', 'webhook')),
    -- The channels that were on for the recipient and had no receiver.
    ADD COLUMN unreachable_channels text[] NOT NULL DEFAULT '{}';
