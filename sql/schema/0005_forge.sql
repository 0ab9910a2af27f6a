-- Repositories. The objects are on the forge host's disk; the row decides whether they exist for anybody.
CREATE TABLE repos (
  org            text NOT NULL REFERENCES orgs,
  name           text NOT NULL,
  project        text,
  default_branch text NOT NULL DEFAULT 'main',
  created_at     timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (org, name)
);
