-- Remove an owner's applied steps from the ledger; one step that replaces them all follows.
DELETE FROM penstock.migration
WHERE owner = $1;
