-- The credential of one sandbox, and what the client of a compatibility door writes on its sandbox (ECO-1).
-- Invariants: a sandbox's credential counts for that sandbox only, while it lives and the key that asked for it is good.
ALTER TABLE credentials
  DROP CONSTRAINT credentials_kind_check,
  ADD CONSTRAINT credentials_kind_check CHECK (kind IN ('key', 'run_token', 'grant', 'sandbox')),
  ADD COLUMN sandbox text,
  ADD COLUMN minted_by text,
  ADD CHECK ((kind = 'sandbox') = (sandbox IS NOT NULL));
CREATE INDEX credentials_sandbox ON credentials (org, sandbox) WHERE sandbox IS NOT NULL;
ALTER TABLE sandboxes ADD COLUMN metadata jsonb NOT NULL DEFAULT '{}';
