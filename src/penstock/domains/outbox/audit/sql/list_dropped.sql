-- The months that the chain says were removed, whether the entry names as many rows as their seals had,
-- and whether the partition of the month is still there. Single rows of it are found as inserted.
SELECT s.seal_no, s.month, s.row_count, s.row_count = (
        SELECT coalesce(sum(e.row_count), 0) FROM penstock.outbox_seal AS e
        WHERE e.month = s.month AND e.kind <> 'dropped' AND e.seal_no < s.seal_no
    ) AS is_count_right,
    to_regclass('penstock.outbox_attempt_' || to_char(s.month, 'YYYYMM')) IS NOT NULL
        AS is_present
FROM penstock.outbox_seal AS s
WHERE s.kind = 'dropped'
ORDER BY s.seal_no;
