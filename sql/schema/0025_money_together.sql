-- What the gate costs: reservations and settlements of one account come together, in one statement each (0020 says what holds; its
-- locks are taken in its order). What they cost one by one was mostly this, measured:
--   The account's row was written four times a call: now once for all reservations that came together, twice for all settlements.
--   A CHECK is parsed anew by each statement that writes its table, some 10 us each: those of the two tables that every reservation
--   writes are now in the functions that are their only writers, and in a trigger for new accounts.
--   A plan that a connection made while a table was empty reads all of it for as long as it lives or until the table is analyzed, and
--   one for arrays of unknown length is made anew each time: so what is planned here may not read a table from end to end
--   (enable_seqscan), is kept (plan_cache_mode), and looks rows up in subqueries that are no joins.
-- money_reserve and money_settle are for processes of the version before, which run until an upgrade is over (REL-6), and
-- money_settle for money_reap: money_reserve can go with the next version.

-- Nobody looks an entry up by its number, and identity makes it unique.
ALTER TABLE entries DROP CONSTRAINT entries_pkey;

ALTER TABLE reservations DROP CONSTRAINT reservations_request_check, DROP CONSTRAINT reservations_amount_check,
  DROP CONSTRAINT reservations_tokens_check, DROP CONSTRAINT reservations_check;
ALTER TABLE accounts DROP CONSTRAINT accounts_subject_check, DROP CONSTRAINT accounts_currency_check,
  DROP CONSTRAINT accounts_reserved_check, DROP CONSTRAINT accounts_calls_check;
CREATE FUNCTION money_account_new() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF length(new.subject) > 128 OR new.currency !~ '^[a-z]{3}$' OR new.reserved < 0 OR new.calls < 0 THEN
    RAISE EXCEPTION 'an account has a subject of at most 128 characters and a currency of three letters' USING ERRCODE = 'check_violation';
  END IF;
  RETURN new;
END $$;
CREATE TRIGGER accounts_new BEFORE INSERT OR UPDATE OF org, subject, currency, test ON accounts
  FOR EACH ROW EXECUTE FUNCTION money_account_new();

-- As in 0020, but a statement may hold the whole of several transactions; all of a statement are of one org, currency and book.
CREATE OR REPLACE FUNCTION ledger_balance() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_off text := set_config('enable_seqscan', 'off', true)
    || set_config('plan_cache_mode', 'force_generic_plan', true);
  v_right boolean;
  v_accounts bigint;
  v_moved bigint;
BEGIN
  SELECT bool_and(t.amount = 0 AND t.added = t.there), (SELECT count(DISTINCT account) FROM added) INTO v_right, v_accounts
  FROM (SELECT sum(a.amount) AS amount, count(*) AS added, (SELECT count(*) FROM entries e WHERE e.tx = a.tx) AS there
    FROM added a GROUP BY a.tx) t;
  IF v_right IS NULL THEN
    RETURN NULL;
  END IF;
  -- A transaction has all its entries from one statement: one that comes later would find some there already.
  IF NOT v_right THEN
    RAISE EXCEPTION 'a transaction must balance, in one statement' USING ERRCODE = 'check_violation';
  END IF;
  WITH moved AS (
    UPDATE accounts c SET balance = c.balance + a.amount FROM (SELECT account, sum(amount)::bigint AS amount FROM added GROUP BY account) a
    WHERE c.id = a.account RETURNING c.org, c.currency, c.test)
  SELECT count(*) FILTER (WHERE (m.org, m.currency, m.test) = (f.org, f.currency, f.test)) INTO v_moved
  FROM moved m, (SELECT * FROM moved LIMIT 1) f;
  IF v_moved <> v_accounts THEN
    RAISE EXCEPTION 'a transaction is of one org, currency and book' USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END $$;

