-- Statements of app/egress. The proxy looks after the sandboxes of every org that are handed to it: it is told an id by
-- sandboxd and learns the org from the row; everything else it reads or writes carries that org.

-- name: egress_policy
-- $1 sandbox, $2 whether the bytes of its connections that have ended are wanted. One question, as a lease waits for it; the
-- credentials are its org's.
SELECT s.org, COALESCE(s.session, ''), s.network, s.network_version, s.status IN ('pending', 'running'),
  CASE WHEN $2::boolean THEN (SELECT COALESCE(sum(a.bytes_out + a.bytes_in), 0)::bigint FROM egress_audit a
    WHERE a.org = s.org AND a.sandbox = s.id AND a.kind = 'close') ELSE 0 END,
  (SELECT json_agg(json_build_array(c.id, c.host, c.header, c.sealed) ORDER BY c.id) FROM egress_credentials c
    WHERE c.org = s.org)
FROM sandboxes s WHERE s.id = $1

-- name: egress_applied
-- $1 org, $2 sandbox, $3 version that is in force
UPDATE sandboxes SET network_applied = greatest(network_applied, $3::bigint) WHERE org = $1 AND id = $2

-- name: egress_audit_put
-- $1 rows as a JSON array; t: milliseconds since 1970.
INSERT INTO egress_audit (at, org, sandbox, session, kind, form, host, port, verdict, reason, observed, class, address,
  bytes_out, bytes_in, duration_ms)
SELECT to_timestamp(t / 1000.0), org, sandbox, session, kind, form, host, port, verdict, reason, observed, class, address,
  bytes_out, bytes_in, duration_ms
FROM json_to_recordset($1::json) AS r(t bigint, org text, sandbox text, session text, kind text, form text, host text,
  port integer, verdict text, reason text, observed boolean, class text, address text, bytes_out bigint, bytes_in bigint,
  duration_ms bigint)

-- name: egress_audit_prune
-- $1 days, $2 how many at most: rows of every org that are older.
DELETE FROM egress_audit WHERE id IN (
  SELECT id FROM egress_audit WHERE at < now() - make_interval(days => $1::int) ORDER BY at LIMIT $2::int)

-- name: egress_tell
-- $1 session, $2 org, $3 JSON array of payloads, $4 how many. As session_append, but without a job, whose table this role may not
-- read. No row when the session is not open.
WITH s AS (
  UPDATE sessions SET last_seq = last_seq + $4::int WHERE id = $1 AND org = $2 AND state = 'open' RETURNING last_seq, root),
put AS (
  INSERT INTO events (session, seq, org, kind, payload)
  SELECT $1, s.last_seq - $4::int + p.i, $2, 'log', p.value::text
  FROM s, json_array_elements($3::json) WITH ORDINALITY AS p(value, i))
SELECT pg_notify('gh_event', concat_ws(' ', $2::text, $1::text, last_seq, root)) FROM s
