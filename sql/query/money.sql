-- Statements of app/money. $1 is the org unless said otherwise; amounts are millicents.

-- name: money_admit
-- $2 subject, $3 currency, $4 test, $5 mode, $6 gate, $7 limits; then of calls of this one account, in the order in which they came:
-- $8 requests, $9 keys, $10 runs, $11 sessions, $12 amounts, $13 tokens
SELECT at, verdict, what, retry_ms, warned, limits[1], limits[2], limits[3], limits[4], limits[5], limits[6], run, metered
FROM money_admit($1, $2, $3, $4::boolean, $5, $6, $7::integer[], $8::text[], $9::text[], $10::text[], $11::text[], $12::bigint[],
  $13::bigint[])

-- name: money_admit_one
-- $2 subject, $3 currency, $4 test, $5 mode, $6 gate, $7 limits, $8 request, $9 key, $10 run, $11 session, $12 amount, $13 tokens: one call, of
-- an account where no limit or budget is in the way and there is enough. No row, or a conflict (the request is open): nothing was
-- done, money_admit says what it is. Also where somebody else wrote the account's row since this began: whatever was settled
-- meanwhile is not seen here (0029). A commit of the gate waits for no disk (gate.h says what does).
WITH room AS (
  UPDATE accounts c SET reserved = c.reserved + $12::bigint, calls = c.calls + 1
  FROM orgs o
  WHERE c.org = $1 AND c.subject = $2 AND c.currency = $3 AND c.test = $4::boolean AND o.slug = $1
    AND length($8) BETWEEN 1 AND 255 AND $12::bigint >= 0 AND $13::bigint >= 0
    AND ($5 = 'open' OR $12::bigint <= money_available(c))
    AND coalesce(o.tokens_per_minute, ($7::integer[])[1]) = 0 AND coalesce(o.concurrent_calls, ($7::integer[])[2]) = 0
    AND coalesce(o.requests_per_minute, ($7::integer[])[6]) = 0
    AND NOT EXISTS (SELECT FROM budgets WHERE org = $1)
    AND (($7::integer[])[3:5] = '{0,0,0}' OR $9::text IS NULL)
    AND (SELECT k.org = $1 AND (k.requests_per_minute > 0 OR k.tokens_per_minute > 0 OR k.concurrent_calls > 0)
      FROM credentials k WHERE k.id = $9::text) IS NOT TRUE
    AND $8 IS DISTINCT FROM (SELECT u.request FROM usage_rows u WHERE u.org = $1 AND u.request >= $8 ORDER BY u.request LIMIT 1)
    AND c.xmin = (SELECT a.xmin FROM accounts a WHERE a.org = $1 AND a.subject = $2 AND a.currency = $3 AND a.test = $4::boolean)
  RETURNING c.id)
INSERT INTO reservations (org, request, account, amount, tokens, key, run, session, gate, at)
SELECT $1, $8, room.id, $12::bigint, $13::bigint, $9::text, $10::text, $11::text, $6, money_now()
FROM room WHERE set_config('synchronous_commit', 'off', true) = 'off' RETURNING 1

-- name: money_admit_some
-- The same of several calls, all or none: $8 requests, $9 keys, $10 runs, $11 sessions, $12 amounts, $13 tokens; $14 the sum of the amounts,
-- $15 how many there are. A conflict also where two are of one request. (An array in a subquery has no length that a plan could be made for:
-- else one would be made anew each time.)
WITH room AS (
  UPDATE accounts c SET reserved = c.reserved + $14::bigint, calls = c.calls + $15::integer
  FROM orgs o
  WHERE c.org = $1 AND c.subject = $2 AND c.currency = $3 AND c.test = $4::boolean AND o.slug = $1
    AND 0 <= ALL ($12::bigint[]) AND 0 <= ALL ($13::bigint[])
    AND ($5 = 'open' OR $14::bigint <= money_available(c))
    AND coalesce(o.tokens_per_minute, ($7::integer[])[1]) = 0 AND coalesce(o.concurrent_calls, ($7::integer[])[2]) = 0
    AND coalesce(o.requests_per_minute, ($7::integer[])[6]) = 0
    AND NOT EXISTS (SELECT FROM budgets WHERE org = $1)
    AND (($7::integer[])[3:5] = '{0,0,0}' OR $9::text[] = array_fill(NULL::text, ARRAY[$15::integer]))
    AND NOT EXISTS (SELECT FROM unnest((SELECT $9::text[])) mine (key) WHERE (SELECT k.org = $1 AND (k.requests_per_minute > 0
      OR k.tokens_per_minute > 0 OR k.concurrent_calls > 0) FROM credentials k WHERE k.id = mine.key))
    AND NOT EXISTS (SELECT FROM unnest((SELECT $8::text[])) mine (request) WHERE length(mine.request) NOT BETWEEN 1 AND 255
      OR mine.request = (SELECT u.request FROM usage_rows u WHERE u.org = $1 AND u.request >= mine.request ORDER BY u.request LIMIT 1))
    AND c.xmin = (SELECT a.xmin FROM accounts a WHERE a.org = $1 AND a.subject = $2 AND a.currency = $3 AND a.test = $4::boolean)
  RETURNING c.id)
