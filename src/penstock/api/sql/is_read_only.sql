-- Whether transactions cannot write: on a replica always, elsewhere by a setting.
SELECT current_setting('transaction_read_only')::boolean AS is_read_only
