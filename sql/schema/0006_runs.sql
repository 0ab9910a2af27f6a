-- Coding runs.
-- Invariants: one run, one session, one job; a run ends in the transaction that closes its session and finishes its job;
-- sealed_credential is wiped when the run ends; while a job is behind the run, only the holder of its fence writes here
-- (besides stop_at and stop_by).
CREATE TABLE runs (
  id          text PRIMARY KEY,
  org         text NOT NULL REFERENCES orgs,
  kind        text NOT NULL DEFAULT 'coding',
  tool        text NOT NULL,
  session     text NOT NULL UNIQUE REFERENCES sessions,
  repo        text,
  clone_url   text,
  base        text,
  branch      text,
  prompt      text NOT NULL,
  desktop     boolean NOT NULL DEFAULT false,
  timeout_s   integer NOT NULL,
  state       text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'done', 'error', 'stopped')),
  created_by  text NOT NULL,
  sealed_credential text,
  credential_user   text,
  sandbox     text,                        -- the lease of the attempt under way
  draft       text,                        -- JSON of the result whose commit is about to be pushed; what a resumed run completes
  commit      text,                        -- the pushed and verified tip
  stop_at     timestamptz,                 -- when somebody asked for its end
  stop_by     text,
  created_at  timestamptz NOT NULL DEFAULT now(),
  started_at  timestamptz,
  ended_at    timestamptz,
  CHECK ((state IN ('done', 'error', 'stopped')) = (ended_at IS NOT NULL)),
  CHECK (ended_at IS NULL OR sealed_credential IS NULL),
  CHECK (repo IS NULL OR clone_url IS NULL),
  CHECK ((repo IS NULL AND clone_url IS NULL) = (branch IS NULL))
);
CREATE INDEX runs_org ON runs (org, id);