INSERT INTO reservations (org, request, account, amount, tokens, key, run, session, gate, at)
SELECT $1, a.request, room.id, a.amount, a.tokens, a.key, a.run, a.session, $6, money_now()
FROM room, unnest((SELECT $8::text[]), $9::text[], $10::text[], $11::text[], $12::bigint[], $13::bigint[]) a (request, key, run, session, amount, tokens)
WHERE set_config('synchronous_commit', 'off', true) = 'off' RETURNING 1

-- name: money_close
-- $2 subject, $3 currency, $4 test, $5 report; then of calls of this one account, which are committed together: $6 requests, $7 keys,
-- $8 runs, $9 providers, $10 models, $11 to $15 tokens: input, cached, cache write, output, reasoning; $16 millicents, $17 estimated
SELECT at, verdict, cost, soft
FROM money_close($1, $2, $3, $4::boolean, false, $5::boolean, $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
  $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::boolean[])

-- name: money_release
-- $2 request
SELECT money_release($1, $2)

-- name: money_flush
-- $1 orgs and $2 requests, of one length: how many of them are settled. When this is committed, which waits for the disk as it
-- writes something, so are they.
SELECT count(*) FILTER (WHERE mine.request = (SELECT u.request FROM usage_rows u WHERE u.org = mine.org AND u.request >= mine.request
  ORDER BY u.request LIMIT 1)), pg_logical_emit_message(true, 'gatehouse', '')
FROM unnest($1::text[], $2::text[]) AS mine (org, request)

-- name: money_note
-- $1 what calls are known to have used: [{org, request, provider, model, tokens, millicents, estimated}]. Never less than before.
WITH off AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true) AS is),
mine AS (SELECT m.* FROM off, jsonb_to_recordset($1::jsonb) AS m (org text, request text, provider text, model text, tokens bigint[],
  millicents bigint, estimated boolean) WHERE off.is = 'off')
UPDATE reservations r SET noted = true, provider = mine.provider, model = mine.model, used = mine.tokens, millicents = mine.millicents,
  estimated = mine.estimated
FROM mine WHERE r.org = mine.org AND r.request = mine.request AND (NOT r.noted OR r.millicents <= mine.millicents)

-- name: money_beat
-- $1 the gate. Old rows of gates that have nothing open go away.
WITH old AS (
  DELETE FROM gates g WHERE at < clock_timestamp() - interval '1 day' AND id <> $1
    AND NOT EXISTS (SELECT FROM reservations r WHERE r.gate = g.id))
INSERT INTO gates AS g (id) VALUES ($1) ON CONFLICT (id) DO UPDATE SET beats = g.beats + 1, at = clock_timestamp()

-- name: money_gates
-- Whoever has reservations, with its beats (-1: it never came so far).
SELECT r.gate, coalesce(max(g.beats), -1)
FROM reservations r LEFT JOIN gates g ON g.id = r.gate GROUP BY r.gate

-- name: money_reap
-- $1 the gate, $2 report
SELECT org, request, run, session, noted, cost, soft FROM money_reap($1, $2::boolean)

-- name: money_read
-- $2 subject, $3 currency, $4 test. No row: nothing was ever moved there.
SELECT balance, reserved, available FROM money_read($1, $2, $3, $4::boolean)

-- name: balance_begin
-- $2 subject, $3 currency, $4 test, before another service is asked: the account's entries, what of them it may not know of yet, and when
SELECT coalesce((SELECT balance FROM accounts WHERE org = $1 AND subject = $2 AND currency = $3 AND test = $4::boolean), 0),
  coalesce((SELECT sum(u.millicents) FROM usage_reports r JOIN usage_rows u ON u.org = r.org AND u.request = r.request
    WHERE r.org = $1 AND u.subject = $2 AND u.currency = $3 AND u.test = $4::boolean), 0), money_now()

-- name: balance_keep
-- $2 subject, $3 currency, $4 test, $5 what that service holds beside the entries, $6 when it was asked, $7 is an account worth making? The
-- later question wins, unless a clock went back since.
WITH off AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true) AS is),
here AS (UPDATE accounts a SET elsewhere = $5::bigint, asked = $6::timestamptz FROM off
  WHERE off.is = 'off' AND a.org = $1 AND a.subject = $2 AND a.currency = $3 AND a.test = $4::boolean
    AND (a.asked IS NULL OR a.asked < $6::timestamptz OR a.asked > money_now()))
