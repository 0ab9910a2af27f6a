-- Answers to requests that bore an Idempotency-Key (HTTP-7).
-- Invariants: a row is committed together with what the request created, so its absence proves that nothing was created;
-- `status` and `body` are the answer, or `status` is NULL and `body` says what was created and is not answered yet (or
-- with a secret, which is never kept). A row counts for 24 hours; every new one removes two that do not any more.
CREATE TABLE once (
  org         text NOT NULL REFERENCES orgs,
  key         text NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
  hash        text NOT NULL CHECK (length(hash) = 64), -- of the op and its input
  status      integer,
  body        text NOT NULL,
  created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (org, key)
);
CREATE INDEX once_age ON once (created_at);