-- What an org has left of its requests a minute, which are counted at the door (0009).
CREATE FUNCTION money_door(p_org text, p_most integer, p_now timestamptz) RETURNS bigint[] LANGUAGE sql STABLE AS
  'SELECT coalesce((SELECT ARRAY[p_most, greatest(0, p_most - q.used), (extract(epoch FROM q.until - p_now) * 1000)::bigint, 0, 0, 0]
     FROM org_requests q WHERE q.org = p_org AND q.until BETWEEN p_now AND p_now + interval ''1 minute''),
     ARRAY[p_most, p_most, 60000, 0, 0, 0])';

-- The same where a limit or budget is in the way, or not enough for all. Budgets and meters are read and written once for all.
CREATE FUNCTION money_admit_each(p_org text, p_subject text, p_currency text, p_test boolean, p_mode text, p_gate text,
  p_limits integer[], p_request text[], p_key text[], p_run text[], p_session text[], p_amount bigint[], p_tokens bigint[])
RETURNS TABLE (at integer, verdict text, what text, retry_ms bigint, warned boolean, limits bigint[], run text, metered boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  n integer := cardinality(p_request);
  v_now timestamptz;
  v_account bigint;
  v_available bigint;
  v_door bigint[] := '{0,0,0,0,0,0}';
  v_most integer[];           -- of the org, then of a key: requests and tokens a minute, calls at once
  v_mosts integer[] := '{}';  -- those of each meter, one after the other
  v_key text;
  v_runs text[] := p_run;
  v_budgets budgets[];
  v_meters meters[] := '{}';
  v_new meters[];
  v_of bigint[];              -- the budgets of a call
  v_try budgets[];
  v_metered text[];           -- its meters, and their minutes
  v_windows timestamptz[];
  v_calls integer := 0;
  v_sum bigint := 0;
  v_ms bigint;
  b budgets;
  m meters;
BEGIN
  FOR i IN 1..2 LOOP
    SELECT c.id, money_available(c), ARRAY[0, coalesce(o.tokens_per_minute, p_limits[1]), coalesce(o.concurrent_calls, p_limits[2]),
      coalesce(o.requests_per_minute, p_limits[6])]
    INTO v_account, v_available, v_most
    FROM accounts c JOIN orgs o ON o.slug = c.org
    WHERE c.org = p_org AND c.subject = p_subject AND c.currency = p_currency AND c.test = p_test FOR NO KEY UPDATE OF c;
    EXIT WHEN v_account IS NOT NULL;
    IF p_mode = 'closed' AND 0 < ALL (p_amount) THEN
      RETURN QUERY SELECT i - 1, 'balance', NULL::text, NULL::bigint, false, v_door, p_run[i], false
      FROM generate_series(1, n) i;
      RETURN;
    END IF;
    PERFORM money_account(p_org, p_subject, p_currency, p_test);
  END LOOP;
  v_now := money_now();
  IF v_most[4] > 0 THEN
    v_door := money_door(p_org, v_most[4], v_now);
  END IF;
  FOR i IN 1..n LOOP
    IF p_run[i] IS NULL AND p_session[i] IS NOT NULL THEN
      SELECT r.id INTO v_key FROM runs r WHERE r.org = p_org AND r.session = p_session[i];
      v_runs[i] := v_key;
    END IF;
  END LOOP;
  SELECT coalesce(array_agg(x.b), '{}') INTO v_budgets FROM (SELECT b FROM budgets b
    WHERE b.org = p_org AND b.currency = p_currency AND b.test = p_test AND b.scope = ANY ('org'::text || p_key || v_runs)
    ORDER BY b.id FOR NO KEY UPDATE) x;
  FOR v_key IN SELECT DISTINCT k FROM unnest(''::text || p_key) k WHERE k IS NOT NULL ORDER BY k LOOP
    IF v_key <> '' THEN
      v_most := p_limits[3:5];
      SELECT ARRAY[coalesce(k.requests_per_minute, p_limits[3]), coalesce(k.tokens_per_minute, p_limits[4]),
        coalesce(k.concurrent_calls, p_limits[5])] INTO v_most
      FROM (SELECT) one LEFT JOIN credentials k ON k.id = v_key AND k.org = p_org;
    END IF;
    CONTINUE WHEN v_most[1:3] = '{0,0,0}';
    v_meters := v_meters || money_meter(p_org, v_key, v_now);
    v_mosts := v_mosts || v_most[1:3];
  END LOOP;

  <<calls>>
  FOR i IN 1..n LOOP
    at := i - 1;
    verdict := 'ok';
    what := NULL;
    retry_ms := NULL;
    limits := '{0,0,0,0,0,0}'; -- unknown, until it is their turn
    run := v_runs[i];
    warned := p_mode <> 'open' AND p_amount[i] > v_available - v_sum;
    IF warned AND p_mode = 'closed' THEN
      verdict := 'balance';
      warned := false;
    END IF;
    v_of := '{}';
    v_try := v_budgets;
    FOR k IN 1..cardinality(v_budgets) LOOP
      b := v_budgets[k];
      CONTINUE WHEN verdict <> 'ok' OR (b.scope <> 'org' AND b.scope IS DISTINCT FROM p_key[i] AND b.scope IS DISTINCT FROM v_runs[i]);
      IF (CASE WHEN b.since = money_period(b.period, v_now) THEN b.spent ELSE 0 END) + b.reserved + p_amount[i] > b.hard THEN
        verdict := 'budget';
        what := b.scope || ' ' || b.period;
      END IF;
      b.reserved := b.reserved + p_amount[i];
      v_try[k] := b;
      v_of := v_of || b.id;
    END LOOP;
    IF verdict = 'ok' THEN
      limits := v_door;
    END IF;
    v_new := v_meters;
    v_metered := '{}';
    v_windows := '{}';
    FOR k IN 1..cardinality(v_meters) LOOP
      m := v_meters[k];
      CONTINUE WHEN verdict <> 'ok' OR (m.key <> '' AND m.key IS DISTINCT FROM p_key[i]);
      v_most := v_mosts[3 * k - 2:3 * k];
      v_ms := (extract(epoch FROM m.until - v_now) * 1000)::bigint;
      IF v_most[3] > 0 AND m.calls >= v_most[3] THEN
        verdict := 'calls';
        what := v_most[3];
      ELSIF v_most[1] > 0 AND m.requests >= v_most[1] THEN
        verdict := 'requests';
        what := v_most[1];
      ELSIF v_most[2] > 0 AND m.tokens > 0 AND m.tokens + p_tokens[i] > v_most[2] THEN
        verdict := 'tokens';
        what := v_most[2];
      ELSE
        m.requests := m.requests + 1;
        m.tokens := m.tokens + p_tokens[i];
      END IF;
      IF v_most[1] > 0 AND (limits[1] = 0 OR v_most[1] - m.requests < limits[2]) THEN
        limits[1:3] := ARRAY[v_most[1], greatest(0, v_most[1] - m.requests), v_ms];
      END IF;
      IF v_most[2] > 0 AND (limits[4] = 0 OR v_most[2] - m.tokens < limits[5]) THEN
        limits[4:6] := ARRAY[v_most[2], greatest(0, v_most[2] - m.tokens), v_ms];
      END IF;
      retry_ms := CASE WHEN verdict <> 'ok' THEN v_ms END;
      m.calls := m.calls + 1;
      v_new[k] := m;
      v_metered := v_metered || m.key;
      v_windows := v_windows || m.until;
    END LOOP;
    metered := v_metered <> '{}';
    IF verdict = 'ok' THEN
      INSERT INTO reservations (org, request, account, amount, tokens, key, run, session, gate, at, budgets, metered, windows)
      SELECT p_org, p_request[i], v_account, p_amount[i], p_tokens[i], p_key[i], v_runs[i], p_session[i], p_gate, v_now, v_of, v_metered,
        v_windows
      WHERE NOT EXISTS (SELECT FROM usage_rows u WHERE u.org = p_org AND u.request = p_request[i]) ON CONFLICT (org, request) DO NOTHING;
      IF FOUND THEN
        v_sum := v_sum + p_amount[i];
        v_calls := v_calls + 1;
        v_budgets := v_try;
        v_meters := v_new;
      ELSE
        verdict := 'used';
      END IF;
    END IF;
    RETURN NEXT;
  END LOOP;
  IF v_calls > 0 THEN
    UPDATE accounts SET reserved = accounts.reserved + v_sum, calls = accounts.calls + v_calls WHERE id = v_account;
  END IF;
  IF v_calls > 0 AND v_budgets <> '{}' THEN
    UPDATE budgets SET reserved = u.reserved FROM unnest(v_budgets) u WHERE budgets.id = u.id;
  END IF;
  IF v_calls > 0 AND v_meters <> '{}' THEN
    UPDATE meters SET calls = u.calls, until = u.until, requests = u.requests, tokens = u.tokens
    FROM unnest(v_meters) u WHERE meters.org = u.org AND meters.key = u.key;
  END IF;
END $$;

-- Calls that were asked for together, of one account: each is judged as if alone and in this order (money_reserve in 0020 says how, and
-- what p_limits and the answer are). metered: a limit counts it while it is open. Where the same requests are written for another
-- account at this moment it fails as a whole: ask one by one.
CREATE FUNCTION money_admit(p_org text, p_subject text, p_currency text, p_test boolean, p_mode text, p_gate text, p_limits integer[],
  p_request text[], p_key text[], p_run text[], p_session text[], p_amount bigint[], p_tokens bigint[])
RETURNS TABLE (at integer, verdict text, what text, retry_ms bigint, warned boolean, limits bigint[], run text, metered boolean)
LANGUAGE plpgsql AS $$
DECLARE
  v_off text := set_config('synchronous_commit', 'off', true) || set_config('enable_seqscan', 'off', true)
    || set_config('plan_cache_mode', 'force_generic_plan', true);
  n integer := cardinality(p_request);
  v_now timestamptz;
  v_total bigint := 0;
  v_account bigint;
  v_door integer;
  v_left bigint;
  v_ok text[];
  v_runs text[];
BEGIN
  FOR i IN 1..n LOOP
    IF p_amount[i] < 0 OR p_tokens[i] < 0 OR length(p_request[i]) NOT BETWEEN 1 AND 255 THEN
      RAISE EXCEPTION 'a call has a request id of at most 255 characters, and amounts that are not negative' USING ERRCODE = 'check_violation';
    END IF;
    v_total := v_total + p_amount[i];
  END LOOP;
  -- What nearly all are: no limit or budget is in the way, and there is enough for all of them.
  UPDATE accounts c SET reserved = c.reserved + v_total, calls = c.calls + n
  FROM orgs o
  WHERE c.org = p_org AND c.subject = p_subject AND c.currency = p_currency AND c.test = p_test AND o.slug = p_org
    AND (p_mode = 'open' OR v_total <= money_available(c))
    AND coalesce(o.tokens_per_minute, p_limits[1]) = 0 AND coalesce(o.concurrent_calls, p_limits[2]) = 0
    AND NOT EXISTS (SELECT FROM budgets WHERE org = p_org)
    AND (p_limits[3:5] = '{0,0,0}' OR p_key = array_fill(NULL::text, ARRAY[n]))
    AND NOT EXISTS (SELECT FROM unnest(p_key) mine (key) WHERE (SELECT k.requests_per_minute > 0 OR k.tokens_per_minute > 0
      OR k.concurrent_calls > 0 FROM credentials k WHERE k.id = mine.key AND k.org = p_org))
  RETURNING c.id, coalesce(o.requests_per_minute, p_limits[6]) INTO v_account, v_door;
  IF v_account IS NULL THEN
    RETURN QUERY SELECT * FROM money_admit_each(p_org, p_subject, p_currency, p_test, p_mode, p_gate, p_limits, p_request, p_key, p_run,
      p_session, p_amount, p_tokens);
    RETURN;
  END IF;
  v_now := money_now();
  warned := false;
  metered := false;
  limits := '{0,0,0,0,0,0}';
  IF v_door > 0 THEN
    limits := money_door(p_org, v_door, v_now);
  END IF;
  WITH mine AS (
    INSERT INTO reservations (org, request, account, amount, tokens, key, run, session, gate, at)
    SELECT p_org, a.request, v_account, a.amount, a.tokens, a.key, CASE WHEN a.run IS NULL AND a.session IS NOT NULL
      THEN (SELECT r.id FROM runs r WHERE r.org = p_org AND r.session = a.session) ELSE a.run END, a.session, p_gate, v_now
    FROM unnest(p_request, p_key, p_run, p_session, p_amount, p_tokens) WITH ORDINALITY AS a (request, key, run, session, amount, tokens, nth)
    WHERE (SELECT u.millicents FROM usage_rows u WHERE u.org = p_org AND u.request = a.request) IS NULL ORDER BY a.nth
    ON CONFLICT (org, request) DO NOTHING RETURNING reservations.request, reservations.run)
  SELECT array_agg(m.request), array_agg(m.run) INTO v_ok, v_runs FROM mine m;
  v_left := v_total;
  FOR i IN 1..n LOOP
    at := i - 1;
    -- Of those that name one request the first is it.
    v_door := CASE WHEN array_position(p_request, p_request[i]) = i THEN array_position(v_ok, p_request[i]) END;
    verdict := CASE WHEN v_door IS NULL THEN 'used' ELSE 'ok' END;
    run := CASE WHEN v_door IS NULL THEN p_run[i] ELSE v_runs[v_door] END;
    v_left := v_left - CASE WHEN v_door IS NULL THEN 0 ELSE p_amount[i] END;
    RETURN NEXT;
  END LOOP;
  IF cardinality(v_ok) IS DISTINCT FROM n THEN
    UPDATE accounts SET reserved = reserved - v_left, calls = calls - n + coalesce(cardinality(v_ok), 0) WHERE id = v_account;
  END IF;
END $$;

-- What ended calls of one account have used becomes charges, usage rows and, where there is somebody to tell, reports; their
-- reservations are gone. Each as if alone and in this order (money_settle in 0020 says how), once by its request id. p_input … p_reasoning:
-- its tokens. soft: the soft budgets that it was the one to reach.
CREATE FUNCTION money_close(p_org text, p_subject text, p_currency text, p_test boolean, p_reaper boolean, p_report boolean,
  p_request text[], p_key text[], p_run text[], p_provider text[], p_model text[], p_input bigint[], p_cached bigint[], p_write bigint[],
  p_output bigint[], p_reasoning bigint[], p_millicents bigint[], p_estimated boolean[])
RETURNS TABLE (at integer, verdict text, cost bigint, soft text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_off text := set_config('synchronous_commit', 'off', true) || set_config('enable_seqscan', 'off', true)
    || set_config('plan_cache_mode', 'force_generic_plan', true);
  n integer := cardinality(p_request);
  v_account bigint;
  v_sales bigint;
  v_now timestamptz;
  v_since timestamptz;
  v_new text[];
  v_costs bigint[];
  v_held reservations[]; -- what was reserved, where budgets or meters hold it too
  v_sum bigint := 0;
  v_calls integer := 0;
  v_least bigint;
  v_budgeted boolean;
  v_soft jsonb[] := array_fill(NULL::jsonb, ARRAY[n]);
  v_first boolean[];
  b budgets;
  r reservations;
BEGIN
  SELECT a.id, s.id INTO v_account, v_sales
  FROM accounts a LEFT JOIN accounts s ON s.org = a.org AND s.subject = '$sales' AND s.currency = a.currency AND s.test = a.test
  WHERE a.org = p_org AND a.subject = p_subject AND a.currency = p_currency AND a.test = p_test FOR NO KEY UPDATE OF a;
  IF v_account IS NULL THEN
    v_account := money_account(p_org, p_subject, p_currency, p_test);
  END IF;
  v_now := money_now();
  WITH stored AS (
    INSERT INTO usage_rows AS u (org, request, subject, currency, test, key, run, provider, model, tokens, millicents, estimated, by_reaper,
      at)
    SELECT p_org, g.request, p_subject, p_currency, p_test, g.key, g.run, g.provider, g.model, ARRAY[g.i, g.c, g.w, g.o, g.r],
      g.millicents, g.estimated, p_reaper, v_now
    FROM unnest(p_request, p_key, p_run, p_provider, p_model, p_input, p_cached, p_write, p_output, p_reasoning, p_millicents, p_estimated)
      WITH ORDINALITY AS g (request, key, run, provider, model, i, c, w, o, r, millicents, estimated, nth) ORDER BY g.nth
    ON CONFLICT (org, request) DO NOTHING
    RETURNING u.request, u.millicents
  ), told AS (
    INSERT INTO usage_reports (org, request) SELECT p_org, s.request FROM stored s WHERE p_report
  )
  SELECT coalesce(array_agg(s.request), '{}'), array_agg(s.millicents), EXISTS (SELECT FROM budgets WHERE org = p_org)
  INTO v_new, v_costs, v_budgeted FROM stored s;
  -- One by one: for `= ANY` a plan that was made with few of them open may look at all that are open.
  FOR i IN 1..n LOOP
    DELETE FROM reservations WHERE org = p_org AND request = p_request[i] AND account = v_account RETURNING * INTO r;
    IF FOUND THEN
      v_sum := v_sum + r.amount;
      v_calls := v_calls + 1;
      IF r.budgets <> '{}' OR r.metered <> '{}' THEN
        v_held := v_held || r;
      END IF;
    END IF;
  END LOOP;
  IF v_calls > 0 THEN
    UPDATE accounts SET reserved = reserved - v_sum, calls = calls - v_calls WHERE id = v_account RETURNING least(reserved, calls) INTO v_least;
    IF v_least < 0 THEN
      RAISE EXCEPTION 'account % has less reserved than its reservations', v_account USING ERRCODE = 'check_violation';
    END IF;
  END IF;
  FOR i IN 1..n LOOP
    -- Of those that name one request the first is it.
    v_first[i] := cardinality(v_new) = n OR (p_request[i] = ANY (v_new) AND array_position(p_request, p_request[i]) = i);
  END LOOP;
  IF v_budgeted THEN
    FOR b IN SELECT * FROM budgets WHERE org = p_org AND currency = p_currency AND test = p_test
        AND (scope = ANY ('org'::text || p_key || p_run) OR id IN (SELECT unnest(o.budgets) FROM unnest(v_held) o)) ORDER BY id FOR NO KEY UPDATE LOOP
      v_since := money_period(b.period, v_now);
      IF b.since <> v_since THEN
        b.spent := 0;
        b.told := false;
      END IF;
      FOR i IN 1..n LOOP
        CONTINUE WHEN NOT v_first[i] OR (b.scope <> 'org' AND b.scope IS DISTINCT FROM p_key[i] AND b.scope IS DISTINCT FROM p_run[i]);
        b.spent := b.spent + p_millicents[i];
        IF NOT b.told AND b.spent >= b.soft THEN
          b.told := true;
          v_soft[i] := coalesce(v_soft[i], '[]') || jsonb_build_object('scope', b.scope, 'period', b.period, 'spent', b.spent, 'soft', b.soft);
        END IF;
      END LOOP;
      UPDATE budgets SET since = v_since, spent = b.spent, told = b.told, reserved = reserved
        - (SELECT coalesce(sum(o.amount), 0) FROM unnest(v_held) o WHERE b.id = ANY (o.budgets)) WHERE id = b.id;
    END LOOP;
  END IF;
  IF v_held IS NOT NULL THEN
    PERFORM FROM meters WHERE org = p_org AND key IN (SELECT unnest(o.metered) FROM unnest(v_held) o) ORDER BY key FOR NO KEY UPDATE;
    UPDATE meters m SET calls = m.calls - w.calls, tokens = greatest(0, m.tokens - w.less)
    FROM (SELECT w.key, count(*) AS calls, coalesce(sum(o.tokens - (SELECT p_input[k] + p_cached[k] + p_write[k] + p_output[k] + p_reasoning[k]
        FROM array_position(p_request, o.request) k)) FILTER (WHERE w.until = now.until), 0) AS less
      FROM unnest(v_held) o, unnest(o.metered, o.windows) w (key, until), meters now
      WHERE now.org = p_org AND now.key = w.key GROUP BY w.key) w
    WHERE m.org = p_org AND m.key = w.key;
  END IF;
  IF 0 < ANY (v_costs) THEN
    v_sales := coalesce(v_sales, money_account(p_org, '$sales', p_currency, p_test));
    WITH charge AS MATERIALIZED (
      SELECT nextval('ledger_tx_id_seq') AS tx, c.request, c.millicents FROM unnest(v_new, v_costs) c (request, millicents) WHERE c.millicents > 0
    ), told AS (
      INSERT INTO ledger_tx (id, org, kind, reference, at) OVERRIDING SYSTEM VALUE SELECT tx, p_org, 'charge', request, v_now FROM charge
    )
    INSERT INTO entries (tx, account, amount)
    SELECT c.tx, side.account, side.amount FROM charge c, LATERAL (VALUES (v_account, -c.millicents), (v_sales, c.millicents)) side (account, amount);
  END IF;
  FOR i IN 1..n LOOP
    at := i - 1;
    soft := v_soft[i];
    verdict := CASE WHEN v_first[i] THEN 'settled' ELSE 'again' END;
    cost := p_millicents[i];
    IF NOT v_first[i] THEN
      SELECT u.millicents INTO cost FROM usage_rows u WHERE u.org = p_org AND u.request = p_request[i];
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

-- ---- as the version before asks; and one alone

CREATE OR REPLACE FUNCTION money_reserve(p_org text, p_request text, p_subject text, p_currency text, p_test boolean, p_key text, p_run text,
  p_session text, p_amount bigint, p_tokens bigint, p_mode text, p_gate text, p_limits integer[],
  OUT verdict text, OUT what text, OUT retry_ms bigint, OUT warned boolean, OUT limits bigint[], OUT run text) LANGUAGE plpgsql AS $$
BEGIN
  SELECT m.verdict, m.what, m.retry_ms, m.warned, m.limits, m.run INTO verdict, what, retry_ms, warned, limits, run
  FROM money_admit(p_org, p_subject, p_currency, p_test, p_mode, p_gate, p_limits, ARRAY[p_request], ARRAY[p_key], ARRAY[p_run],
    ARRAY[p_session], ARRAY[p_amount], ARRAY[p_tokens]) m;
END $$;
CREATE OR REPLACE FUNCTION money_settle(p_org text, p_request text, p_subject text, p_currency text, p_test boolean, p_key text, p_run text,
  p_provider text, p_model text, p_tokens bigint[], p_millicents bigint, p_estimated boolean, p_reaper boolean, p_report boolean,
  OUT verdict text, OUT cost bigint, OUT soft text) LANGUAGE plpgsql AS $$
BEGIN
  SELECT m.verdict, m.cost, m.soft INTO verdict, cost, soft
  FROM money_close(p_org, p_subject, p_currency, p_test, p_reaper, p_report, ARRAY[p_request], ARRAY[p_key], ARRAY[p_run],
    ARRAY[p_provider], ARRAY[p_model], p_tokens[1:1], p_tokens[2:2], p_tokens[3:3], p_tokens[4:4], p_tokens[5:5], ARRAY[p_millicents],
    ARRAY[p_estimated]) m;
END $$;
CREATE OR REPLACE FUNCTION money_unreserve(p_org text, p_request text, p_tokens bigint) RETURNS reservations LANGUAGE plpgsql AS $$
DECLARE
  r reservations;
  v_least bigint;
BEGIN
  DELETE FROM reservations WHERE org = p_org AND request = p_request RETURNING * INTO r;
  IF r.org IS NULL THEN
    RETURN NULL;
  END IF;
  UPDATE accounts SET reserved = reserved - r.amount, calls = calls - 1 WHERE id = r.account RETURNING least(reserved, calls) INTO v_least;
  IF v_least < 0 THEN
    RAISE EXCEPTION 'account % has less reserved than its reservations', r.account USING ERRCODE = 'check_violation';
  END IF;
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
