-- Do the next part of a replay.
SELECT penstock.step_webhook_replay($1, $2, $3);
