-- Renew leases and return their tokens; the lease of a token that is not returned is lost. An
-- expired lease is not renewed, swept or not: its worker may know that it is invalid. If the
-- clock was set back since a claim, its lease is renewed from the claim on: a lease must end after its
-- claim, and one row that is refused would stop the renewal of all.
UPDATE penstock.lease
SET expires_at = greatest(coalesce($2::timestamptz, now()), lease.claimed_at) + lane.lease
FROM penstock.lane
WHERE lease.token = ANY ($1::bigint[]) AND lane.lane_id = lease.lane_id
    AND lease.expires_at > coalesce($2::timestamptz, now())
RETURNING lease.token;
