-- Try a kept result again after the duration $2.
UPDATE penstock.payment_kept_result SET due_at = now() + $2::interval WHERE id = $1;