INSERT INTO accounts (org, subject, currency, test, elsewhere, asked)
SELECT $1, $2, $3, $4::boolean, $5::bigint, $6::timestamptz FROM off WHERE off.is = 'off' AND $7::boolean
  AND NOT EXISTS (SELECT FROM accounts WHERE org = $1 AND subject = $2 AND currency = $3 AND test = $4::boolean)
ON CONFLICT (org, subject, currency, test) DO UPDATE SET elsewhere = excluded.elsewhere, asked = excluded.asked

-- name: balance_clear
-- Balances are not held elsewhere (any more).
UPDATE accounts SET elsewhere = NULL, asked = NULL WHERE asked IS NOT NULL

-- name: money_check
-- $2 key: what the org has left in its pool, and a hard budget of it or the key that is used up
SELECT coalesce(r.available, 0), (
  SELECT b.scope || ' ' || b.period FROM budgets b WHERE b.org = $1 AND b.currency = 'usd' AND NOT b.test AND b.scope IN ('org', $2)
    AND b.hard <= b.reserved + CASE WHEN b.since = money_period(b.period, money_now()) THEN b.spent ELSE 0 END ORDER BY b.id LIMIT 1)
FROM (SELECT) AS one LEFT JOIN money_read($1, '', 'usd', false) r ON true

-- name: money_org
-- Is there such an org?
SELECT FROM orgs WHERE slug = $1

-- name: money_credit
-- $2 subject, $3 currency, $4 test, $5 amount, $6 key, $7 by whom
SELECT verdict, balance, reserved FROM money_credit($1, $2, $3, $4::boolean, $5::bigint, $6, $7)

-- name: money_budget_put
-- $2 scope, $3 period, $4 currency, $5 test, $6 soft, $7 hard, $8 by whom
SELECT money_budget($1, $2, $3, $4, $5::boolean, $6::bigint, $7::bigint, $8)

-- name: money_budget_scope
-- $2 the id of a key or a run: does the org have it?
SELECT EXISTS (SELECT FROM credentials WHERE org = $1 AND id = $2 AND kind = 'key') OR EXISTS (SELECT FROM runs WHERE org = $1 AND id = $2)

-- name: money_budget_list
-- $2 scope or NULL, $3 only ids below, $4 limit. What was spent in a period that is over does not count any more.
SELECT lpad(id::text, 19, '0'), scope, period, currency, test, soft, hard,
  CASE WHEN since = money_period(period, money_now()) THEN spent ELSE 0 END, reserved,
  to_char(money_period(period, money_now()) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), created_by
FROM budgets WHERE org = $1 AND ($2::text IS NULL OR scope = $2) AND ($3 = '' OR id < $3::bigint) ORDER BY id DESC LIMIT $4::int

-- name: money_budget_get
-- $2 scope, $3 period, $4 currency, $5 test; the columns of money_budget_list
SELECT lpad(id::text, 19, '0'), scope, period, currency, test, soft, hard,
  CASE WHEN since = money_period(period, money_now()) THEN spent ELSE 0 END, reserved,
  to_char(money_period(period, money_now()) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), created_by
FROM budgets WHERE org = $1 AND scope = $2 AND period = $3 AND currency = $4 AND test = $5::boolean

-- name: money_budget_remove
-- $2 scope, $3 period, $4 currency, $5 test
DELETE FROM budgets WHERE org = $1 AND scope = $2 AND period = $3 AND currency = $4 AND test = $5::boolean

-- name: money_usage
-- $2 by what: day, model, key, run; $3 currency, $4 test, $5 from (31 days ago), $6 to, $7 only names below or '', $8 limit
SELECT name, count(*), sum(tokens[1] + tokens[2] + tokens[3]), sum(tokens[2]), sum(tokens[3]), sum(tokens[4] + tokens[5]), sum(tokens[5]),
  sum(millicents), count(*) FILTER (WHERE estimated)
FROM (SELECT (CASE $2 WHEN 'day' THEN to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD') WHEN 'model' THEN provider || '/' || model
    WHEN 'key' THEN coalesce(key, '') ELSE coalesce(run, '') END) COLLATE "C" AS name, tokens, millicents, estimated
  FROM usage_rows WHERE org = $1 AND currency = $3 AND test = $4::boolean AND at >= coalesce($5::timestamptz, clock_timestamp() - interval '31 days') AND at < coalesce($6::timestamptz, 'infinity')) u
WHERE $7 = '' OR name < $7 GROUP BY name ORDER BY name DESC LIMIT $8::int

