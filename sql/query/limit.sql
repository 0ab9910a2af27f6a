-- Statements of app/auth/limit.c.

-- name: limit_take
-- $1 org, $2 the default limit. A hundredth of the limit in advance, what is left at most, of a minute that begins with its first
-- request (one that ends further away was written before the clock stepped back). One row: the limit, how many were taken
-- (NULL: none are left), milliseconds until the minute is over.
WITH l AS (SELECT slug, coalesce(requests_per_minute, $2::int) AS n FROM orgs WHERE slug = $1),
t AS (
  INSERT INTO org_requests AS q (org, until, most, used, took)
  SELECT slug, clock_timestamp() + interval '1 minute', n, greatest(1, n / 100), greatest(1, n / 100) FROM l WHERE n > 0
  ON CONFLICT (org) DO UPDATE SET
    until = CASE WHEN q.until - clock_timestamp() NOT BETWEEN interval '0' AND interval '1 minute' THEN excluded.until ELSE q.until END,
    most = excluded.most,
    used = CASE WHEN q.until - clock_timestamp() NOT BETWEEN interval '0' AND interval '1 minute' THEN excluded.took
      ELSE q.used + least(excluded.took, excluded.most - q.used) END,
    took = CASE WHEN q.until - clock_timestamp() NOT BETWEEN interval '0' AND interval '1 minute' THEN excluded.took
      ELSE least(excluded.took, excluded.most - q.used) END
  WHERE q.until - clock_timestamp() NOT BETWEEN interval '0' AND interval '1 minute' OR q.used < excluded.most
  RETURNING q.until, q.took)
SELECT l.n, t.took,
  (extract(epoch FROM coalesce(t.until, q.until, clock_timestamp() + interval '1 second') - clock_timestamp()) * 1000)::bigint
FROM l LEFT JOIN t ON true LEFT JOIN org_requests q ON q.org = l.slug

-- name: limit_runs
-- $1 org, $2 the default limit. No row: there is none. The org's row is locked, so that nobody else starts a run in between.
SELECT coalesce(concurrent_runs, $2::int) FROM orgs
WHERE slug = $1 AND coalesce(concurrent_runs, $2::int) > 0 FOR NO KEY UPDATE

-- name: limit_set
-- $1 org, $2 requests a minute, $3 concurrent runs, $4 tokens a minute, $5 concurrent calls: a number, "default" or "keep"
UPDATE orgs SET
  requests_per_minute = CASE WHEN $2 = 'keep' THEN requests_per_minute ELSE nullif(nullif($2, 'keep'), 'default')::int END,
  concurrent_runs = CASE WHEN $3 = 'keep' THEN concurrent_runs ELSE nullif(nullif($3, 'keep'), 'default')::int END,
  tokens_per_minute = CASE WHEN $4 = 'keep' THEN tokens_per_minute ELSE nullif(nullif($4, 'keep'), 'default')::int END,
  concurrent_calls = CASE WHEN $5 = 'keep' THEN concurrent_calls ELSE nullif(nullif($5, 'keep'), 'default')::int END
WHERE slug = $1 RETURNING coalesce(requests_per_minute::text, 'default'), coalesce(concurrent_runs::text, 'default'),
  coalesce(tokens_per_minute::text, 'default'), coalesce(concurrent_calls::text, 'default')

-- name: limit_key_set
-- $1 org, $2 key, $3 requests a minute, $4 tokens a minute, $5 concurrent calls: likewise
UPDATE credentials SET
  requests_per_minute = CASE WHEN $3 = 'keep' THEN requests_per_minute ELSE nullif(nullif($3, 'keep'), 'default')::int END,
  tokens_per_minute = CASE WHEN $4 = 'keep' THEN tokens_per_minute ELSE nullif(nullif($4, 'keep'), 'default')::int END,
  concurrent_calls = CASE WHEN $5 = 'keep' THEN concurrent_calls ELSE nullif(nullif($5, 'keep'), 'default')::int END
WHERE org = $1 AND id = $2 AND kind = 'key' RETURNING coalesce(requests_per_minute::text, 'default'),
  coalesce(tokens_per_minute::text, 'default'), coalesce(concurrent_calls::text, 'default')
