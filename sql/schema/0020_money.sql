-- Money (BIL-1…5, BIL-7, BIL-9): accounts, entries, reservations, usage, budgets, limits, reports. Amounts are whole millicents.
-- Invariants, held by the constraints and triggers below:
--   an account is one (org, subject, currency, test); '' is the org's pool, '$credits' and '$sales' are the other sides of its
--   credits and charges; entries are only ever added; those of a transaction come in one statement, sum to zero, and are of one
--   currency and of the test books or not, so the sum of all is zero at any moment; an account's balance is moved by the trigger
--   that lets its entries in, and by nothing else; a credit, and a charge, exists once for its org and reference; a call is
--   settled once, as its usage row exists once; usage is only ever added.
-- `gatehouse ledger check` proves the rest: reserved and calls are the sum and the number of an account's open reservations.
-- Locks are taken in this order, by everybody: one account that is no other side, its reservations, budgets by their ids, meters
-- by their keys, then an other side. The hot tables have no foreign keys: their rows come from the functions below only.

CREATE TABLE accounts (
  id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  org         text NOT NULL REFERENCES orgs,
  subject     text NOT NULL DEFAULT '' CHECK (length(subject) <= 128),
  currency    text NOT NULL DEFAULT 'usd' CHECK (currency ~ '^[a-z]{3}$'),
  test        boolean NOT NULL DEFAULT false,
  balance     bigint NOT NULL DEFAULT 0,
  reserved    bigint NOT NULL DEFAULT 0 CHECK (reserved >= 0),
  calls       integer NOT NULL DEFAULT 0 CHECK (calls >= 0),
  UNIQUE (org, subject, currency, test)
) WITH (fillfactor = 40);

CREATE TABLE ledger_tx (
  id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  org         text NOT NULL,
  kind        text NOT NULL CHECK (kind IN ('credit', 'charge')),
  reference   text NOT NULL CHECK (length(reference) BETWEEN 1 AND 255), -- a credit's key, a charge's request id
  by_user     text,
  at          timestamptz NOT NULL,
  UNIQUE (org, kind, reference)
);
CREATE TABLE entries (
  n           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tx          bigint NOT NULL,
  account     bigint NOT NULL,
  amount      bigint NOT NULL CHECK (amount <> 0)
);
CREATE INDEX entries_tx ON entries (tx);

CREATE TABLE usage_rows (
  n           bigint GENERATED ALWAYS AS IDENTITY,
  org         text NOT NULL,
  request     text NOT NULL CHECK (length(request) BETWEEN 1 AND 255),
  subject     text NOT NULL,
  currency    text NOT NULL,
  test        boolean NOT NULL,
  key         text,
  run         text,
  provider    text NOT NULL,
  model       text NOT NULL,
  tokens      bigint[] NOT NULL CHECK (array_length(tokens, 1) = 5), -- input, cached, cache write, output, reasoning
  millicents  bigint NOT NULL CHECK (millicents >= 0),
  estimated   boolean NOT NULL,
  by_reaper   boolean NOT NULL,
  at          timestamptz NOT NULL,
  PRIMARY KEY (org, request)
);
CREATE INDEX usage_rows_at ON usage_rows (org, at);
CREATE INDEX usage_rows_run ON usage_rows (org, run) WHERE run IS NOT NULL;

