-- What holds money back: switches, suspensions, limits, calendars, approvals, and the gaps that
-- operators leave in the order of a participant. All of them are few rows, read for every batch.

-- A row stops what it names: everything, a rail, or a participant.
CREATE TABLE penstock.outbox_switch (
    scope text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    reason text NOT NULL,
    who text NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (scope, name),
    CONSTRAINT scope_is_known CHECK (scope IN ('all', 'rail', 'participant')),
    CONSTRAINT all_has_no_name CHECK ((scope = 'all') = (name = '*'))
);

-- A participant whose instructions wait until an operator resumes it. `outbox_id` is the failed
-- instruction that suspended it; NULL if an operator did.
CREATE TABLE penstock.outbox_suspension (
    participant_id text COLLATE "C" PRIMARY KEY,
    reason text NOT NULL,
    who text NOT NULL,
    at timestamptz NOT NULL,
    outbox_id uuid
);

-- What a failed instruction does to its participant; the row of the participant counts before that of
-- the rail, and that before the one for all. Without a row it blocks.
CREATE TABLE penstock.outbox_failure_policy (
    scope text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    policy text COLLATE "C" NOT NULL,
    PRIMARY KEY (scope, name),
    CONSTRAINT scope_is_known CHECK (scope IN ('all', 'rail', 'participant')),
    CONSTRAINT all_has_no_name CHECK ((scope = 'all') = (name = '*')),
    CONSTRAINT policy_is_known CHECK (policy IN ('block', 'suspend'))
);

-- Limits in one currency; each number is taken from the row of the participant, else of the rail, else
-- for all. Over `amount_max` an instruction fails. Over `approval_above`, or if its participant's sum
-- of the day would be over `day_amount_max`, it waits for an approval.
CREATE TABLE penstock.outbox_limit (
    scope text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    currency text COLLATE "C" NOT NULL,
    amount_max numeric,
    approval_above numeric,
    day_amount_max numeric,
    PRIMARY KEY (scope, name, currency),
    CONSTRAINT scope_is_known CHECK (scope IN ('all', 'rail', 'participant')),
    CONSTRAINT all_has_no_name CHECK ((scope = 'all') = (name = '*')),
    CONSTRAINT currency_has_three_letters CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT something_is_limited CHECK (num_nonnulls(amount_max, approval_above, day_amount_max) > 0),
    CONSTRAINT amounts_are_not_negative CHECK (amount_max >= 0 AND approval_above >= 0 AND day_amount_max >= 0),
    CONSTRAINT day_is_counted_over_all_rails CHECK (scope <> 'rail' OR day_amount_max IS NULL)
);

-- What a participant has sent on a day of UTC, and the instructions that are counted in it, once each.
-- `amount_max` is the limit under which the last one was counted; infinite if that was approved.
CREATE TABLE penstock.outbox_day_total (
    participant_id text COLLATE "C" NOT NULL,
    currency text COLLATE "C" NOT NULL,
    day date NOT NULL,
    amount numeric NOT NULL,
    amount_max numeric NOT NULL,
    PRIMARY KEY (participant_id, currency, day)
) WITH (fillfactor = 50);
CREATE TABLE penstock.outbox_charge (
    outbox_id uuid PRIMARY KEY,
    day date NOT NULL
);
-- For retention. Rows come in the order of their days, so that an insert costs next to nothing here.
CREATE INDEX outbox_charge_by_day ON penstock.outbox_charge USING brin (day);

-- When a rail is open, as the shared calendar writes it.
CREATE TABLE penstock.outbox_calendar (
    rail_type text COLLATE "C" PRIMARY KEY,
    calendar jsonb NOT NULL
);

-- The second person's decision; the first one counts. `key_id` is the key that was used.
CREATE TABLE penstock.outbox_approval (
    outbox_id uuid PRIMARY KEY,
    decision text COLLATE "C" NOT NULL,
    key_id text COLLATE "C" NOT NULL,
    reason text NOT NULL,
    decided_at timestamptz NOT NULL,
    CONSTRAINT decision_is_known CHECK (decision IN ('approved', 'rejected'))
);

-- Participants whose head may have been claimed before a decision was visible: once the claim has
-- ended, the head is looked at again.
CREATE TABLE penstock.outbox_recheck (
    participant_id text COLLATE "C" PRIMARY KEY,
    at timestamptz NOT NULL
);

-- Numbers of a participant that were passed over by an operator, so that the next ones could follow.
CREATE TABLE penstock.outbox_gap (
    gap_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    outbox_id uuid NOT NULL,
    participant_id text COLLATE "C" NOT NULL,
    sequence_id bigint NOT NULL,
    who text NOT NULL,
    reason text NOT NULL,
    at timestamptz NOT NULL,
    CONSTRAINT gap_is_recorded_once UNIQUE (outbox_id)
);
CREATE INDEX outbox_gap_by_participant ON penstock.outbox_gap (participant_id, gap_id);
