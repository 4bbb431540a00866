-- Limits per key: an item names its keys, and the policy of its lane limits each value of them.
-- The constraint on items is not validated: every existing item has NULL, and a scan of all days
-- would lock the queue for that long.
ALTER TABLE penstock.lane
    ADD COLUMN key_limits jsonb,
    ADD CONSTRAINT key_limits_is_sane CHECK (
        jsonb_typeof(key_limits) = 'object'
        AND NOT key_limits @? '$.keyvalue() ? (!(@.key like_regex "^[a-z0-9][a-z0-9_-]{0,62}$"))'
        AND NOT key_limits @? 'strict $.* ? (@.type() != "object")'
        AND NOT key_limits @? '$.* ? (!exists(@.rate) && !exists(@.concurrency))'
        AND NOT key_limits @? '$.*.keyvalue() ? (@.key != "rate" && @.key != "concurrency")'
        AND NOT key_limits @? '$.*.rate ? (@.type() != "number" || @ < 0.001 || @ > 1000000)'
        AND NOT key_limits
            @? '$.*.concurrency ? (@.type() != "number" || @ < 1 || @ > 10000 || @ != @.floor())'
    );

ALTER TABLE penstock.item
    ADD COLUMN limit_keys jsonb,
    ADD CONSTRAINT limit_keys_are_short CHECK (
        jsonb_typeof(limit_keys) = 'object'
        AND NOT limit_keys @? '$.keyvalue() ? (!(@.key like_regex "^[a-z0-9][a-z0-9_-]{0,62}$"))'
        AND NOT limit_keys @? 'strict $.* ? (@.type() != "string")'
        AND NOT limit_keys @? '$.* ? (!(@ like_regex "^.{1,255}$" flag "s"))'
    ) NOT VALID;
