-- What a call costs PostgreSQL when it comes alone (0020 and 0025 say what holds; nothing of that changes here).
--   One call that nothing is in the way of is let in by a statement of its own (money_admit_one in sql/query/money.sql), which costs half of
--   the function; money_unused is its part that must see what is settled under the account's lock.
--   Where several indexes fit, a plan that was made while a table was empty may take the one that begins with the org and read all that the
--   org has: so a usage row is looked up as the first from its request id on, which only the primary key can answer, and a
--   credential or run by its own id alone.
--   money_close takes reservations away in one statement, and not in one for each.
--   A CHECK is parsed anew by each statement that writes its table: that of 0026 is in the trigger now, beside those of 0020.

ALTER TABLE accounts DROP CONSTRAINT accounts_check;
CREATE OR REPLACE FUNCTION money_account_new() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF length(new.subject) > 128 OR new.currency !~ '^[a-z]{3}$' OR new.reserved < 0 OR new.calls < 0 THEN
    RAISE EXCEPTION 'an account has a subject of at most 128 characters and a currency of three letters' USING ERRCODE = 'check_violation';
  END IF;
  IF (new.elsewhere IS NULL) <> (new.asked IS NULL) THEN
    RAISE EXCEPTION 'what another service holds has a time' USING ERRCODE = 'check_violation';
  END IF;
  RETURN new;
END $$;
DROP TRIGGER accounts_new ON accounts;
CREATE TRIGGER accounts_new BEFORE INSERT OR UPDATE OF org, subject, currency, test, elsewhere, asked ON accounts
  FOR EACH ROW EXECUTE FUNCTION money_account_new();

-- For the statement that lets one call in, which is undone where this fails; commits of the gate wait for no disk. VOLATILE, so that it sees
-- what was settled while the account's lock was waited for.
CREATE FUNCTION money_unused(p_org text, p_request text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_off text := set_config('synchronous_commit', 'off', true) || set_config('enable_seqscan', 'off', true)
    || set_config('plan_cache_mode', 'force_generic_plan', true);
BEGIN
  IF p_request = (SELECT u.request FROM usage_rows u WHERE u.org = p_org AND u.request >= p_request ORDER BY u.request LIMIT 1) THEN
    RAISE EXCEPTION 'the call % was settled already', p_request USING ERRCODE = 'unique_violation';
  END IF;
  RETURN true;
END $$;

-- Calls that were asked for together, of one account: each is judged as if alone and in this order (money_reserve in 0020 says how, and
-- what p_limits and the answer are). metered: a limit counts it while it is open. Where the same requests are written for another
-- account at this moment it fails as a whole: ask one by one.
CREATE OR REPLACE FUNCTION money_admit(p_org text, p_subject text, p_currency text, p_test boolean, p_mode text, p_gate text, p_limits integer[],
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
    AND NOT EXISTS (SELECT FROM unnest(p_key) mine (key) WHERE (SELECT k.org = p_org AND (k.requests_per_minute > 0
      OR k.tokens_per_minute > 0 OR k.concurrent_calls > 0) FROM credentials k WHERE k.id = mine.key))
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
      THEN (SELECT CASE WHEN r.org = p_org THEN r.id END FROM runs r WHERE r.session = a.session) ELSE a.run END, a.session, p_gate, v_now
    FROM unnest(p_request, p_key, p_run, p_session, p_amount, p_tokens) WITH ORDINALITY AS a (request, key, run, session, amount, tokens, nth)
    WHERE a.request IS DISTINCT FROM (SELECT u.request FROM usage_rows u WHERE u.org = p_org AND u.request >= a.request
      ORDER BY u.request LIMIT 1) ORDER BY a.nth
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
CREATE OR REPLACE FUNCTION money_close(p_org text, p_subject text, p_currency text, p_test boolean, p_reaper boolean, p_report boolean,
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
  -- By their places: for `= ANY` of their requests a plan that was made with few of them open may look at all that are open.
  WITH gone AS (
    DELETE FROM reservations r WHERE r.ctid = ANY (ARRAY(SELECT (SELECT o.ctid FROM reservations o
      WHERE o.org = p_org AND o.request = mine.request AND o.account = v_account) FROM unnest(p_request) mine (request)))
    RETURNING r.amount, r AS held, r.budgets <> '{}' OR r.metered <> '{}' AS limited)
  SELECT coalesce(sum(g.amount), 0), count(*), array_agg(g.held) FILTER (WHERE g.limited) INTO v_sum, v_calls, v_held FROM gone g;
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
      SELECT u.millicents INTO cost FROM usage_rows u WHERE u.org = p_org AND u.request >= p_request[i] ORDER BY u.request LIMIT 1;
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;
