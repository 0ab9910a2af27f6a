-- Statements of app/auth/once.c. $1 is the org, $2 the key, $3 the fingerprint of op and input.

-- name: once_look
SELECT hash, status, body FROM once WHERE org = $1 AND key = $2 AND created_at > clock_timestamp() - interval '24 hours'

-- name: once_lock
-- Until the transaction ends. A statement of its own: what is looked at afterwards must not be older than the lock.
SELECT pg_try_advisory_xact_lock(hashtextextended($1 || ' ' || $2, 7))

-- name: once_keep
-- $4 status or NULL, $5 body. Under the lock and after a look, so only a row that no longer counts is replaced.
WITH old AS (
  DELETE FROM once WHERE (org, key) IN (
    SELECT org, key FROM once
    WHERE created_at < clock_timestamp() - interval '24 hours' AND (org <> $1 OR key <> $2)
    ORDER BY created_at LIMIT 2 FOR UPDATE SKIP LOCKED))
INSERT INTO once (org, key, hash, status, body) VALUES ($1, $2, $3, $4::int, $5)
ON CONFLICT (org, key) DO UPDATE SET hash = $3, status = $4::int, body = $5, created_at = clock_timestamp()

-- name: once_answer
-- $4 status or NULL, $5 body
UPDATE once SET status = $4::int, body = $5 WHERE org = $1 AND key = $2 AND hash = $3 AND status IS NULL

-- name: once_drop
DELETE FROM once WHERE org = $1 AND key = $2 AND hash = $3 AND status IS NULL
