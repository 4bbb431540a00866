-- The rules of the first phase, as rows that an operator changes without a release.

-- Rules of an item type: whether a second payment of the same content on the same day is refused, and when
-- payments are executed. Without a row, neither.
CREATE TABLE penstock.payment_rule (
    item_type text COLLATE "C" PRIMARY KEY,
    refuses_duplicates boolean NOT NULL DEFAULT false,
    calendar jsonb,
    CONSTRAINT item_type_is_a_word CHECK (item_type ~ '^[A-Z][A-Z0-9_]{0,62}$'),
    CONSTRAINT calendar_is_an_object CHECK (jsonb_typeof(calendar) = 'object')
);

-- Limits of amounts in one currency. Each number of a participant comes before that of all, which has the
-- empty name.
CREATE TABLE penstock.payment_limit (
    participant_id text COLLATE "C" NOT NULL DEFAULT '',
    currency text COLLATE "C" NOT NULL,
    amount_max numeric,
    day_amount_max numeric,
    PRIMARY KEY (participant_id, currency),
    CONSTRAINT currency_has_three_letters CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT amounts_are_positive CHECK (amount_max >= 0 AND day_amount_max >= 0)
);

-- What a participant with a limit for a day has scheduled for a day of UTC; what was cancelled is not in it.
CREATE TABLE penstock.payment_day_total (
    participant_id text COLLATE "C" NOT NULL,
    currency text COLLATE "C" NOT NULL,
    day date NOT NULL,
    amount numeric NOT NULL DEFAULT 0,
    PRIMARY KEY (participant_id, currency, day)
) WITH (fillfactor = 50);

-- Which payment has a content on a day, where duplicates are refused.
CREATE TABLE penstock.payment_fingerprint (
    fingerprint text COLLATE "C" PRIMARY KEY,
    payment_id text COLLATE "C" NOT NULL
);