-- name: ledger_check
-- $1 seconds that a reservation may last: what is wrong, one row each; one statement, so one moment
SELECT 'the entries of ' || c.currency || CASE WHEN c.test THEN ' (test)' ELSE '' END || ' sum to ' || sum(e.amount)
FROM entries e JOIN accounts c ON c.id = e.account GROUP BY c.currency, c.test HAVING sum(e.amount) <> 0
UNION ALL
SELECT 'entry ' || e.n || ' is of no account' FROM entries e WHERE NOT EXISTS (SELECT FROM accounts c WHERE c.id = e.account)
UNION ALL
SELECT 'transaction ' || coalesce(t.id, e.tx) || ' does not balance' FROM ledger_tx t
FULL JOIN (SELECT tx, sum(amount) AS amount, count(*) AS n FROM entries GROUP BY tx) e ON e.tx = t.id
WHERE t.id IS NULL OR e.tx IS NULL OR e.amount <> 0 OR e.n < 2
UNION ALL
SELECT 'account ' || c.id || ' of ' || c.org || ' says ' || c.balance || ', its entries ' || coalesce(e.amount, 0) FROM accounts c
LEFT JOIN (SELECT account, sum(amount) AS amount FROM entries GROUP BY account) e ON e.account = c.id
WHERE c.balance <> coalesce(e.amount, 0)
UNION ALL
SELECT 'account ' || c.id || ' of ' || c.org || ' has reserved ' || c.reserved || ' for ' || c.calls || ' calls, its reservations say '
  || coalesce(r.amount, 0) || ' for ' || coalesce(r.n, 0) FROM accounts c
LEFT JOIN (SELECT account, sum(amount) AS amount, count(*) AS n FROM reservations GROUP BY account) r ON r.account = c.id
WHERE c.reserved <> coalesce(r.amount, 0) OR c.calls <> coalesce(r.n, 0)
UNION ALL
SELECT 'budget ' || b.id || ' of ' || b.org || ' has reserved ' || b.reserved || ', its reservations say ' || coalesce(r.amount, 0)
FROM budgets b LEFT JOIN (SELECT b, sum(amount) AS amount FROM reservations, unnest(budgets) AS b GROUP BY b) r ON r.b = b.id
WHERE b.reserved <> coalesce(r.amount, 0)
UNION ALL
SELECT 'call ' || coalesce(u.request, t.reference) || ' of ' || coalesce(u.org, t.org) || ' used ' || coalesce(u.millicents, 0)
  || ', it was charged ' || coalesce(t.amount, 0) FROM usage_rows u
FULL JOIN (SELECT t.org, t.reference, sum(e.amount) FILTER (WHERE e.amount > 0) AS amount FROM ledger_tx t JOIN entries e ON e.tx = t.id
  WHERE t.kind = 'charge' GROUP BY t.id) t ON t.org = u.org AND t.reference = u.request
WHERE coalesce(u.millicents, 0) <> coalesce(t.amount, 0)
UNION ALL
SELECT 'call ' || request || ' of ' || org || ' is open since ' || to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
FROM reservations WHERE at < clock_timestamp() - make_interval(secs => $1::double precision)

-- name: ledger_count
-- What was looked at.
SELECT (SELECT count(*) FROM accounts), (SELECT count(*) FROM ledger_tx), (SELECT count(*) FROM entries), (SELECT count(*) FROM reservations)

-- name: report_hold
-- $1 who, $2 the beats that it saw last, or NULL: take the reporter's place when its holder stood still, or keep it
UPDATE usage_reporter SET holder = $1, beats = beats + 1 WHERE holder IS NOT DISTINCT FROM $1 OR holder IS NULL OR beats = $2::bigint

-- name: report_leave
-- $1 who
UPDATE usage_reporter SET holder = NULL WHERE holder = $1

-- name: report_look
SELECT coalesce(holder, ''), beats FROM usage_reporter

-- name: report_next
-- $1 how many at most. In order, and nothing that could still get something before it. (What has a number that no transaction
-- has had yet came with a backup from another cluster.)
SELECT r.xid, r.n, r.org, u.request, u.subject, u.currency, u.test, u.key, u.run, u.provider, u.model, u.tokens[1], u.tokens[2],
  u.tokens[3], u.tokens[4], u.tokens[5], u.millicents, u.estimated, to_char(u.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
FROM usage_reports r JOIN usage_rows u ON u.org = r.org AND u.request = r.request
WHERE r.xid < pg_snapshot_xmin(pg_current_snapshot()) OR r.xid >= pg_snapshot_xmax(pg_current_snapshot()) ORDER BY r.xid, r.n LIMIT $1::int

-- name: report_done
-- $1, $2 the xids and ns of rows that were acknowledged, $3 who. Not by one who lost the place.
DELETE FROM usage_reports r USING unnest($1::xid8[], $2::bigint[]) AS done (xid, n)
WHERE r.xid = done.xid AND r.n = done.n AND EXISTS (SELECT FROM usage_reporter WHERE holder = $3 FOR UPDATE)
