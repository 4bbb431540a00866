-- The heads of these keys have ended well, or were cancelled: their followers move up.
SELECT penstock.promote($1, $2);
