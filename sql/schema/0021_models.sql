-- The model gateway's providers, their keys and models, and what each org routes where.
-- Invariants: rows of org `admin` are the deployment's, and every org may use them; a key is stored sealed only, bound to its
-- id, and a provider without a key has one row that holds none; prices are whole millicents (thousandths of a cent) per million
-- tokens; cool_seq counts every change of a key's cooldown, so that the newest told is known from an older one. Every change of
-- what is called is told on the channel `models` (payload: the org), every cooldown on `model_keys`, whoever makes it.
CREATE TABLE model_providers (
  org        text NOT NULL REFERENCES orgs,
  name       text NOT NULL CHECK (name ~ '^[a-z0-9][a-z0-9._-]{0,39}$'),
  wire       text NOT NULL CHECK (wire IN ('openai-chat', 'openai-responses', 'anthropic')),
  base_url   text NOT NULL CHECK (length(base_url) BETWEEN 1 AND 512),
  enabled    boolean NOT NULL DEFAULT true,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (org, name)
);

CREATE TABLE model_keys (
  id           text PRIMARY KEY,           -- also what `sealed` is bound to
  org          text NOT NULL,
  provider     text NOT NULL,
  sealed       text,                       -- NULL: this provider wants no key
  created_at   timestamptz NOT NULL DEFAULT now(),
  cooled_until timestamptz,                -- it is not used before
  outcome      text CHECK (outcome IN ('refused', 'limited', 'fault')), -- why
  strikes      integer NOT NULL DEFAULT 0, -- cooldowns without a success between them
  cool_seq     bigint NOT NULL DEFAULT 0,
  FOREIGN KEY (org, provider) REFERENCES model_providers ON DELETE CASCADE
);
CREATE INDEX model_keys_provider ON model_keys (org, provider, id);

CREATE TABLE model_models (
  org               text NOT NULL,
  provider          text NOT NULL,
  name              text NOT NULL CHECK (length(name) BETWEEN 1 AND 160),
  upstream          text NOT NULL CHECK (length(upstream) BETWEEN 1 AND 160),
  context_tokens    bigint NOT NULL DEFAULT 0 CHECK (context_tokens >= 0), -- 0: not stated
  output_tokens     bigint NOT NULL DEFAULT 0 CHECK (output_tokens >= 0),
  price_input       bigint NOT NULL CHECK (price_input BETWEEN 0 AND 1000000000),
  price_cached      bigint NOT NULL CHECK (price_cached BETWEEN 0 AND 1000000000),
  price_cache_write bigint NOT NULL CHECK (price_cache_write BETWEEN 0 AND 1000000000),
  price_output      bigint NOT NULL CHECK (price_output BETWEEN 0 AND 1000000000),
  price_reasoning   bigint NOT NULL CHECK (price_reasoning BETWEEN 0 AND 1000000000),
  fallbacks         text[] NOT NULL DEFAULT '{}' CHECK (cardinality(fallbacks) <= 8),
  created_at        timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (org, provider, name),
  FOREIGN KEY (org, provider) REFERENCES model_providers ON DELETE CASCADE
);

-- `free` and `paid` are the tiers: what requests are routed to that name no model.
CREATE TABLE model_aliases (
  org     text NOT NULL REFERENCES orgs,
  name    text NOT NULL CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,99}$'),
  targets text[] NOT NULL CHECK (cardinality(targets) BETWEEN 1 AND 8),
  PRIMARY KEY (org, name)
);

CREATE TABLE model_orgs (
  org      text PRIMARY KEY REFERENCES orgs,
  tier     text NOT NULL DEFAULT 'free' CHECK (tier IN ('free', 'paid')),
  allow    text[],                         -- by its own admin; NULL: everything
  allow_by text[]                          -- by the operator; NULL: everything. Both must allow a model
);

CREATE FUNCTION models_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('models', CASE WHEN TG_OP = 'DELETE' THEN OLD.org ELSE NEW.org END);
  RETURN NULL;
END $$;
CREATE TRIGGER models AFTER INSERT OR UPDATE OR DELETE ON model_providers
  FOR EACH ROW EXECUTE FUNCTION models_changed();
CREATE TRIGGER models AFTER INSERT OR DELETE OR UPDATE OF sealed ON model_keys
  FOR EACH ROW EXECUTE FUNCTION models_changed();
CREATE TRIGGER models AFTER INSERT OR UPDATE OR DELETE ON model_models
  FOR EACH ROW EXECUTE FUNCTION models_changed();
CREATE TRIGGER models AFTER INSERT OR UPDATE OR DELETE ON model_aliases
  FOR EACH ROW EXECUTE FUNCTION models_changed();
CREATE TRIGGER models AFTER INSERT OR UPDATE OR DELETE ON model_orgs
  FOR EACH ROW EXECUTE FUNCTION models_changed();

-- "ID SEQ MILLISECONDS STRIKES OUTCOME": how long it still cools, so that no clock but the database's decides.
CREATE FUNCTION model_key_cooled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('model_keys', format('%s %s %s %s %s', NEW.id, NEW.cool_seq,
    greatest(0, coalesce(ceil(extract(epoch FROM NEW.cooled_until - clock_timestamp()) * 1000), 0))::bigint,
    NEW.strikes, coalesce(NEW.outcome, 'ok')));
  RETURN NULL;
END $$;
CREATE TRIGGER model_keys_cooled AFTER UPDATE OF cool_seq ON model_keys
  FOR EACH ROW EXECUTE FUNCTION model_key_cooled();
