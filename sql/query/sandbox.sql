-- Statements of app/sandbox. The API's carry the org; a node's own (sandbox_n_*) name the node instead: it looks after the
-- sandboxes of every org on it and is told ids only by the API, which has looked them up by org.

-- name: node_register
-- $1 name, $2 instance, $3 address, $4 runtimes, $5 capacity, $6 refusal, $7 isolates, $8 why no volumes. No row when the name
-- is another deployment's.
INSERT INTO nodes (name, instance, address, runtimes, capacity, refusal, isolated, volumes)
VALUES ($1, $2, $3, $4::text[], $5::int, $6, $7::boolean, $8)
ON CONFLICT (name) DO UPDATE SET address = EXCLUDED.address, runtimes = EXCLUDED.runtimes, capacity = EXCLUDED.capacity,
  refusal = EXCLUDED.refusal, isolated = EXCLUDED.isolated, volumes = EXCLUDED.volumes, started_at = now(), heartbeat_at = now()
WHERE nodes.instance = EXCLUDED.instance
RETURNING name

-- name: node_beat
-- $1 name, $2 instance, $3 capacity.
UPDATE nodes SET heartbeat_at = now(), capacity = $3::int WHERE name = $1 AND instance = $2 RETURNING name

-- name: node_away
-- $1 name, $2 instance: it stops on purpose; nothing is placed on it until it registers again.
UPDATE nodes SET heartbeat_at = '-infinity' WHERE name = $1 AND instance = $2

-- A heartbeat from the future was written before the clock stepped back, and says as little as an old one (REL-6).

-- name: node_offers
-- $1 seconds after which a silent node counts as gone. A row per node and runtime; runtime NULL for a node that has none.
SELECT n.name,
  n.heartbeat_at BETWEEN now() - make_interval(secs => $1::int) AND now() + make_interval(secs => $1::int),
  n.refusal, n.contained, r.runtime, n.isolated, n.volumes
FROM nodes n LEFT JOIN LATERAL unnest(n.runtimes) AS r (runtime) ON true
ORDER BY n.name

-- name: node_doors
-- $1 seconds after which a silent node counts as gone: where those that offer something are reached.
SELECT name, address FROM nodes
WHERE heartbeat_at BETWEEN now() - make_interval(secs => $1::int) AND now() + make_interval(secs => $1::int)
  AND refusal = '' AND cardinality(runtimes) > 0 ORDER BY name

-- name: node_pick
-- $1 runtime, $2 must be contained, $3 seconds of silence allowed, $4 isolates or not: a deployment has nodes of one kind
-- only, so that no sandbox without isolation is ever a fallback (DRV-0), $5 that node only or NULL, $6 must hold volumes.
-- The least loaded; its row is locked until the commit, so that
-- the slot that is chosen next is nobody else's.
SELECT n.name, n.capacity FROM nodes n
WHERE n.heartbeat_at BETWEEN now() - make_interval(secs => $3::int) AND now() + make_interval(secs => $3::int)
  AND n.refusal = '' AND $1 = ANY (n.runtimes)
  AND (NOT $2::boolean OR n.contained) AND n.isolated = $4::boolean AND ($5::text IS NULL OR n.name = $5)
  AND (NOT $6::boolean OR n.volumes = '')
ORDER BY (SELECT count(*) FROM sandboxes s WHERE s.node = n.name AND s.slot IS NOT NULL)::float8 / greatest(n.capacity, 1), n.name
LIMIT 1 FOR UPDATE OF n

-- name: sandbox_insert
-- $1 id, $2 org, $3 class, $4 image, $5 runtime, $6 kernel, $7 network, $8 tier, $9 node, $10 capacity, $11 workdir, $12 env,
-- $13 limits, $14 session or NULL, $15 created by, $16 ttl in seconds, $17 policy, $18 project or NULL, $19 session whose state it
-- has or NULL, $20 mounts or empty. No row when the node is full. Its commit
-- waits for no disk: the lease is told only after sandbox_n_running has, which comes later in the same log; a row that a crash of
-- PostgreSQL loses before is a sandbox without one, which the node removes.
INSERT INTO sandboxes (id, org, class, image, runtime, iso_kernel, iso_network, iso_tier, node, slot, workdir, env, limits,
  session, created_by, expires_at, network, project, state_of, mounts)
