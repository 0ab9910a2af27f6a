-- Nodes and sandboxes.
-- Invariants: a sandbox belongs to one org and one node; `runtime` and iso_* are what it got, never what was asked; a row
-- leaves pending exactly once; ended and error rows hold no resources and no uid slot.
CREATE TABLE nodes (
  name         text PRIMARY KEY,
  instance     text NOT NULL,              -- the deployment; the reaper never touches another's
  address      text NOT NULL,              -- "unix:/path" of its internal door
  runtimes     text[] NOT NULL DEFAULT '{}', -- what it ran at start; "" is the host's default
  contained    boolean NOT NULL DEFAULT false,
  capacity     integer NOT NULL,
  refusal      text NOT NULL DEFAULT '',   -- why nothing is leased here, or empty
  started_at   timestamptz NOT NULL DEFAULT now(),
  heartbeat_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE sandboxes (
  id           text PRIMARY KEY,
  org          text NOT NULL REFERENCES orgs,
  class        text NOT NULL CHECK (class IN ('exec', 'dev', 'desktop')),
  project      text,
  status       text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'running', 'error', 'ended')),
  error        text,
  image        text NOT NULL,
  image_digest text NOT NULL DEFAULT '',
  runtime      text NOT NULL,
  iso_kernel   boolean NOT NULL,
  iso_network  text NOT NULL CHECK (iso_network IN ('none', 'proxy', 'open')),
  iso_tier     integer NOT NULL CHECK (iso_tier BETWEEN 0 AND 2),
  node         text NOT NULL REFERENCES nodes,
  workdir      text NOT NULL,
  env          text NOT NULL DEFAULT '{}',
  limits       text NOT NULL DEFAULT '{}',
  session      text,
  created_by   text NOT NULL,
  slot         integer,                     -- uid range on the node while it lives
  created_at   timestamptz NOT NULL DEFAULT now(),
  last_used_at timestamptz NOT NULL DEFAULT now(),
  expires_at   timestamptz NOT NULL,
  ended_at     timestamptz,
  CHECK ((status IN ('error', 'ended')) = (ended_at IS NOT NULL)),
  CHECK (status NOT IN ('error', 'ended') OR slot IS NULL)
);
CREATE INDEX sandboxes_org ON sandboxes (org, id);
CREATE INDEX sandboxes_live ON sandboxes (node) WHERE status IN ('pending', 'running');
CREATE UNIQUE INDEX sandboxes_slot ON sandboxes (node, slot) WHERE slot IS NOT NULL;
