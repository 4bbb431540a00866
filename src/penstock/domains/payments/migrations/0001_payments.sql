-- Scheduled payments. A payment that waits is an item of the kernel in the lane of its item type, with
-- the payment's id as key; when it leaves, and how often it was tried, only the kernel knows. No foreign
-- keys: what belongs together is written in one transaction.

-- Which lane, engine and workflow execute an item type. The view exec_rate_config shows it with the
-- lane's policy.
CREATE TABLE penstock.payment_item_type (
    item_type text COLLATE "C" PRIMARY KEY,
    lane text COLLATE "C" NOT NULL,
    engine text COLLATE "C" NOT NULL DEFAULT 'builtin',
    exec_workflow_type text NOT NULL,
    exec_task_queue text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT lane_has_one_item_type UNIQUE (lane),
    CONSTRAINT item_type_is_a_word CHECK (item_type ~ '^[A-Z][A-Z0-9_]{0,62}$'),
    CONSTRAINT engine_is_known CHECK (engine IN ('builtin', 'temporal', 'temporal_schedule')),
    CONSTRAINT exec_workflow_type_is_short CHECK (length(exec_workflow_type) BETWEEN 1 AND 255),
    CONSTRAINT exec_task_queue_is_short CHECK (length(exec_task_queue) BETWEEN 1 AND 255)
);

-- `execute_at` is the instant that was asked for, `scheduled_at` the one that was determined. `status` is
-- changed by penstock.move_payments alone, which expects an earlier status, and is in no
-- index, also not in a condition: a move then writes no index, if the page has room for the new version.
-- A batch moves all rows of a page at once, so half of each page is left free: with a fifth, 30 % of the
-- moves found room. Every move checks the whole row again, so its checks are no patterns: those took a
-- third of the time of a move.
CREATE TABLE penstock.payment (
    payment_id text COLLATE "C" PRIMARY KEY,
    item_type text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    amount numeric NOT NULL,
    currency text COLLATE "C" NOT NULL,
    debtor jsonb NOT NULL,
    creditor jsonb NOT NULL,
    participant_id text COLLATE "C" NOT NULL,
    rail_type text COLLATE "C" NOT NULL,
    notify jsonb NOT NULL DEFAULT '{}',
    execute_at timestamptz,
    scheduled_at timestamptz,
    content_hash text COLLATE "C" NOT NULL,
    item_id bigint,
    init_workflow_id text,
    outbox_id uuid,
    rail_reference text,
    reason text,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    accepted_at timestamptz,
    processing_at timestamptz,
    ended_at timestamptz,
    updated_at timestamptz NOT NULL,
    CONSTRAINT payment_id_is_short CHECK (length(payment_id) BETWEEN 1 AND 255),
    CONSTRAINT status_is_known CHECK (status IN ('SCHEDULED', 'ACCEPTED', 'PROCESSING', 'SETTLED',
        'REJECTED', 'RETURNED', 'CANCELLED', 'UNKNOWN')),
    CONSTRAINT amount_is_above_zero CHECK (amount > 0),
    CONSTRAINT currency_has_three_letters CHECK (
        length(currency) = 3 AND translate(currency, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', '') = ''),
    CONSTRAINT content_hash_is_a_sha256 CHECK (
        length(content_hash) = 64 AND translate(content_hash, '0123456789abcdef', '') = ''),
    CONSTRAINT reason_is_short CHECK (length(reason) <= 1000)
) WITH (fillfactor = 50);
CREATE INDEX payment_by_time ON penstock.payment (scheduled_at, payment_id);

-- What the execution of an item needs, as the first phase found it: inserted once, never changed. For an
-- item type of another domain `payment_id` is the id of its item.
CREATE TABLE penstock.payment_exec_context (
    payment_id text COLLATE "C" PRIMARY KEY,
    item_type text COLLATE "C" NOT NULL,
    context_json jsonb NOT NULL,
    context_version integer NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT payment_id_is_short CHECK (length(payment_id) BETWEEN 1 AND 255),
    CONSTRAINT context_is_an_object CHECK (jsonb_typeof(context_json) = 'object'),
    CONSTRAINT context_version_is_positive CHECK (context_version >= 1)
);

-- What became of each dispatch: only inserted, and dropped with the items of its day. The numbers come
-- from the kernel's sequence, whose ranges are days.
CREATE TABLE penstock.dispatch_audit_log (
    audit_id bigint PRIMARY KEY DEFAULT nextval('penstock.item_id'),
    batch_id text COLLATE "C" NOT NULL,
    item_type text COLLATE "C" NOT NULL,
    payment_id text COLLATE "C",
    action text COLLATE "C" NOT NULL,
    status_before text COLLATE "C",
    status_after text COLLATE "C",
    detail text,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT detail_is_short CHECK (length(detail) <= 1000)
) PARTITION BY RANGE (audit_id);
CREATE TABLE penstock.dispatch_audit_log_kept PARTITION OF penstock.dispatch_audit_log DEFAULT;
CREATE INDEX dispatch_audit_log_by_payment ON penstock.dispatch_audit_log (payment_id);
CREATE INDEX dispatch_audit_log_by_batch ON penstock.dispatch_audit_log (batch_id);
SELECT penstock.add_daily_table('dispatch_audit_log', 'audit_id');

-- The item type that is always there: 500 every 5 seconds, spread over 4 seconds. A lane of this name
-- that exists keeps its policy.
WITH made AS (
    INSERT INTO penstock.lane
        (name, owner, batch_size, dispatch_interval, jitter_window, lease)
    VALUES ('payment', 'payments', 500, '5 seconds', '4 seconds', '2 minutes')
    ON CONFLICT DO NOTHING
    RETURNING lane_id, name
), paced AS (
    INSERT INTO penstock.lane_pacing (lane_id) SELECT lane_id FROM made
)
INSERT INTO penstock.audit (audited_at, who, action, subject)
SELECT now(), 'migration', 'lane.created', name FROM made;
INSERT INTO penstock.payment_item_type (item_type, lane, exec_workflow_type, exec_task_queue)
VALUES ('PAYMENT', 'payment', 'PaymentExecWorkflow', 'payment-exec-task-queue');
