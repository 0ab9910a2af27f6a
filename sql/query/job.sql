-- Statements of app/job/queue.c.

-- name: job_put
-- $1 id, $2 org, $3 kind, $4 subject
WITH put AS (INSERT INTO jobs (id, org, kind, subject) VALUES ($1, $2, $3, $4) RETURNING kind)
SELECT pg_notify('gh_job', kind) FROM put

-- name: job_claim_ready
-- $1 kind, $2 low-water mark, $3 worker, $4 lease in seconds. The CTE locks, so it is not inlined and picks one row once.
-- "n > $2" lets the index scan start behind the entries of rows that are dead but still visible to some old snapshot.
WITH pick AS (
  SELECT id FROM jobs WHERE state = 'queued' AND kind = $1 AND n > $2::bigint
  ORDER BY n LIMIT 1 FOR UPDATE SKIP LOCKED)
UPDATE jobs j SET state = 'running', attempt = j.attempt + 1, fence = nextval('job_fence'), worker = $3,
  lease_until = clock_timestamp() + make_interval(secs => $4::int)
FROM pick WHERE j.id = pick.id AND j.state = 'queued'
RETURNING j.id, j.org, j.kind, j.subject, j.fence, j.attempt, j.crashes, j.n

-- name: job_claim_lapsed
-- $1 kind, $2 worker, $3 lease in seconds. Guarded by state and fence, so that a job that was finished or renewed between
-- the look and the write is left alone.
WITH pick AS (
  SELECT id, fence FROM jobs WHERE state = 'running' AND kind = $1 AND lease_until < statement_timestamp()
  ORDER BY lease_until LIMIT 1 FOR UPDATE SKIP LOCKED)
UPDATE jobs j SET attempt = j.attempt + 1, crashes = j.crashes + 1, fence = nextval('job_fence'), worker = $2,
  lease_until = clock_timestamp() + make_interval(secs => $3::int)
FROM pick WHERE j.id = pick.id AND j.fence = pick.fence AND j.state = 'running'
RETURNING j.id, j.org, j.kind, j.subject, j.fence, j.attempt, j.crashes, j.n

-- name: job_renew
-- $1 id, $2 org, $3 fence, $4 lease in seconds
UPDATE jobs SET lease_until = clock_timestamp() + make_interval(secs => $4::int)
WHERE id = $1 AND org = $2 AND fence = $3::bigint AND state = 'running'

-- name: job_finish
-- $1 id, $2 org, $3 fence, $4 state
UPDATE jobs SET state = $4, finished_at = clock_timestamp(), lease_until = NULL
WHERE id = $1 AND org = $2 AND fence = $3::bigint AND state = 'running'

-- name: job_release
-- $1 id, $2 org, $3 fence
WITH back AS (
  UPDATE jobs SET state = 'queued', lease_until = NULL, worker = NULL
  WHERE id = $1 AND org = $2 AND fence = $3::bigint AND state = 'running' RETURNING kind)
SELECT pg_notify('gh_job', kind) FROM back
