-- Drops one month of what people and models said whose time is over, the oldest, and answers with its name; null when
-- there is none. Run by the owner daily, until it says so.
--
-- A month's time is over when it ended longer ago than answers are kept. The day on top is for runs that began in its last
-- hours and ended in the next. Last month stays in any case: the months of a lagging clock are made again.
--
-- Dropping needs the whole family for a moment, and whoever comes while it waits for that waits behind it. So it gives up
-- soon (55P03) and is asked again later; what it does once it has the family is a matter of milliseconds, because the
-- files go after the locks. One month a call, so that the next one begins with nothing held. Two that run at once take
-- turns by the lock that months are made under.
CREATE FUNCTION fairway_expire_payloads(kept interval) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE
    over text;
    month timestamp := date_trunc('month', fairway_now() AT TIME ZONE 'UTC');
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('fairway_make_partitions'));
    -- Listed first: a plan is free to read the month out of any relation's name before it knows whose child that is.
    WITH children AS MATERIALIZED (
        SELECT pg_class.relname AS child FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
        WHERE inhparent = ANY(fairway_payload_families()::regclass[])
    )
    SELECT child INTO over
    FROM (SELECT child, to_date(right(child, 6), 'YYYYMM')::timestamp AS start FROM children) AS months
    WHERE start < month - interval '1 month'
        AND (start + interval '1 month') AT TIME ZONE 'UTC' + interval '1 day' + kept < fairway_now()
    ORDER BY start, child LIMIT 1;
    IF over IS NOT NULL THEN
        EXECUTE format('DROP TABLE %I', over);
    END IF;
    RETURN over;
END
$$;
REVOKE ALL ON FUNCTION fairway_expire_payloads(interval) FROM PUBLIC;
