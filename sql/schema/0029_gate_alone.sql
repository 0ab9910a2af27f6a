-- What a call costs PostgreSQL when it comes alone, once more (0020, 0025 and 0027 say what holds; nothing of that changes here).
--   Letting one in waits for a backend whose caches others have used meanwhile, so what it touches counts, not what it computes. Without
--   the function money_unused (which stays for the version before, REL-6), the index and the trigger it is a fifth less.
--   money_admit_one sees what was settled before it began, and lets nobody in where the account's row was written since: it would not see
--   what was settled then. So whoever settles writes that row, also where nothing is charged and no reservation ends.
--   A trigger BEFORE UPDATE takes a lock of its own on each row that is updated, and writes it to the log, whatever columns it is for.
--   Reservations of one process are looked for when it is dead; there are as many as calls are open.

DROP INDEX reservations_gate;
DROP TRIGGER accounts_new ON accounts;
CREATE TRIGGER accounts_new BEFORE INSERT ON accounts FOR EACH ROW EXECUTE FUNCTION money_account_new();
CREATE TRIGGER accounts_changed AFTER UPDATE OF org, subject, currency, test, elsewhere, asked ON accounts
  FOR EACH ROW EXECUTE FUNCTION money_account_new();

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
  v_soft jsonb[];
  v_first boolean[]; -- NULL: all are
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
  IF cardinality(v_new) > 0 AND v_calls = 0 AND NOT 0 < ANY (v_costs) THEN
    UPDATE accounts SET calls = calls WHERE id = v_account; -- so that whoever waits for it knows that something was settled
  END IF;
  -- What nearly all are: settled for the first time, with nothing else to tell of.
  IF cardinality(v_new) = n AND NOT v_budgeted THEN
    v_first := NULL;
  ELSE
    FOR i IN 1..n LOOP
      -- Of those that name one request the first is it.
      v_first[i] := cardinality(v_new) = n OR (p_request[i] = ANY (v_new) AND array_position(p_request, p_request[i]) = i);
    END LOOP;
  END IF;
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
  IF v_first IS NULL THEN
    RETURN QUERY SELECT (m.nth - 1)::integer, 'settled', m.cost, NULL::text FROM unnest(p_millicents) WITH ORDINALITY m (cost, nth);
    RETURN;
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
