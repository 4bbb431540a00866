-- Refuse an UPDATE that skips the state machine of payments, as penstock.move_payments does.
CREATE OR REPLACE FUNCTION penstock.refuse_payment_move() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'payment %: a payment cannot move from % to %',
        quote_literal(OLD.payment_id), OLD.status, quote_literal(NEW.status)
        USING ERRCODE = 'PS409', HINT = 'Move payments with penstock.move_payments.';
END $$;
