-- Limits of an org (ID-7).
-- Invariants: NULL is the deployment's default, 0 is none; `used` of a window never passes its `most`, and counts what the API's
-- processes have taken in advance. The counters may be lost in a crash of PostgreSQL: then a new minute begins.
ALTER TABLE orgs
  ADD COLUMN requests_per_minute integer CHECK (requests_per_minute >= 0),
  ADD COLUMN concurrent_runs integer CHECK (concurrent_runs >= 0);
CREATE UNLOGGED TABLE org_requests (
  org         text PRIMARY KEY REFERENCES orgs,
  until       timestamptz NOT NULL,
  most        integer NOT NULL,
  used        integer NOT NULL,
  took        integer NOT NULL, -- the last time
  CHECK (took <= used)
) WITH (fillfactor = 50);
CREATE INDEX runs_live ON runs (org) WHERE state IN ('queued', 'running');
