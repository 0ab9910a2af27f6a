-- Rotation of keys and of the key that seals credentials.
-- Invariants: after a rotation the secret before it counts until old_until and no longer, and never beyond the key's own end;
-- there is at most one such secret.
ALTER TABLE credentials
  ADD COLUMN old_hash text CHECK (length(old_hash) = 64),
  ADD COLUMN old_until timestamptz,
  ADD CHECK ((old_hash IS NULL) = (old_until IS NULL));
-- Few runs hold a credential; resealing finds them without reading the others.
CREATE INDEX runs_sealed ON runs (id) WHERE sealed_credential IS NOT NULL;
