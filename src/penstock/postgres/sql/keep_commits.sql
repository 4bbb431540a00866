-- Have commits of this session wait for the disk, if the server's setting does not: what was
-- answered, or marked as started before a call, must survive a crash of the server. Stronger
-- settings, and `local`, stay. Returns no row if nothing was changed.
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
