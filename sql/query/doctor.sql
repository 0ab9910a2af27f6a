-- Statements of app/main/cli_doctor*.c.

-- name: doctor_clock
-- The database's clock, in milliseconds since 1970.
SELECT (EXTRACT(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: doctor_credit
-- Is there an org that is no operator's, and is there credit? (36: the other sides of the books begin with a dollar sign.)
SELECT EXISTS (SELECT FROM orgs WHERE slug <> 'admin'),
  EXISTS (SELECT FROM accounts c WHERE c.currency = 'usd' AND NOT c.test AND ascii(c.subject) <> 36 AND money_available(c) > 0)

-- name: doctor_calls
-- $1 seconds without a sign of life: calls that are open and nobody's
SELECT count(*) FROM reservations r LEFT JOIN gates g ON g.id = r.gate
WHERE coalesce(g.at, r.at) < clock_timestamp() - make_interval(secs => $1::double precision)

-- name: doctor_books
-- Accounts that hold reserved what no open call has reserved, or the reverse: the part of the ledger's check that is quick.
SELECT count(*), min(c.org) FROM accounts c
LEFT JOIN (SELECT account, sum(amount) AS amount, count(*) AS n FROM reservations GROUP BY account) r ON r.account = c.id
WHERE c.reserved <> coalesce(r.amount, 0) OR c.calls <> coalesce(r.n, 0)

-- name: doctor_keys
-- Keys of providers, as they are sealed.
SELECT id, sealed, org, provider FROM model_keys WHERE sealed IS NOT NULL ORDER BY id LIMIT 1000
