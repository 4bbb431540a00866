-- The view payment_exec_queue joins the kernel's tables itself.
DROP FUNCTION IF EXISTS penstock.payment_queue_place(text, bigint);
