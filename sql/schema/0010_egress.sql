-- The egress boundary: policies, the audit, brokered credentials.
-- Invariants: a sandbox always has a policy; every change of it counts network_version up and is told on the channel
-- `egress_policy` (payload: the sandbox), whoever makes it; network_applied is the newest version that the boundary has in
-- force. A credential is stored sealed only, bound to its id; every change of an org's credentials is told on
-- `egress_credentials` (payload: the org). Audit rows are written by gatehouse-egress only, and never changed.

-- The policy as JSON: {"mode": "deny-all" | "allow-all" | "static" | "resolver", "allowedHosts": ["host", ".domain", "host:port"]},
-- as app/egress/policy.h parses it. What is the deployment's (inward hosts, observing) is not in it.
ALTER TABLE sandboxes
  ADD COLUMN network text NOT NULL DEFAULT '{"mode":"deny-all","allowedHosts":[]}',
  ADD COLUMN network_version bigint NOT NULL DEFAULT 1,
  ADD COLUMN network_applied bigint NOT NULL DEFAULT 0;

CREATE FUNCTION egress_policy_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.network_version := OLD.network_version + 1;
  PERFORM pg_notify('egress_policy', NEW.id);
  RETURN NEW;
END $$;
CREATE TRIGGER egress_policy BEFORE UPDATE OF network ON sandboxes
  FOR EACH ROW EXECUTE FUNCTION egress_policy_changed();

CREATE TABLE egress_audit (
  id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at          timestamptz NOT NULL DEFAULT now(),
  org         text NOT NULL,
  sandbox     text NOT NULL,
  session     text,
  kind        text NOT NULL CHECK (kind IN ('decision', 'close')),
  form        text NOT NULL,               -- http, connect, socks, tls, dns: how it was asked
  host        text NOT NULL,               -- canonical; as asked (printable bytes only) where it has no canonical form
  port        integer NOT NULL CHECK (port BETWEEN 0 AND 65535), -- 0: none was understood
  verdict     text NOT NULL CHECK (verdict IN ('allow', 'deny', 'bad_request')),
  reason      text NOT NULL,               -- egress/reason.h
  observed    boolean NOT NULL DEFAULT false, -- the verdict was logged and not enforced
  class       text,                        -- of the address, when one was judged
  address     text,
  bytes_out   bigint CHECK (bytes_out >= 0), -- of a close: from the sandbox, to it
  bytes_in    bigint CHECK (bytes_in >= 0),
  duration_ms bigint CHECK (duration_ms >= 0),
  CHECK ((kind = 'close') = (duration_ms IS NOT NULL))
);
CREATE INDEX egress_audit_sandbox ON egress_audit (org, sandbox, id);
CREATE INDEX egress_audit_at ON egress_audit USING brin (at); -- rows come in the order of time; old ones are removed by it

CREATE TABLE egress_credentials (
  id         text PRIMARY KEY,             -- also what `sealed` is bound to
  org        text NOT NULL REFERENCES orgs,
  name       text NOT NULL,
  host       text NOT NULL,                -- a pattern (base/host.h), canonical
  header     text NOT NULL CHECK (header = lower(header)),
  sealed     text NOT NULL,                -- the header's whole value
  created_by text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (org, host, header)
);

CREATE FUNCTION egress_credentials_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('egress_credentials', CASE WHEN TG_OP = 'DELETE' THEN OLD.org ELSE NEW.org END);
  RETURN NULL;
END $$;
CREATE TRIGGER egress_credentials AFTER INSERT OR UPDATE OR DELETE ON egress_credentials
  FOR EACH ROW EXECUTE FUNCTION egress_credentials_changed();
