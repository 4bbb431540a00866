-- The item type INVOICE: 200 every 10 seconds, spread over 5, dispatched by a schedule on Temporal.
INSERT INTO penstock.exec_rate_config
    (item_type, batch_size, dispatch_interval_secs, jitter_window_ms, exec_workflow_type, exec_task_queue)
VALUES ('INVOICE', 200, 10, 5000, 'InvoiceExecWorkflow', 'invoice-exec-task-queue');
UPDATE penstock.payment_item_type SET engine = 'temporal_schedule' WHERE item_type = 'INVOICE';
