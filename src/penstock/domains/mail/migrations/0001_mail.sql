-- Mail: what was accepted, written once, and what became of each recipient. A mail is an item of the
-- kernel, with the same id; when it is tried, and how often, only the kernel knows.

-- `recipients`, `reply_to`, `headers` and `attachments` are JSON as the code encodes them. `addresses`
-- are those of the recipients in the form in which they are searched and suppressed.
CREATE TABLE penstock.mail (
    id bigint PRIMARY KEY,
    accepted_at timestamptz NOT NULL,
    lane text COLLATE "C" NOT NULL,
    sender text COLLATE "C" NOT NULL,
    sender_name text NOT NULL,
    recipients jsonb NOT NULL,
    addresses text[] COLLATE "C" NOT NULL,
    reply_to jsonb NOT NULL,
    subject text NOT NULL,
    text text,
    html text,
    headers jsonb NOT NULL,
    tags text[] COLLATE "C" NOT NULL,
    attachments jsonb NOT NULL,
    template text COLLATE "C",
    template_version integer,
    language text COLLATE "C",
    relay text COLLATE "C",
    is_unsubscribable boolean NOT NULL,
    CONSTRAINT mail_has_recipients CHECK (cardinality(addresses) BETWEEN 1 AND 100),
    CONSTRAINT recipients_have_addresses CHECK (jsonb_array_length(recipients) = cardinality(addresses)),
    CONSTRAINT mail_has_a_body CHECK (text IS NOT NULL OR html IS NOT NULL),
    CONSTRAINT tags_are_few CHECK (cardinality(tags) <= 20),
    CONSTRAINT attachments_are_listed CHECK (jsonb_typeof(attachments) = 'array')
) PARTITION BY RANGE (id);
CREATE TABLE penstock.mail_kept PARTITION OF penstock.mail DEFAULT;
CREATE INDEX mail_by_address ON penstock.mail USING gin (addresses);
CREATE INDEX mail_by_tag ON penstock.mail USING gin (tags);

-- How it ended for one recipient: only inserted, before the item is settled, under the token of the
-- attempt. A recipient with a row gets no second copy; a replay removes failed rows.
CREATE TABLE penstock.mail_result (
    mail_id bigint NOT NULL,
    recipient_no smallint NOT NULL,
    result text COLLATE "C" NOT NULL,
    class text COLLATE "C" NOT NULL,
    phase text COLLATE "C",
    code smallint,
    enhanced text COLLATE "C",
    reply text,
    relay text COLLATE "C",
    token bigint NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (mail_id, recipient_no),
    CONSTRAINT result_is_known CHECK (result IN ('sent', 'captured', 'failed', 'suppressed')),
    CONSTRAINT reply_is_short CHECK (length(reply) <= 500)
) PARTITION BY RANGE (mail_id);
CREATE TABLE penstock.mail_result_kept PARTITION OF penstock.mail_result DEFAULT;

SELECT penstock.add_daily_table('mail'), penstock.add_daily_table('mail_result');

-- Attachments by the SHA-256 of their content: a newsletter stores its picture once.
CREATE TABLE penstock.mail_blob (
    hash bytea PRIMARY KEY,
    content bytea STORAGE EXTERNAL NOT NULL,
    last_used_on date NOT NULL,
    CONSTRAINT hash_is_a_sha256 CHECK (length(hash) = 32),
    CONSTRAINT content_is_small CHECK (length(content) <= 10485760)
);

-- Versions are only added: a mail names the one that it was rendered with.
CREATE TABLE penstock.mail_template (
    name text COLLATE "C" NOT NULL,
    language text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    subject text NOT NULL,
    text text,
    html text,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    PRIMARY KEY (name, language, version),
    CONSTRAINT name_is_a_slug CHECK (name ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'),
    CONSTRAINT template_has_a_body CHECK (text IS NOT NULL OR html IS NOT NULL)
);

-- The relay with the lowest priority is tried first.
CREATE TABLE penstock.mail_relay (
    name text COLLATE "C" PRIMARY KEY,
    host text NOT NULL,
    port integer NOT NULL,
    tls text COLLATE "C" NOT NULL,
    username text,
    sealed_password bytea,
    priority integer NOT NULL,
    connections_max integer NOT NULL,
    messages_per_connection_max integer NOT NULL,
    idle_time interval NOT NULL,
    is_enabled boolean NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT name_is_a_slug CHECK (name ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'),
    CONSTRAINT port_is_possible CHECK (port BETWEEN 1 AND 65535),
    CONSTRAINT tls_is_known CHECK (tls IN ('none', 'opportunistic', 'starttls', 'tls')),
    CONSTRAINT account_has_a_password CHECK ((username IS NULL) = (sealed_password IS NULL)),
    CONSTRAINT connections_max_is_sane CHECK (connections_max BETWEEN 1 AND 1000),
    CONSTRAINT messages_per_connection_max_is_sane
        CHECK (messages_per_connection_max BETWEEN 1 AND 100000),
    CONSTRAINT idle_time_is_sane CHECK (idle_time BETWEEN interval '1 second' AND interval '1 hour')
);

-- Limits of a relay, of a sender's address or of a recipient's domain; the name * is for all others.
CREATE TABLE penstock.mail_limit (
    scope text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    per_second double precision,
    per_minute double precision,
    per_hour integer,
    per_day integer,
    PRIMARY KEY (scope, name),
    CONSTRAINT scope_is_known CHECK (scope IN ('relay', 'sender', 'domain')),
    CONSTRAINT limits_are_sane CHECK (
        per_second BETWEEN 0.001 AND 100000 AND per_minute BETWEEN 0.01 AND 1000000
        AND per_hour BETWEEN 1 AND 100000000 AND per_day BETWEEN 1 AND 1000000000)
);

-- How much of a limit per hour or day is used up; it survives a restart.
CREATE TABLE penstock.mail_quota (
    scope text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    period text COLLATE "C" NOT NULL,
    starts_at timestamptz NOT NULL,
    used integer NOT NULL,
    PRIMARY KEY (scope, name, period),
    CONSTRAINT period_is_known CHECK (period IN ('hour', 'day'))
) WITH (fillfactor = 50);

CREATE TABLE penstock.mail_suppression (
    address text COLLATE "C" PRIMARY KEY,
    reason text COLLATE "C" NOT NULL,
    expires_at timestamptz,
    mail_id bigint,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    CONSTRAINT reason_is_known
        CHECK (reason IN ('hard_bounce', 'complaint', 'unsubscribe', 'manual'))
);

-- Part of every Message-ID: two databases have the same mail ids.
CREATE TABLE penstock.mail_database (
    is_only boolean PRIMARY KEY DEFAULT true,
    salt text COLLATE "C" NOT NULL,
    CONSTRAINT there_is_one_row CHECK (is_only),
    CONSTRAINT salt_is_hex CHECK (salt ~ '^[0-9a-f]{8}$')
);
INSERT INTO penstock.mail_database (salt) VALUES (left(md5(gen_random_uuid()::text), 8));

-- A view cannot see that its rows are selected FOR UPDATE. A sequence cannot be locked: joined into
-- mail_outbox, it makes such a claim fail with an error that names it, and its name says what sends.
CREATE SEQUENCE penstock.penstock_worker_sends_mail;
