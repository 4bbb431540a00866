-- Add opening periods after the known ones; existing slots in them take their cells.
SELECT penstock.extend_stretches(
    $1, $2::timestamptz[], $3::timestamptz[], $4::date[], $5::timestamptz[]);