SELECT $1, $2, $3, $4, $5, $6::boolean, $7, $8::int, $9, s.slot, $11, $12, $13, $14, $15, now() + make_interval(secs => $16::int),
  $17, $18, $19, $20
FROM generate_series(0, $10::int - 1) AS s (slot)
WHERE NOT EXISTS (SELECT FROM sandboxes x WHERE x.node = $9 AND x.slot = s.slot)
ORDER BY s.slot LIMIT 1
RETURNING id, set_config('synchronous_commit', 'off', true)

-- name: sandbox_get
-- $1 org, $2 id
SELECT id, class, project, status, image, runtime, iso_kernel, iso_network, iso_tier, workdir, node, error, network,
  to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  to_char(last_used_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
FROM sandboxes WHERE org = $1 AND id = $2

-- name: sandbox_list
-- $1 org, $2 id of the last row seen or empty, $3 how many. Newest first. The columns of sandbox_get.
SELECT id, class, project, status, image, runtime, iso_kernel, iso_network, iso_tier, workdir, node, error, network,
  to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  to_char(last_used_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
FROM sandboxes WHERE org = $1 AND ($2 = '' OR id < $2) ORDER BY id DESC LIMIT $3::int

-- name: sandbox_reach
-- $1 org, $2 id, $3 seconds of silence allowed
SELECT s.status, s.node, s.workdir, n.address,
  n.heartbeat_at BETWEEN now() - make_interval(secs => $3::int) AND now() + make_interval(secs => $3::int), s.error, s.iso_tier
FROM sandboxes s JOIN nodes n ON n.name = s.node WHERE s.org = $1 AND s.id = $2

-- name: sandbox_over
-- $1 org, $2 id: a row when it was ended on purpose, or is about to be, or its lease ran out.
SELECT FROM sandboxes WHERE org = $1 AND id = $2 AND status <> 'error'
  AND (status = 'ended' OR end_asked_at IS NOT NULL OR expires_at <= now())

-- name: sandbox_used
-- $1 org, $2 id
UPDATE sandboxes SET last_used_at = now() WHERE org = $1 AND id = $2 AND status = 'running'

-- name: sandbox_network_set
-- $1 org, $2 id, $3 policy, $4 isolation.network, $5 tier. The boundary is told by a trigger. No row: not running, or its node
-- cannot enforce it.
UPDATE sandboxes SET network = $3, iso_network = $4, iso_tier = $5::int
WHERE org = $1 AND id = $2 AND status = 'running' AND network_gate RETURNING network_version

-- name: sandbox_network_applied
-- $1 org, $2 id, $3 version
SELECT network_applied >= $3::bigint FROM sandboxes WHERE org = $1 AND id = $2 AND status = 'running'

-- name: sandbox_audit
-- $1 org, $2 sandbox, $3 ids below this one, $4 verdict of decisions or NULL, $5 how many. Newest first.
SELECT id, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), kind, form, host, port, verdict, reason, observed,
  class, address, bytes_out, bytes_in, duration_ms
FROM egress_audit
WHERE org = $1 AND sandbox = $2 AND id < $3::bigint AND ($4::text IS NULL OR (verdict = $4 AND kind = 'decision'))
ORDER BY id DESC LIMIT $5::int

-- name: sandbox_unbuilt
-- $1 org, $2 id, $3 error: its node was never told of it, so nothing can have been built.
UPDATE sandboxes SET status = 'error', error = $3, ended_at = now(), slot = NULL
WHERE org = $1 AND id = $2 AND status = 'pending'

-- name: sandbox_ask_end
-- $1 org, $2 id: its node ends it at its next round, whether or not it can be told so.
UPDATE sandboxes SET end_asked_at = COALESCE(end_asked_at, now())
WHERE org = $1 AND id = $2 AND status IN ('pending', 'running')

-- name: sandbox_n_pending
-- $1 node, $2 id
SELECT status, class, runtime, workdir, env, limits, slot, iso_tier, (EXTRACT(epoch FROM expires_at - now()) * 1000)::bigint,
  network, org, project, state_of, mounts,
  (SELECT size_bytes FROM volumes v WHERE v.org = s.org AND v.kind = 'project' AND v.name = s.project),
  (SELECT size_bytes FROM volumes v WHERE v.org = s.org AND v.kind = 'session' AND v.name = s.state_of)
FROM sandboxes s WHERE node = $1 AND id = $2

-- name: sandbox_n_running
-- $1 node, $2 id, $3 where its working directory really is, or NULL, $4 the boundary's listeners are open in it. Its volumes are
-- from now on what somebody may have written.
WITH used AS (UPDATE volumes SET made_for = NULL WHERE made_for = $2 AND node = $1)
UPDATE sandboxes SET status = 'running', workdir = COALESCE($3, workdir), network_gate = $4::boolean
WHERE node = $1 AND id = $2 AND status = 'pending' RETURNING id

-- name: sandbox_n_close
-- $1 node, $2 id, $3 status, $4 error or NULL. Only after everything of it is gone: this frees its slot.
UPDATE sandboxes SET status = $3, error = $4, ended_at = now(), slot = NULL
WHERE node = $1 AND id = $2 AND status IN ('pending', 'running')

-- name: sandbox_n_live
-- $1 node
SELECT id, status, (EXTRACT(epoch FROM expires_at - now()) * 1000)::bigint, end_asked_at IS NOT NULL,
  (EXTRACT(epoch FROM expires_at - created_at) * 1000)::bigint
FROM sandboxes WHERE node = $1 AND status IN ('pending', 'running')

-- name: sandbox_renew
-- $1 org, $2 id, $3 seconds from now, $4 only if that is later than its end so far. A new end of what runs, and of its own
-- credentials. The milliseconds that are left; no row: it does not run.
WITH s AS (
  UPDATE sandboxes SET expires_at = CASE WHEN $4::boolean THEN greatest(expires_at, now() + make_interval(secs => $3::int))
    ELSE now() + make_interval(secs => $3::int) END, last_used_at = now()
  WHERE org = $1 AND id = $2 AND status = 'running' RETURNING expires_at),
c AS (UPDATE credentials SET expires_at = s.expires_at FROM s WHERE org = $1 AND sandbox = $2 AND kind = 'sandbox')
SELECT (EXTRACT(epoch FROM expires_at - now()) * 1000)::bigint FROM s

-- name: sandbox_tag
-- $1 org, $2 id, $3 what its client writes on it
UPDATE sandboxes SET metadata = $3::jsonb WHERE org = $1 AND id = $2 AND status IN ('pending', 'running')

-- name: sandbox_door_get
-- $1 org, $2 id. Only what runs.
SELECT id, class, limits, metadata, network,
  to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  (EXTRACT(epoch FROM expires_at - now()) * 1000)::bigint
FROM sandboxes WHERE org = $1 AND id = $2 AND status = 'running'

-- name: sandbox_door_list
-- $1 org, $2 id of the last row seen or empty, $3 how many, $4 oldest first, $5 metadata that it must have, $6 leased after this
-- moment or NULL, $7 class or NULL. The columns of sandbox_door_get; ids sort by time.
SELECT id, class, limits, metadata, network,
  to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  (EXTRACT(epoch FROM expires_at - now()) * 1000)::bigint
FROM sandboxes WHERE org = $1 AND status = 'running' AND metadata @> $5::jsonb
  AND ($2 = '' OR CASE WHEN $4::boolean THEN id > $2 ELSE id < $2 END)
  AND ($6::timestamptz IS NULL OR created_at > $6::timestamptz) AND ($7::text IS NULL OR class = $7)
ORDER BY CASE WHEN $4::boolean THEN id END, CASE WHEN NOT $4::boolean THEN id END DESC LIMIT $3::int
