-- Jobs: what the runner claims.
-- Invariants: fence only grows and every write of a running job names it; running rows have a lease; a claim reads only the
-- partial indexes of unfinished rows, so finished history costs nothing. `attempt` counts claims, `crashes` only those claims
-- that found the lease of a dead runner: a hand-back does not bring a job nearer to being given up.
CREATE TABLE jobs (
  id          text PRIMARY KEY,
  n           bigint GENERATED ALWAYS AS IDENTITY,
  org         text NOT NULL REFERENCES orgs,
  kind        text NOT NULL,
  subject     text NOT NULL,
  state       text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'done', 'failed')),
  attempt     integer NOT NULL DEFAULT 0,
  crashes     integer NOT NULL DEFAULT 0,
  fence       bigint NOT NULL DEFAULT 0,
  worker      text,
  lease_until timestamptz,
  created_at  timestamptz NOT NULL DEFAULT now(),
  finished_at timestamptz,
  CHECK ((state = 'running') = (lease_until IS NOT NULL)),
  CHECK ((state IN ('done', 'failed')) = (finished_at IS NOT NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE UNIQUE INDEX jobs_subject ON jobs (kind, subject);
CREATE INDEX jobs_ready ON jobs (kind, n) WHERE state = 'queued';
CREATE INDEX jobs_running ON jobs (kind, lease_until) WHERE state = 'running';
CREATE SEQUENCE job_fence;
