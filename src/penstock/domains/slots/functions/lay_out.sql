-- Return when and where the events of spans are scheduled, one row per event. Declared STABLE only
-- so that it is inlined; with random spacing it is volatile.
CREATE OR REPLACE FUNCTION penstock.lay_out(
    in_pool integer, now_at timestamptz, span_ranks bigint[], span_cells bigint[],
    span_counts bigint[], event_ids text[], requested_ats timestamptz[], indexes bigint[]
) RETURNS TABLE (
    index bigint, event_id text, requested_at timestamptz, scheduled_at timestamptz,
    window_at timestamptz, "position" bigint, config_id integer
)
LANGUAGE sql STABLE AS $$
    SELECT w.index, w.event_id, w.requested_at,
        penstock.from_micros(CASE spacing
            WHEN 'even' THEN window_start + offset_us
            ELSE penstock.jittered(
                greatest(
                    window_start, penstock.to_micros(starts_at),
                    penstock.to_micros(w.requested_at), penstock.to_micros(now_at)),
                least(window_start + window_us, penstock.to_micros(ends_at)))
        END),
        penstock.from_micros(window_start), offset_us, place.config_id
    FROM penstock.span_places(in_pool, span_ranks, span_cells, span_counts) AS place
    JOIN unnest(lay_out.event_ids, requested_ats, indexes) WITH ORDINALITY
        AS w (event_id, requested_at, index, rank) USING (rank)
$$;