-- A call under way. `noted` is what it is known to have used so far.
CREATE TABLE reservations (
  org         text NOT NULL,
  request     text NOT NULL CHECK (length(request) BETWEEN 1 AND 255),
  account     bigint NOT NULL,
  amount      bigint NOT NULL CHECK (amount >= 0),
  tokens      bigint NOT NULL CHECK (tokens >= 0),
  key         text,
  run         text,
  session     text,
  gate        text NOT NULL,
  at          timestamptz NOT NULL,
  budgets     bigint[] NOT NULL DEFAULT '{}',      -- whose `reserved` holds its amount
  metered     text[] NOT NULL DEFAULT '{}',        -- the keys of the meters whose `calls` count it
  windows     timestamptz[] NOT NULL DEFAULT '{}', -- and the minutes of theirs that hold its tokens
  noted       boolean NOT NULL DEFAULT false,
  provider    text,
  model       text,
  used        bigint[],
  millicents  bigint,
  estimated   boolean,
  PRIMARY KEY (org, request),
  CHECK (NOT noted OR (provider IS NOT NULL AND model IS NOT NULL AND used IS NOT NULL AND millicents >= 0 AND estimated IS NOT NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX reservations_gate ON reservations (gate);
-- Processes that reserve. One whose `beats` stands still is dead, whatever any clock says.
CREATE TABLE gates (
  id          text PRIMARY KEY,
  beats       bigint NOT NULL DEFAULT 1,
  at          timestamptz NOT NULL DEFAULT clock_timestamp() -- for people, and for removing old rows
) WITH (fillfactor = 50);

-- scope: 'org', or the id of a key or run. What is spent and told belongs to the period that began at `since`.
CREATE TABLE budgets (
  id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  org         text NOT NULL REFERENCES orgs,
  scope       text NOT NULL CHECK (length(scope) BETWEEN 1 AND 64),
  period      text NOT NULL CHECK (period IN ('day', 'month', 'total')),
  currency    text NOT NULL DEFAULT 'usd' CHECK (currency ~ '^[a-z]{3}$'),
  test        boolean NOT NULL DEFAULT false,
  soft        bigint CHECK (soft >= 0),
  hard        bigint CHECK (hard >= 0),
  since       timestamptz NOT NULL,
  spent       bigint NOT NULL DEFAULT 0 CHECK (spent >= 0),
  reserved    bigint NOT NULL DEFAULT 0 CHECK (reserved >= 0),
  told        boolean NOT NULL DEFAULT false,
  created_by  text NOT NULL,
  CHECK (soft IS NOT NULL OR hard IS NOT NULL),
  UNIQUE (org, scope, period, currency, test)
) WITH (fillfactor = 50);

-- ID-7 for model calls. NULL is the deployment's default, 0 is none.
ALTER TABLE orgs
  ADD COLUMN tokens_per_minute integer CHECK (tokens_per_minute >= 0),
  ADD COLUMN concurrent_calls integer CHECK (concurrent_calls >= 0);
ALTER TABLE credentials
  ADD COLUMN requests_per_minute integer CHECK (requests_per_minute >= 0),
  ADD COLUMN tokens_per_minute integer CHECK (tokens_per_minute >= 0),
  ADD COLUMN concurrent_calls integer CHECK (concurrent_calls >= 0);
-- What an org (key '') or a key with limits has used of its minute and has open. Without limits there is no row.
CREATE TABLE meters (
  org         text NOT NULL,
  key         text NOT NULL,
  calls       integer NOT NULL CHECK (calls >= 0),
  until       timestamptz NOT NULL,
  requests    integer NOT NULL,
  tokens      bigint NOT NULL,
  PRIMARY KEY (org, key)
) WITH (fillfactor = 50);

-- Usage that has not been acknowledged by the external billing service. Told in the order (xid, n), and only what is below every
-- transaction under way: so nothing becomes visible before what was told already.
CREATE TABLE usage_reports (
  xid         xid8 NOT NULL DEFAULT pg_current_xact_id(),
  n           bigint GENERATED ALWAYS AS IDENTITY,
  org         text NOT NULL,
  request     text NOT NULL,
  PRIMARY KEY (xid, n)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE TABLE usage_reporter (
  one         boolean PRIMARY KEY DEFAULT true CHECK (one),
  holder      text,
  beats       bigint NOT NULL DEFAULT 0
);
INSERT INTO usage_reporter DEFAULT VALUES;

-- ---- what lets entries in

CREATE FUNCTION ledger_only_adds() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is only ever added to', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER entries_only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON entries EXECUTE FUNCTION ledger_only_adds();
CREATE TRIGGER ledger_tx_only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_tx EXECUTE FUNCTION ledger_only_adds();
CREATE TRIGGER usage_rows_only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON usage_rows EXECUTE FUNCTION ledger_only_adds();

CREATE FUNCTION ledger_balance() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_added bigint;
  v_sum numeric;
  v_tx bigint;
  v_other bigint;
  v_accounts bigint;
BEGIN
  SELECT count(*), sum(amount), min(tx), max(tx), count(DISTINCT account) INTO v_added, v_sum, v_tx, v_other, v_accounts FROM added;
  IF v_added = 0 THEN
    RETURN NULL;
  END IF;
  -- A transaction has all its entries from one statement: one that comes later would find some there already.
  IF v_tx <> v_other OR v_sum <> 0 OR v_added <> (SELECT count(*) FROM entries WHERE tx = v_tx) THEN
    RAISE EXCEPTION 'a transaction must balance, in one statement' USING ERRCODE = 'check_violation';
  END IF;
  WITH moved AS (
    UPDATE accounts c SET balance = c.balance + a.amount FROM (SELECT account, sum(amount)::bigint AS amount FROM added GROUP BY account) a
    WHERE c.id = a.account RETURNING c.org, c.currency, c.test)
  SELECT count(*) FILTER (WHERE (m.org, m.currency, m.test) = (f.org, f.currency, f.test)) INTO v_other
  FROM moved m, (SELECT * FROM moved LIMIT 1) f;
  IF v_other <> v_accounts THEN
    RAISE EXCEPTION 'a transaction is of one org, currency and book' USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER entries_balance AFTER INSERT ON entries REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION ledger_balance();

-- ---- functions: each call of the gate is one of them

-- Its own function so that a test can say what time it is.
CREATE FUNCTION money_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()';
CREATE FUNCTION money_period(p_period text, p_at timestamptz) RETURNS timestamptz LANGUAGE sql STABLE AS
  'SELECT CASE WHEN p_period = ''total'' THEN timestamptz ''epoch'' ELSE date_trunc(p_period, p_at, ''UTC'') END';

-- What an account has for further calls: the one judgement of the gate and of the balance route (BIL-9).
CREATE FUNCTION money_available(a accounts) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT a.balance - a.reserved';
-- A balance; no row, no account.
CREATE FUNCTION money_read(p_org text, p_subject text, p_currency text, p_test boolean)
RETURNS TABLE (balance bigint, reserved bigint, available bigint) LANGUAGE sql STABLE AS
  'SELECT a.balance, a.reserved, money_available(a) FROM accounts a
   WHERE org = p_org AND subject = p_subject AND currency = p_currency AND test = p_test';

-- The account's id, locked; it is made when there is none.
CREATE FUNCTION money_account(p_org text, p_subject text, p_currency text, p_test boolean) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE v bigint;
BEGIN
  SELECT id INTO v FROM accounts
  WHERE org = p_org AND subject = p_subject AND currency = p_currency AND test = p_test FOR NO KEY UPDATE;
  IF v IS NULL THEN
    INSERT INTO accounts (org, subject, currency, test) VALUES (p_org, p_subject, p_currency, p_test)
    ON CONFLICT (org, subject, currency, test) DO UPDATE SET calls = accounts.calls RETURNING id INTO v;
  END IF;
  RETURN v;
END $$;

-- Amount from one account to another of the same org: one transaction.
CREATE FUNCTION money_move(p_org text, p_kind text, p_reference text, p_by text, p_at timestamptz, p_from bigint, p_to bigint,
  p_amount bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v bigint;
BEGIN
  INSERT INTO ledger_tx (org, kind, reference, by_user, at) VALUES (p_org, p_kind, p_reference, p_by, p_at) RETURNING id INTO v;
  INSERT INTO entries (tx, account, amount) VALUES (v, p_from, -p_amount), (v, p_to, p_amount);
END $$;

-- What a meter holds now: its row, locked, with a new minute where its own is over. A minute that ends further away than it can was
-- written before a clock stepped back.
CREATE FUNCTION money_meter(p_org text, p_key text, p_now timestamptz) RETURNS meters LANGUAGE plpgsql AS $$
DECLARE m meters;
BEGIN
  INSERT INTO meters VALUES (p_org, p_key, 0, p_now, 0, 0) ON CONFLICT (org, key) DO NOTHING;
  SELECT * INTO m FROM meters WHERE org = p_org AND key = p_key FOR NO KEY UPDATE;
  IF m.until NOT BETWEEN p_now AND p_now + interval '1 minute' OR m.until = p_now THEN
    m.until := p_now + interval '1 minute';
    m.requests := 0;
    m.tokens := 0;
  END IF;
  RETURN m;
END $$;

-- May the call start? Then its reservation is made. p_limits: what the settings say where a row says nothing: the org's tokens a
-- minute and calls at once, a key's requests and tokens a minute and calls at once, the org's requests a minute (those are
-- counted at the door, and only told here). A run that is not named is the session's. verdict: ok (warned: without balance), balance,
-- budget, requests, tokens, calls, used. limits: of the tightest of org and key, limit, left and milliseconds of requests, then of
-- tokens.
CREATE FUNCTION money_reserve(p_org text, p_request text, p_subject text, p_currency text, p_test boolean, p_key text, p_run text,
  p_session text, p_amount bigint, p_tokens bigint, p_mode text, p_gate text, p_limits integer[],
  OUT verdict text, OUT what text, OUT retry_ms bigint, OUT warned boolean, OUT limits bigint[], OUT run text) LANGUAGE plpgsql AS $$
DECLARE
  v_account bigint;
  v_available bigint;
  b budgets;
  m meters;
  v_now timestamptz;
  v_budgeted boolean;
  v_door integer;
  v_budgets bigint[] := '{}';
  v_orgs integer[];
  v_keys integer[];
  v_most integer[];
  v_meters meters[] := '{}';
  v_metered text[] := '{}';
  v_windows timestamptz[] := '{}';
  v_ms bigint;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  verdict := 'ok';
  warned := false;
  limits := '{0,0,0,0,0,0}';
  run := p_run;
  IF run IS NULL AND p_session IS NOT NULL THEN
    SELECT r.id INTO run FROM runs r WHERE r.org = p_org AND r.session = p_session;
  END IF;
  FOR i IN 1..2 LOOP
    SELECT c.id, money_available(c), ARRAY[0, coalesce(o.tokens_per_minute, p_limits[1]), coalesce(o.concurrent_calls, p_limits[2])],
      ARRAY[coalesce(k.requests_per_minute, p_limits[3]), coalesce(k.tokens_per_minute, p_limits[4]),
        coalesce(k.concurrent_calls, p_limits[5])], EXISTS (SELECT FROM budgets WHERE org = p_org),
      coalesce(o.requests_per_minute, p_limits[6])
    INTO v_account, v_available, v_orgs, v_keys, v_budgeted, v_door
    FROM accounts c JOIN orgs o ON o.slug = c.org LEFT JOIN credentials k ON k.id = p_key AND k.org = c.org
    WHERE c.org = p_org AND c.subject = p_subject AND c.currency = p_currency AND c.test = p_test FOR NO KEY UPDATE OF c;
    EXIT WHEN v_account IS NOT NULL;
    IF p_mode = 'closed' AND p_amount > 0 THEN
      verdict := 'balance';
      RETURN;
    END IF;
    PERFORM money_account(p_org, p_subject, p_currency, p_test);
  END LOOP;
  IF p_mode <> 'open' AND p_amount > v_available THEN
    IF p_mode = 'closed' THEN
      verdict := 'balance';
      RETURN;
    END IF;
    warned := true;
  END IF;
  v_now := money_now();

  IF v_budgeted THEN
    FOR b IN SELECT * FROM budgets WHERE org = p_org AND currency = p_currency AND test = p_test
        AND scope IN ('org', p_key, money_reserve.run) ORDER BY id FOR NO KEY UPDATE LOOP
      IF b.since <> money_period(b.period, v_now) THEN
        b.spent := 0;
      END IF;
      IF b.spent + b.reserved + p_amount > b.hard THEN
        verdict := 'budget';
        what := b.scope || ' ' || b.period;
        RETURN;
      END IF;
      v_budgets := v_budgets || b.id;
    END LOOP;
  END IF;

  IF v_door > 0 THEN
    SELECT ARRAY[v_door, greatest(0, v_door - q.used), (extract(epoch FROM q.until - v_now) * 1000)::bigint, 0, 0, 0] INTO limits
    FROM org_requests q WHERE q.org = p_org AND q.until BETWEEN v_now AND v_now + interval '1 minute';
    limits := coalesce(limits, ARRAY[v_door, v_door, 60000, 0, 0, 0]);
  END IF;
  FOR i IN 1..2 LOOP
    v_most := CASE i WHEN 1 THEN v_orgs ELSE v_keys END;
    CONTINUE WHEN v_most = '{0,0,0}' OR (i = 2 AND p_key IS NULL);
    m := money_meter(p_org, CASE i WHEN 1 THEN '' ELSE p_key END, v_now);
    v_ms := (extract(epoch FROM m.until - v_now) * 1000)::bigint;
    IF v_most[3] > 0 AND m.calls >= v_most[3] THEN
      verdict := 'calls';
      what := v_most[3];
    ELSIF v_most[1] > 0 AND m.requests >= v_most[1] THEN
      verdict := 'requests';
      what := v_most[1];
    ELSIF v_most[2] > 0 AND m.tokens > 0 AND m.tokens + p_tokens > v_most[2] THEN
      verdict := 'tokens';
      what := v_most[2];
    ELSE
      m.requests := m.requests + 1;
      m.tokens := m.tokens + p_tokens;
    END IF;
    IF v_most[1] > 0 AND (limits[1] = 0 OR v_most[1] - m.requests < limits[2]) THEN
      limits[1:3] := ARRAY[v_most[1], greatest(0, v_most[1] - m.requests), v_ms];
    END IF;
    IF v_most[2] > 0 AND (limits[4] = 0 OR v_most[2] - m.tokens < limits[5]) THEN
      limits[4:6] := ARRAY[v_most[2], greatest(0, v_most[2] - m.tokens), v_ms];
    END IF;
    IF verdict <> 'ok' THEN
      retry_ms := v_ms;
      RETURN;
    END IF;
    m.calls := m.calls + 1;
    v_meters := v_meters || m;
    v_metered := v_metered || m.key;
    v_windows := v_windows || m.until;
  END LOOP;

  INSERT INTO reservations (org, request, account, amount, tokens, key, run, session, gate, at, budgets, metered, windows)
  SELECT p_org, p_request, v_account, p_amount, p_tokens, p_key, money_reserve.run, p_session, p_gate, v_now, v_budgets, v_metered, v_windows
  WHERE NOT EXISTS (SELECT FROM usage_rows WHERE org = p_org AND request = p_request) ON CONFLICT (org, request) DO NOTHING;
  IF NOT FOUND THEN
    verdict := 'used';
    RETURN;
  END IF;
  UPDATE accounts SET reserved = accounts.reserved + p_amount, calls = accounts.calls + 1 WHERE id = v_account;
  IF v_budgets <> '{}' THEN
    UPDATE budgets SET reserved = budgets.reserved + p_amount WHERE id = ANY (v_budgets);
  END IF;
  IF v_meters <> '{}' THEN
    UPDATE meters SET calls = u.calls, until = u.until, requests = u.requests, tokens = u.tokens
    FROM unnest(v_meters) u WHERE meters.org = u.org AND meters.key = u.key;
  END IF;
END $$;

-- Take a reservation away; the caller has locked its account. p_tokens: what was really used, for the meters.
CREATE FUNCTION money_unreserve(p_org text, p_request text, p_tokens bigint) RETURNS reservations LANGUAGE plpgsql AS $$
DECLARE r reservations;
BEGIN
  DELETE FROM reservations WHERE org = p_org AND request = p_request RETURNING * INTO r;
  IF r.org IS NULL THEN
    RETURN NULL;
  END IF;
  UPDATE accounts SET reserved = reserved - r.amount, calls = calls - 1 WHERE id = r.account;
  IF r.budgets <> '{}' THEN
    PERFORM FROM budgets WHERE org = p_org AND id = ANY (r.budgets) ORDER BY id FOR NO KEY UPDATE;
    UPDATE budgets SET reserved = reserved - r.amount WHERE org = p_org AND id = ANY (r.budgets);
  END IF;
  IF r.metered <> '{}' THEN
    PERFORM FROM meters WHERE org = p_org AND key = ANY (r.metered) ORDER BY key FOR NO KEY UPDATE;
    UPDATE meters m SET calls = m.calls - 1,
      tokens = CASE WHEN m.until = w.until THEN greatest(0, m.tokens - r.tokens + p_tokens) ELSE m.tokens END
    FROM unnest(r.metered, r.windows) AS w (key, until) WHERE m.org = p_org AND m.key = w.key;
  END IF;
  RETURN r;
END $$;

-- What was used becomes a charge, a usage row and, where there is somebody to tell, a report; the reservation is gone. Also
-- without a reservation (a crash of PostgreSQL may lose one), and once. soft: reached soft budgets, {scope, period, spent, soft}.
CREATE FUNCTION money_settle(p_org text, p_request text, p_subject text, p_currency text, p_test boolean, p_key text, p_run text,
  p_provider text, p_model text, p_tokens bigint[], p_millicents bigint, p_estimated boolean, p_reaper boolean, p_report boolean,
  OUT verdict text, OUT cost bigint, OUT soft text) LANGUAGE plpgsql AS $$
DECLARE
  b budgets;
  v_account bigint;
  v_sales bigint;
  v_budgeted boolean;
  v_now timestamptz;
  v_since timestamptz;
  v_sum bigint := 0;
  v_soft jsonb := '[]';
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  SELECT a.id, s.id, EXISTS (SELECT FROM budgets WHERE org = p_org) INTO v_account, v_sales, v_budgeted
  FROM accounts a LEFT JOIN accounts s ON s.org = a.org AND s.subject = '$sales' AND s.currency = a.currency AND s.test = a.test
  WHERE a.org = p_org AND a.subject = p_subject AND a.currency = p_currency AND a.test = p_test FOR NO KEY UPDATE OF a;
  IF v_account IS NULL THEN
    v_account := money_account(p_org, p_subject, p_currency, p_test);
    v_budgeted := true;
  END IF;
  v_now := money_now();
  INSERT INTO usage_rows (org, request, subject, currency, test, key, run, provider, model, tokens, millicents, estimated, by_reaper, at)
  VALUES (p_org, p_request, p_subject, p_currency, p_test, p_key, p_run, p_provider, p_model, p_tokens, p_millicents, p_estimated,
    p_reaper, v_now) ON CONFLICT (org, request) DO NOTHING;
  IF NOT FOUND THEN
    SELECT 'again', u.millicents INTO verdict, cost FROM usage_rows u WHERE u.org = p_org AND u.request = p_request;
    RETURN;
  END IF;
  verdict := 'settled';
  cost := p_millicents;
  IF v_budgeted THEN
    FOR b IN SELECT * FROM budgets WHERE org = p_org AND currency = p_currency AND test = p_test
        AND scope IN ('org', p_key, p_run) ORDER BY id FOR NO KEY UPDATE LOOP
      v_since := money_period(b.period, v_now);
      IF b.since <> v_since THEN
        b.spent := 0;
        b.told := false;
      END IF;
      b.spent := b.spent + p_millicents;
      IF NOT b.told AND b.spent >= b.soft THEN
        b.told := true;
        v_soft := v_soft || jsonb_build_object('scope', b.scope, 'period', b.period, 'spent', b.spent, 'soft', b.soft);
      END IF;
      UPDATE budgets SET since = v_since, spent = b.spent, told = b.told WHERE id = b.id;
    END LOOP;
    IF v_soft <> '[]' THEN
      soft := v_soft;
    END IF;
  END IF;
  FOR i IN 1..5 LOOP
    v_sum := v_sum + p_tokens[i];
  END LOOP;
  PERFORM money_unreserve(p_org, p_request, v_sum);
  IF p_report THEN
    INSERT INTO usage_reports (org, request) VALUES (p_org, p_request);
  END IF;
  IF p_millicents > 0 THEN
    PERFORM money_move(p_org, 'charge', p_request, NULL, v_now, v_account,
      coalesce(v_sales, money_account(p_org, '$sales', p_currency, p_test)), p_millicents);
  END IF;
END $$;

CREATE FUNCTION money_release(p_org text, p_request text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  r reservations;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM FROM accounts WHERE id = (SELECT account FROM reservations WHERE org = p_org AND request = p_request) FOR NO KEY UPDATE;
  r := money_unreserve(p_org, p_request, 0);
  RETURN r.org IS NOT NULL;
END $$;

-- One reservation of a process that is dead: settled by what it had noted, or let go. No row: it has none.
CREATE FUNCTION money_reap(p_gate text, p_report boolean)
RETURNS TABLE (org text, request text, run text, session text, noted boolean, cost bigint, soft text) LANGUAGE plpgsql AS $$
DECLARE
  r reservations;
  a accounts;
BEGIN
  SELECT v.* INTO r FROM reservations v WHERE v.gate = p_gate ORDER BY v.at LIMIT 1;
  IF r.org IS NULL THEN
    RETURN;
  END IF;
  SELECT * INTO a FROM accounts c WHERE c.id = r.account FOR NO KEY UPDATE;
  -- Its notes as they are under the lock: a process that was only slow may have settled it meanwhile.
  SELECT v.* INTO r FROM reservations v WHERE v.org = r.org AND v.request = r.request AND v.gate = p_gate;
  IF r.org IS NULL THEN
    RETURN QUERY SELECT NULL::text, NULL::text, NULL::text, NULL::text, false, 0::bigint, NULL::text;
  ELSIF r.noted THEN
    RETURN QUERY SELECT r.org, r.request, r.run, r.session, true, s.cost, s.soft
    FROM money_settle(r.org, r.request, a.subject, a.currency, a.test, r.key, r.run, r.provider, r.model, r.used, r.millicents,
      r.estimated, true, p_report) s;
  ELSE
    PERFORM money_release(r.org, r.request);
    RETURN QUERY SELECT r.org, r.request, r.run, r.session, false, 0::bigint, NULL::text;
  END IF;
END $$;

-- A credit, once for its key. verdict: credited; again (the same); other (the key was used for another account or amount).
CREATE FUNCTION money_credit(p_org text, p_subject text, p_currency text, p_test boolean, p_amount bigint, p_key text, p_by text,
  OUT verdict text, OUT balance bigint, OUT reserved bigint) LANGUAGE plpgsql AS $$
DECLARE
  v_account bigint := money_account(p_org, p_subject, p_currency, p_test);
BEGIN
  verdict := 'credited';
  IF EXISTS (SELECT FROM ledger_tx t WHERE t.org = p_org AND t.kind = 'credit' AND t.reference = p_key) THEN
    verdict := CASE WHEN EXISTS (SELECT FROM ledger_tx t JOIN entries e ON e.tx = t.id
      WHERE t.org = p_org AND t.kind = 'credit' AND t.reference = p_key AND e.account = v_account AND e.amount = p_amount)
      THEN 'again' ELSE 'other' END;
  ELSE
    PERFORM money_move(p_org, 'credit', p_key, p_by, money_now(), money_account(p_org, '$credits', p_currency, p_test), v_account,
      p_amount);
  END IF;
  SELECT m.balance, m.reserved INTO balance, reserved FROM money_read(p_org, p_subject, p_currency, p_test) m;
END $$;

-- Make or change a budget. What was spent in its period before it existed counts: no settlement runs between the sum and the row.
CREATE FUNCTION money_budget(p_org text, p_scope text, p_period text, p_currency text, p_test boolean, p_soft bigint, p_hard bigint,
  p_by text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_since timestamptz;
BEGIN
  PERFORM FROM accounts WHERE org = p_org AND currency = p_currency AND test = p_test AND subject NOT LIKE '$%'
  ORDER BY id FOR NO KEY UPDATE;
  v_since := money_period(p_period, money_now());
  INSERT INTO budgets AS b (org, scope, period, currency, test, soft, hard, since, spent, created_by)
  VALUES (p_org, p_scope, p_period, p_currency, p_test, p_soft, p_hard, v_since,
    (SELECT coalesce(sum(u.millicents), 0)::bigint FROM usage_rows u WHERE u.org = p_org AND u.at >= v_since AND u.currency = p_currency
      AND u.test = p_test AND (p_scope = 'org' OR p_scope IN (u.key, u.run))), p_by)
  ON CONFLICT (org, scope, period, currency, test) DO UPDATE
    SET told = b.told AND b.soft IS NOT DISTINCT FROM excluded.soft, soft = excluded.soft, hard = excluded.hard;
END $$;
