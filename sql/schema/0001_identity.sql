-- Orgs and credentials.
-- Invariants: an org slug never changes; one table holds every credential, only the SHA-256 of its secret; a grant names one
-- repository and one full ref; a run token or grant always expires.
CREATE TABLE orgs (
  slug        text PRIMARY KEY CHECK (slug ~ '^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$' AND slug <> 'repos'),
  created_at  timestamptz NOT NULL DEFAULT now()
);
INSERT INTO orgs (slug) VALUES ('admin');

CREATE TABLE credentials (
  id          text PRIMARY KEY,
  org         text NOT NULL REFERENCES orgs,
  kind        text NOT NULL CHECK (kind IN ('key', 'run_token', 'grant')),
  name        text NOT NULL DEFAULT '',
  user_name   text NOT NULL,
  hash        text NOT NULL CHECK (length(hash) = 64),
  org_admin   boolean NOT NULL DEFAULT false,
  scopes      text NOT NULL DEFAULT '*',
  repo        text,
  ref         text,
  session     text,
  created_at  timestamptz NOT NULL DEFAULT now(),
  expires_at  timestamptz,
  revoked_at  timestamptz,
  CHECK ((kind = 'grant') = (repo IS NOT NULL AND ref IS NOT NULL)),
  CHECK (kind = 'key' OR expires_at IS NOT NULL),
  CHECK (kind <> 'run_token' OR session IS NOT NULL)
);
CREATE INDEX credentials_org ON credentials (org, kind, id);
CREATE INDEX credentials_session ON credentials (org, session) WHERE session IS NOT NULL;
