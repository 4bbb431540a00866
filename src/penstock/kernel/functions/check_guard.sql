-- Raise PS403 if a lane belongs to a domain other than `owner` that guards `verb`: what to use
-- instead is in the message and, for programs, in DETAIL. Any caller can pass an owner: this
-- prevents mistakes, and is no protection against a caller that is not trusted.
CREATE OR REPLACE FUNCTION penstock.check_guard(policy penstock.lane, verb text, owner text)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF policy.guards ? verb AND policy.owner IS DISTINCT FROM check_guard.owner THEN
        RAISE EXCEPTION 'lane % belongs to the domain %, which refuses %: %',
            quote_literal(policy.name), quote_literal(policy.owner),
            regexp_replace(verb, '^set:', 'a change of '), policy.guards ->> verb
            USING ERRCODE = 'PS403', DETAIL = jsonb_build_object(
                'lane', policy.name, 'owner', policy.owner, 'verb', verb,
                'pointer', policy.guards ->> verb)::text;
    END IF;
END $$;
