-- Payments whose items are dispatched and that do not go on, as a service finds them. It deletes those
-- that have moved.
CREATE TABLE penstock.payment_stuck (
    payment_id text COLLATE "C" PRIMARY KEY,
    found_at timestamptz NOT NULL DEFAULT now()
);
