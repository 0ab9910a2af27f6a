-- Coding runs.
-- Invariants: one run, one session, one job; state follows the session's; sealed_credential is wiped when the run ends.
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
  base_commit text,                        -- what the attempt under way started from
  commit      text,                        -- the pushed and verified tip
  stop_at     timestamptz,                 -- when somebody asked for its end
  created_at  timestamptz NOT NULL DEFAULT now(),
  started_at  timestamptz,
  ended_at    timestamptz,
  CHECK ((state IN ('done', 'error', 'stopped')) = (ended_at IS NOT NULL)),
  CHECK (ended_at IS NULL OR sealed_credential IS NULL)
);
CREATE INDEX runs_org ON runs (org, id);
