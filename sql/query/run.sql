-- Statements of app/code: coding runs as rows. Those of a runner name their job and its fence ($3, $4); a worker that lost
-- its job writes nothing. Locks are taken in the order job, run.

-- name: run_put
-- $1 id, $2 org, $3 tool, $4 session, $5 repo, $6 clone URL, $7 base, $8 branch, $9 prompt, $10 desktop, $11 timeout,
-- $12 created by, $13 sealed credential, $14 its user
INSERT INTO runs (id, org, tool, session, repo, clone_url, base, branch, prompt, desktop, timeout_s, created_by,
  sealed_credential, credential_user)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::boolean, $11::int, $12, $13, $14)

-- name: run_get
-- $1 org, $2 id
SELECT id, kind, tool, repo, clone_url, base, branch, state, session, commit, created_by,
  to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  to_char(ended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  to_char(stop_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  (extract(epoch FROM COALESCE(ended_at, clock_timestamp()) - created_at) * 1000)::bigint, stop_by,
  (SELECT COALESCE(sum(u.millicents), 0)::bigint FROM usage_rows u WHERE u.org = $1 AND u.run = runs.id AND NOT u.test)
FROM runs WHERE org = $1 AND id = $2

-- name: run_list
-- $1 org, $2 only ids below, $3 limit. Newest first; the columns of run_get.
SELECT id, kind, tool, repo, clone_url, base, branch, state, session, commit, created_by,
  to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  to_char(ended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  to_char(stop_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  (extract(epoch FROM COALESCE(ended_at, clock_timestamp()) - created_at) * 1000)::bigint, stop_by,
  (SELECT COALESCE(sum(u.millicents), 0)::bigint FROM usage_rows u WHERE u.org = $1 AND u.run = runs.id AND NOT u.test)
FROM runs WHERE org = $1 AND id < $2 ORDER BY id DESC LIMIT $3::int

-- name: run_of_session
-- $1 org, $2 session
SELECT id FROM runs WHERE org = $1 AND session = $2

-- name: run_ask_stop
-- $1 org, $2 id, $3 who. The first to ask is remembered; every asking wakes the runner.
WITH s AS (
  UPDATE runs SET stop_at = COALESCE(stop_at, clock_timestamp()), stop_by = COALESCE(stop_by, $3)
  WHERE org = $1 AND id = $2 AND state IN ('queued', 'running') RETURNING id)
SELECT pg_notify('gh_stop', id) FROM s

-- name: run_end_queued
-- $1 org, $2 id, $3 who. After its job was withdrawn.
UPDATE runs SET state = 'stopped', ended_at = clock_timestamp(), sealed_credential = NULL,
  stop_at = COALESCE(stop_at, clock_timestamp()), stop_by = COALESCE(stop_by, $3)
WHERE org = $1 AND id = $2 AND state = 'queued'

-- name: run_asked_to_stop
-- $1, $2: orgs and ids of the runs in hand, as arrays of one length
SELECT r.id FROM runs r JOIN unnest($1::text[], $2::text[]) AS mine (org, id) ON r.org = mine.org AND r.id = mine.id
WHERE r.stop_at IS NOT NULL

-- name: run_hold
-- $1 org, $2 job, $3 fence: inside a transaction, nobody takes the job over before its end
SELECT FROM jobs WHERE id = $2 AND org = $1 AND fence = $3::bigint AND state = 'running' FOR NO KEY UPDATE

-- name: run_begin
-- $1 org, $2 id, $3 job, $4 fence
WITH held AS (
  SELECT FROM jobs WHERE id = $3 AND org = $1 AND fence = $4::bigint AND state = 'running' FOR NO KEY UPDATE)
UPDATE runs SET state = 'running', started_at = COALESCE(started_at, clock_timestamp())
WHERE org = $1 AND id = $2 AND state IN ('queued', 'running') AND EXISTS (SELECT FROM held)
RETURNING tool, session, repo, clone_url, base, branch, prompt, desktop, timeout_s, created_by, sealed_credential,
  credential_user, draft, stop_at IS NOT NULL

-- name: run_set_sandbox
-- $1 org, $2 id, $3 job, $4 fence, $5 sandbox
WITH held AS (
  SELECT FROM jobs WHERE id = $3 AND org = $1 AND fence = $4::bigint AND state = 'running' FOR NO KEY UPDATE)
UPDATE runs SET sandbox = $5 WHERE org = $1 AND id = $2 AND state = 'running' AND EXISTS (SELECT FROM held)

-- name: run_set_draft
-- $1 org, $2 id, $3 job, $4 fence, $5 draft
WITH held AS (
  SELECT FROM jobs WHERE id = $3 AND org = $1 AND fence = $4::bigint AND state = 'running' FOR NO KEY UPDATE)
UPDATE runs SET draft = $5 WHERE org = $1 AND id = $2 AND state = 'running' AND EXISTS (SELECT FROM held)

-- name: run_end
-- $1 org, $2 id, $3 job, $4 fence, $5 state, $6 commit
WITH held AS (
  SELECT FROM jobs WHERE id = $3 AND org = $1 AND fence = $4::bigint AND state = 'running' FOR NO KEY UPDATE)
UPDATE runs SET state = $5, commit = $6, ended_at = clock_timestamp(), sealed_credential = NULL, sandbox = NULL, draft = NULL
WHERE org = $1 AND id = $2 AND state IN ('queued', 'running') AND EXISTS (SELECT FROM held)

-- name: run_sandboxes
-- $1 org, $2 session: what its attempts leased and what still lives
SELECT id FROM sandboxes WHERE org = $1 AND session = $2 AND status IN ('pending', 'running') ORDER BY id

-- name: run_live
-- $1 org: how many of its runs have not ended
SELECT count(*) FROM runs WHERE org = $1 AND state IN ('queued', 'running')

-- name: run_unended
-- $1 org, $2 session, $3 and $4: how the payloads of leases and of ends begin, as LIKE patterns. Was a lease told whose end was
-- not? Steps are written by the runner only.
SELECT COALESCE(max(seq) FILTER (WHERE payload LIKE $3), 0) > COALESCE(max(seq) FILTER (WHERE payload LIKE $4), 0)
FROM events WHERE org = $1 AND session = $2 AND kind = 'step'

-- name: run_for_token
-- $1 org, $2 id. The row stays as it is until the transaction ends, so no token is made for a run that ends meanwhile.
SELECT session, created_by, ended_at IS NOT NULL FROM runs WHERE org = $1 AND id = $2 FOR SHARE
