-- Return where the cells of spans are: one row per cell, with its rank and its stretch.
CREATE OR REPLACE FUNCTION penstock.span_places(
    in_pool integer, ranks bigint[], cells bigint[], counts bigint[]
) RETURNS TABLE (
    rank bigint, cell bigint, window_start bigint, offset_us bigint, window_us bigint,
    config_id integer, spacing text, starts_at timestamptz, ends_at timestamptz
)
LANGUAGE sql STABLE AS $$
    SELECT span.rank + place.cell - span.cell, place.cell,
        number / capacity * window_us,
        (number % capacity * window_us + capacity - 1) / capacity,
        window_us, config_id, spacing, starts_at, ends_at
    FROM unnest(ranks, cells, counts) AS span (rank, cell, count)
    CROSS JOIN LATERAL (
        SELECT * FROM penstock.slot_stretch
        WHERE pool_id = in_pool AND first_cell < span.cell + span.count
            AND first_cell >= (
                SELECT first_cell FROM penstock.slot_stretch
                WHERE pool_id = in_pool AND first_cell <= span.cell
                ORDER BY first_cell DESC
                LIMIT 1)
    ) AS stretch
    CROSS JOIN LATERAL generate_series(
        greatest(span.cell, stretch.first_cell),
        least(span.cell + span.count - 1, stretch.last_cell)) AS place (cell)
    CROSS JOIN LATERAL (SELECT place.cell - first_cell + base AS number) AS n
$$;
