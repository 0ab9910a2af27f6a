-- Statements of app/job/queue.c.

-- name: job_put
-- $1 id, $2 org, $3 kind, $4 subject
WITH put AS (INSERT INTO jobs (id, org, kind, subject) VALUES ($1, $2, $3, $4) RETURNING kind)
SELECT pg_notify('gh_job', kind) FROM put

-- name: job_claim_ready
-- $1 kind, $2 low-water mark, $3 worker, $4 lease in seconds. The CTE locks (and looks again at what it locked), so it is
-- not inlined and picks one row once. The write must not name the state again: the planner, whose statistics know finished rows,
-- would then look for the row in the whole of jobs_ready instead of by its id, and a claim would cost as much as the queue is long.
-- "n > $2" lets the index scan start behind the entries of rows that are dead but still visible to some old snapshot.
WITH pick AS (
  SELECT id FROM jobs WHERE state = 'queued' AND kind = $1 AND n > $2::bigint
  ORDER BY n LIMIT 1 FOR UPDATE SKIP LOCKED)
UPDATE jobs j SET state = 'running', attempt = j.attempt + 1, fence = nextval('job_fence'), worker = $3, lease_s = $4::int,
  lease_until = clock_timestamp() + make_interval(secs => $4::int)
FROM pick WHERE j.id = pick.id
RETURNING j.id, j.org, j.kind, j.subject, j.fence, j.attempt, j.crashes, j.n

-- name: job_claim_lapsed
-- $1 kind, $2 worker, $3 lease in seconds, $4 the latest that the database's clock can say unless it has just stepped, in
-- milliseconds since 1970: past it no lease is judged. A job that was finished or renewed between the look and
-- the lock is left alone, as locking looks again. The state is not named twice for job_claim_ready's reason.
WITH pick AS (
  SELECT id, fence, lease_until - make_interval(secs => $3::int) < pg_postmaster_start_time() AS excused
  FROM jobs WHERE state = 'running' AND kind = $1
    AND (lease_until < statement_timestamp() OR lease_until > statement_timestamp() + make_interval(secs => lease_s + 2))
    AND extract(epoch FROM clock_timestamp()) * 1000 < $4::bigint
  ORDER BY lease_until LIMIT 1 FOR UPDATE SKIP LOCKED)
UPDATE jobs j SET attempt = j.attempt + 1, crashes = j.crashes + CASE WHEN pick.excused THEN 0 ELSE 1 END,
  fence = nextval('job_fence'), worker = $2, lease_s = $3::int,
  lease_until = clock_timestamp() + make_interval(secs => $3::int)
FROM pick WHERE j.id = pick.id AND j.fence = pick.fence
RETURNING j.id, j.org, j.kind, j.subject, j.fence, j.attempt, j.crashes, j.n

-- name: job_clock
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: job_renew
-- $1 id, $2 org, $3 fence, $4 lease in seconds
UPDATE jobs SET lease_s = $4::int, lease_until = clock_timestamp() + make_interval(secs => $4::int)
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

-- name: job_withdraw
-- $1 org, $2 kind, $3 subject: only what nobody has ever claimed
UPDATE jobs SET state = 'failed', finished_at = clock_timestamp()
WHERE org = $1 AND kind = $2 AND subject = $3 AND state = 'queued' AND attempt = 0
