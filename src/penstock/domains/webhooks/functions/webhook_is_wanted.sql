-- Return whether an event's data meets a filter; a filter that fails on the data is not met.
CREATE OR REPLACE FUNCTION penstock.webhook_is_wanted(data text, filter_path text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(jsonb_path_match(data::jsonb, filter_path::jsonpath, '{}', true), false);
