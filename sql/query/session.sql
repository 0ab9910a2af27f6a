-- Statements of app/session: the log, and what its watchers read.

-- name: session_open
-- $1 id, $2 org, $3 kind, $4 title, $5 parent or NULL, $6 created by. No row when the parent is not the org's.
INSERT INTO sessions (id, org, kind, title, parent, root, created_by)
SELECT $1, $2, $3, $4, $5, COALESCE((SELECT root FROM sessions WHERE id = $5 AND org = $2), $1), $6
WHERE $5::text IS NULL OR EXISTS (SELECT FROM sessions WHERE id = $5 AND org = $2)

-- name: session_get
-- $1 org, $2 id
SELECT id, kind, title, state, parent, root, created_by, last_seq,
  to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  to_char(closed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
FROM sessions WHERE org = $1 AND id = $2

-- name: session_list
-- $1 org, $2 only ids below, $3 limit, $4 root or NULL, $5 state or NULL. Newest first.
SELECT id, kind, title, state, parent, root, created_by, last_seq,
  to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  to_char(closed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
FROM sessions
WHERE org = $1 AND id < $2 AND ($4::text IS NULL OR root = $4) AND ($5::text IS NULL OR state = $5)
ORDER BY id DESC LIMIT $3::int

-- name: session_append
-- $1 session, $2 org, $3 kind, $4 JSON array of payloads, $5 how many, $6 job or NULL, $7 its fence.
-- The job's row is locked before the session's, and until the commit: a worker whose job is being taken over either wrote
-- before the new one may, or finds its fence gone. json (not jsonb) hands each payload back byte for byte.
WITH held AS (
  SELECT FROM jobs WHERE id = $6 AND org = $2 AND fence = $7::bigint AND state = 'running' FOR NO KEY UPDATE),
s AS (
  UPDATE sessions SET last_seq = last_seq + $5::int
  WHERE id = $1 AND org = $2 AND state = 'open' AND ($6::text IS NULL OR EXISTS (SELECT FROM held))
  RETURNING last_seq, root),
put AS (
  INSERT INTO events (session, seq, org, kind, payload)
  SELECT $1, s.last_seq - $5::int + p.i, $2, $3, p.value::text
  FROM s, json_array_elements($4::json) WITH ORDINALITY AS p(value, i))
SELECT last_seq, pg_notify('gh_event', concat_ws(' ', $2::text, $1::text, last_seq, root)) FROM s

-- name: session_close
-- $1 session, $2 org, $3 state, $4 payload, $5 job or NULL, $6 its fence
WITH held AS (
  SELECT FROM jobs WHERE id = $5 AND org = $2 AND fence = $6::bigint AND state = 'running' FOR NO KEY UPDATE),
s AS (
  UPDATE sessions SET last_seq = last_seq + 1, state = $3, closed_at = clock_timestamp()
  WHERE id = $1 AND org = $2 AND state = 'open' AND ($5::text IS NULL OR EXISTS (SELECT FROM held))
  RETURNING last_seq, root),
put AS (
  INSERT INTO events (session, seq, org, kind, ends, payload) SELECT $1, last_seq, $2, 'status', $3, $4 FROM s)
SELECT last_seq, pg_notify('gh_event', concat_ws(' ', $2::text, $1::text, last_seq, root)) FROM s

-- name: session_refusal
-- $1 session, $2 org, $3 job or NULL, $4 its fence: why nothing was written
SELECT state, $3::text IS NOT NULL AND NOT EXISTS (
  SELECT FROM jobs WHERE id = $3 AND org = $2 AND fence = $4::bigint AND state = 'running')
FROM sessions WHERE id = $1 AND org = $2

-- name: session_read
-- $1 session, $2 org, $3 after, $4 limit
SELECT seq, to_char(time AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  CASE WHEN ends IS NULL THEN kind WHEN ends = 'done' THEN 'result' ELSE 'error' END, payload
FROM events WHERE session = $1 AND org = $2 AND seq > $3::bigint ORDER BY seq LIMIT $4::int

-- name: session_page
-- $1 session, $2 org, $3 after, $4 limit: the session's end as of the same snapshot, and events (one row of NULLs for none)
SELECT e.seq, e.time, e.type, e.payload, s.last_seq, s.state <> 'open'
FROM sessions s LEFT JOIN LATERAL (
  SELECT seq, to_char(time AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS time,
    CASE WHEN ends IS NULL THEN kind WHEN ends = 'done' THEN 'result' ELSE 'error' END AS type, payload
  FROM events WHERE session = $1 AND seq > $3::bigint ORDER BY seq LIMIT $4::int) e ON true
WHERE s.id = $1 AND s.org = $2 ORDER BY e.seq

-- name: session_open_now
-- $1 org: its open sessions, and the newest id of all as of the same snapshot
SELECT s.id, s.last_seq, n.newest
FROM (SELECT COALESCE(max(id), '') AS newest FROM sessions WHERE org = $1) n
LEFT JOIN sessions s ON s.org = $1 AND s.state = 'open'

-- name: session_newer
-- $1 org, $2 id, $3 root or NULL: what was opened after id
SELECT id, last_seq, state <> 'open' FROM sessions WHERE org = $1 AND id > $2 AND ($3::text IS NULL OR root = $3) ORDER BY id
