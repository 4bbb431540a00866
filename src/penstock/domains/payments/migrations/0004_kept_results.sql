-- What the outbox has said about payments and could not be applied at that moment, such as in a
-- deadlock. It is applied soon after, in the order of `id`, and deleted.
CREATE TABLE penstock.payment_kept_result (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payment_id text COLLATE "C" NOT NULL,
    outbox_id uuid NOT NULL,
    status text COLLATE "C" NOT NULL,
    rail_reference text,
    reason text,
    due_at timestamptz NOT NULL DEFAULT now()
);
