-- Webhooks: what subscribers want, and the events that there were. An event is written once, with the
-- items that carry it; how its deliveries went is what the kernel knows about those items.
-- replaces: 0001_webhooks, 0002_functions, 0003_progress, 0004_replay, 0005_after_retention

CREATE TABLE penstock.webhook_subscription (
    subscription_no integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription_id text COLLATE "C" NOT NULL UNIQUE,
    tenant text COLLATE "C" NOT NULL,
    url text NOT NULL,
    event_types text[] NOT NULL,
    -- The filter as it was given, and as a predicate over the data.
    filter jsonb,
    filter_path jsonpath,
    -- Where in an event's data the key stands in whose order this subscriber wants its events.
    ordering_path text[],
    description text NOT NULL,
    state text NOT NULL,
    state_reason text,
    profile text NOT NULL,
    rate_limit double precision,
    concurrency integer NOT NULL,
    timeout interval NOT NULL,
    -- NULL: as the lane says.
    retry_schedule interval[],
    -- Names and values as JSON, sealed: they may hold a subscriber's password.
    sealed_headers bytea,
    header_names text[] NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    -- Moves with every change, of a secret too: what a worker knows of an older one is out of date.
    version integer NOT NULL DEFAULT 1,
    CONSTRAINT subscription_id_is_short CHECK (length(subscription_id) BETWEEN 1 AND 64),
    CONSTRAINT tenant_is_short CHECK (length(tenant) BETWEEN 1 AND 128),
    CONSTRAINT url_is_short CHECK (length(url) BETWEEN 1 AND 2048),
    CONSTRAINT event_types_are_given CHECK (cardinality(event_types) BETWEEN 1 AND 100),
    CONSTRAINT filter_has_its_path CHECK ((filter IS NULL) = (filter_path IS NULL)),
    CONSTRAINT state_is_known CHECK (state IN ('active', 'paused', 'disabled', 'deleted')),
    CONSTRAINT profile_is_known CHECK (profile IN ('standard', 'svix', 'github', 'stripe')),
    CONSTRAINT rate_limit_is_sane CHECK (rate_limit BETWEEN 0.001 AND 100000),
    CONSTRAINT concurrency_is_sane CHECK (concurrency BETWEEN 1 AND 10000),
    CONSTRAINT timeout_is_sane
        CHECK (timeout BETWEEN interval '100 milliseconds' AND interval '60 seconds'),
    CONSTRAINT retry_schedule_is_short CHECK (cardinality(retry_schedule) <= 50)
);
CREATE INDEX webhook_subscription_by_tenant
    ON penstock.webhook_subscription (tenant, subscription_no) WHERE state <> 'deleted';

-- Who wants what, found by equality: an event's type is turned into all patterns that match it.
CREATE TABLE penstock.webhook_pattern (
    tenant text COLLATE "C" NOT NULL,
    pattern text COLLATE "C" NOT NULL,
    subscription_no integer NOT NULL,
    PRIMARY KEY (tenant, pattern, subscription_no)
);

-- Of several, all sign that are not retired yet.
CREATE TABLE penstock.webhook_secret (
    secret_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription_no integer NOT NULL,
    sealed bytea NOT NULL,
    created_at timestamptz NOT NULL,
    retires_at timestamptz NOT NULL DEFAULT 'infinity'
);
CREATE INDEX webhook_secret_by_subscription ON penstock.webhook_secret (subscription_no);

-- Ids are of the kernel's daily blocks. `data` is what the producer sent, to the byte. The two arrays
-- run parallel: who was to get the event when it was accepted, and the item that carries it there.
CREATE TABLE penstock.webhook_event (
    event_no bigint PRIMARY KEY,
    accepted_at timestamptz NOT NULL,
    subscription_nos integer[] NOT NULL,
    item_ids bigint[] NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    source text,
    data text NOT NULL,
    CONSTRAINT event_id_is_safe CHECK (event_id ~ '^[A-Za-z0-9_-]{1,128}$'),
    CONSTRAINT type_is_dotted CHECK (type ~ '^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+){0,9}$'),
    CONSTRAINT type_is_short CHECK (length(type) <= 255),
    CONSTRAINT source_is_short CHECK (length(source) BETWEEN 1 AND 255),
    CONSTRAINT items_go_to_subscriptions CHECK (cardinality(subscription_nos) = cardinality(item_ids))
) PARTITION BY RANGE (event_no);
CREATE TABLE penstock.webhook_event_kept PARTITION OF penstock.webhook_event DEFAULT;

-- An event id is taken for ever.
CREATE TABLE penstock.webhook_event_id (
    event_no bigint NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    event_hash bytea NOT NULL,
    PRIMARY KEY (tenant, event_id)
);

-- And so is an Idempotency-Key: it stands for the event that it first came with.
CREATE TABLE penstock.webhook_idempotency (
    tenant text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, idempotency_key),
    CONSTRAINT idempotency_key_is_short CHECK (length(idempotency_key) BETWEEN 1 AND 255)
);

CREATE TABLE penstock.webhook_replay (
    replay_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    subscription_no integer NOT NULL,
    event_types text[],
    from_at timestamptz NOT NULL,
    until_at timestamptz NOT NULL,
    which text NOT NULL,
    rate double precision,
    state text NOT NULL,
    counted bigint NOT NULL,
    replayed bigint NOT NULL DEFAULT 0,
    next_event_no bigint NOT NULL,
    end_event_no bigint NOT NULL,
    next_due_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    finished_at timestamptz,
    CONSTRAINT which_is_known CHECK (which IN ('missing', 'failed', 'delivered', 'all')),
    CONSTRAINT state_is_known CHECK (state IN ('running', 'paused', 'cancelled', 'finished')),
    CONSTRAINT rate_is_sane CHECK (rate BETWEEN 0.001 AND 100000)
);

-- Deliveries that a replay has added to an event.
CREATE TABLE penstock.webhook_redelivery (
    event_no bigint NOT NULL,
    item_id bigint NOT NULL,
    subscription_no integer NOT NULL,
    replay_no bigint NOT NULL,
    PRIMARY KEY (event_no, item_id)
);

SELECT penstock.add_daily_table('webhook_event');
