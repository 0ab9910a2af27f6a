-- Volumes: disks that outlive a lease, each on one node.
-- Invariants: one live sandbox at most has a volume; made_for names the lease whose start is to make it, and is empty from the
-- moment a sandbox with it has run; a row goes only after its file.
CREATE TABLE volumes (
  org            text NOT NULL REFERENCES orgs,
  kind           text NOT NULL CHECK (kind IN ('project', 'session')),
  name           text NOT NULL,              -- the project's slug, or the session
  node           text NOT NULL REFERENCES nodes,
  size_bytes     bigint NOT NULL CHECK (size_bytes > 0),
  used_bytes     bigint NOT NULL DEFAULT 0,  -- of the node's disk, as last looked at
  made_for       text,
  leased_on      date,                       -- UTC
  purge_asked_at timestamptz,
  created_at     timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (org, kind, name)
);
CREATE INDEX volumes_node ON volumes (node);
CREATE INDEX volumes_made ON volumes (made_for) WHERE made_for IS NOT NULL;

-- Whose state directory it has (SBX-35), and its layout of mounts as it was checked (SBX-32), or empty.
ALTER TABLE sandboxes ADD COLUMN state_of text;
ALTER TABLE sandboxes ADD COLUMN mounts text NOT NULL DEFAULT '';
CREATE UNIQUE INDEX sandboxes_project ON sandboxes (org, project) WHERE project IS NOT NULL AND slot IS NOT NULL;
CREATE UNIQUE INDEX sandboxes_state ON sandboxes (org, state_of) WHERE state_of IS NOT NULL AND slot IS NOT NULL;

-- Why a node holds no volumes; empty when it does.
ALTER TABLE nodes ADD COLUMN volumes text NOT NULL DEFAULT 'its sandboxd is of an earlier version';
