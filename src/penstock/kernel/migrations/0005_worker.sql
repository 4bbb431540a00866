-- Which workers run, and the lanes of each: without it, "no worker runs this lane" and "all workers
-- are busy" look the same. A worker updates its row every few seconds; no index but the key, and
-- free space in the page, so that the update touches one page.
CREATE TABLE penstock.worker (
    name text COLLATE "C" PRIMARY KEY,
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    lanes text[] NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL
) WITH (fillfactor = 50);
