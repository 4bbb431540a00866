-- Whether no item waits, runs or is held, so that nothing can be paid any more.
SELECT NOT EXISTS (SELECT FROM penstock.ready)
    AND NOT EXISTS (SELECT FROM penstock.parked)
    AND NOT EXISTS (SELECT FROM penstock.lease)
    AND NOT EXISTS (SELECT FROM penstock.held);
