-- What a provider refuses to a key for one model (402: nobody pays for it, 403: it may not) says nothing of its other models: the key
-- rests for that one only.
-- Invariants: as of a key's own cooldown (0021), cool_seq counts every change, so that the newest told is known from an older one; a rest
-- goes with its key. Every change is told on the channel `model_rests`, which versions before this one do not listen to.
CREATE TABLE model_rests (
  key          text NOT NULL REFERENCES model_keys ON DELETE CASCADE,
  model        text NOT NULL CHECK (length(model) BETWEEN 1 AND 160), -- as clients write it; its provider is the key's
  cooled_until timestamptz,                -- the key is not used for it before
  outcome      text CHECK (outcome IN ('refused')), -- why
  strikes      integer NOT NULL DEFAULT 0, -- rests without a success between them
  cool_seq     bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (key, model)
);

-- "KEY SEQ MILLISECONDS STRIKES OUTCOME MODEL", as of a key.
CREATE FUNCTION model_rest_told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('model_rests', format('%s %s %s %s %s %s', NEW.key, NEW.cool_seq,
    greatest(0, coalesce(ceil(extract(epoch FROM NEW.cooled_until - clock_timestamp()) * 1000), 0))::bigint,
    NEW.strikes, coalesce(NEW.outcome, 'ok'), NEW.model));
  RETURN NULL;
END $$;
CREATE TRIGGER model_rests_told AFTER INSERT OR UPDATE OF cool_seq ON model_rests
  FOR EACH ROW EXECUTE FUNCTION model_rest_told();
