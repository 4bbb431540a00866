-- Return the instant at which a cell of a pool begins; NULL where there is no such cell.
CREATE OR REPLACE FUNCTION penstock.cell_at(in_pool integer, cell bigint) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT penstock.from_micros(
        number / capacity * window_us + (number % capacity * window_us + capacity - 1) / capacity)
    FROM penstock.slot_stretch
    CROSS JOIN LATERAL (SELECT cell - first_cell + base AS number) AS n
    WHERE pool_id = in_pool AND first_cell <= cell AND last_cell >= cell
    ORDER BY first_cell DESC
    LIMIT 1
$$;
