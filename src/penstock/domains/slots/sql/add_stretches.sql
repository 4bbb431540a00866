-- Add opening periods behind the known ones; slots that lie in them count.
SELECT penstock.extend_stretches(
    $1, $2::timestamptz[], $3::timestamptz[], $4::date[], $5::timestamptz[]);
