-- Sessions and their events.
-- Invariants: seq counts from 1 without gaps (last_seq is taken under the session's row lock); closed exactly once, closed_at
-- and a terminal state come together; no event is written to a closed session (the append's UPDATE finds no open row); at
-- most one event ends a session, it is a `status`, and its `ends` is the session's state.
CREATE TABLE sessions (
  id          text PRIMARY KEY,
  org         text NOT NULL REFERENCES orgs,
  kind        text NOT NULL,
  title       text NOT NULL DEFAULT '',
  parent      text REFERENCES sessions,
  root        text NOT NULL,
  state       text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done', 'error', 'stopped')),
  last_seq    bigint NOT NULL DEFAULT 0,
  created_by  text NOT NULL,
  created_at  timestamptz NOT NULL DEFAULT now(),
  closed_at   timestamptz,
  CHECK ((state = 'open') = (closed_at IS NULL))
) WITH (fillfactor = 70); -- room for last_seq to be updated in place
CREATE INDEX sessions_org ON sessions (org, id);
CREATE INDEX sessions_root ON sessions (org, root, id);
CREATE INDEX sessions_open ON sessions (org, id) WHERE state = 'open';

CREATE TABLE events (
  session     text NOT NULL REFERENCES sessions ON DELETE CASCADE,
  seq         bigint NOT NULL CHECK (seq > 0),
  org         text NOT NULL,
  time        timestamptz NOT NULL DEFAULT clock_timestamp(),
  kind        text NOT NULL CHECK (kind IN ('status', 'step', 'tool-call', 'log', 'message')),
  ends        text CHECK (ends IN ('done', 'error', 'stopped')),
  payload     text NOT NULL CHECK (octet_length(payload) <= 61440),
  CHECK (ends IS NULL OR kind = 'status'),
  PRIMARY KEY (session, seq)
);
CREATE UNIQUE INDEX events_end ON events (session) WHERE ends IS NOT NULL;
