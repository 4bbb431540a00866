-- Split `Name <address>` or a bare address into JSON. Only what would break everything after it is
-- refused here, with the parameter that it was given in; the address is checked before the mail is
-- sent.
CREATE OR REPLACE FUNCTION penstock.mail_address(given text, field text DEFAULT 'address') RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    found text[] := regexp_match(given, '^\s*"?([^"<>]*?)"?\s*<([^<>]*)>\s*$');
    address text := trim(coalesce(found[2], given));
    domain text := substring(address FROM '@([^@]*)$');
BEGIN
    IF (address ~ '^[^[:space:][:cntrl:]<>]+@[^[:space:][:cntrl:]<>@]+$') IS NOT TRUE THEN
        RAISE EXCEPTION '%: % is not a mail address', field, quote_nullable(left(given, 100))
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN jsonb_build_object(
        'address', left(address, -length(domain)) || lower(domain), 'name', coalesce(found[1], ''));
END $$;
