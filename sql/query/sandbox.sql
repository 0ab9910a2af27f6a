-- Statements of app/sandbox. The API's carry the org; a node's own (sandbox_n_*) name the node instead: it looks after the
-- sandboxes of every org on it and is told ids only by the API, which has looked them up by org.

-- name: node_register
-- $1 name, $2 instance, $3 address, $4 runtimes, $5 capacity, $6 refusal. No row when the name is another deployment's.
INSERT INTO nodes (name, instance, address, runtimes, capacity, refusal) VALUES ($1, $2, $3, $4::text[], $5::int, $6)
ON CONFLICT (name) DO UPDATE SET address = EXCLUDED.address, runtimes = EXCLUDED.runtimes, capacity = EXCLUDED.capacity,
  refusal = EXCLUDED.refusal, started_at = now(), heartbeat_at = now()
WHERE nodes.instance = EXCLUDED.instance
RETURNING name

-- name: node_beat
-- $1 name, $2 instance, $3 capacity.
UPDATE nodes SET heartbeat_at = now(), capacity = $3::int WHERE name = $1 AND instance = $2 RETURNING name

-- name: node_away
-- $1 name, $2 instance: it stops on purpose; nothing is placed on it until it registers again.
UPDATE nodes SET heartbeat_at = '-infinity' WHERE name = $1 AND instance = $2

-- name: node_offers
-- $1 seconds after which a silent node counts as gone. A row per node and runtime; runtime NULL for a node that has none.
SELECT n.name, n.heartbeat_at > now() - make_interval(secs => $1::int), n.refusal, n.contained, r.runtime
FROM nodes n LEFT JOIN LATERAL unnest(n.runtimes) AS r (runtime) ON true
ORDER BY n.name

-- name: node_doors
-- $1 seconds after which a silent node counts as gone: where those that offer something are reached.
SELECT name, address FROM nodes
WHERE heartbeat_at > now() - make_interval(secs => $1::int) AND refusal = '' AND cardinality(runtimes) > 0 ORDER BY name

-- name: node_pick
-- $1 runtime, $2 must be contained, $3 seconds of silence allowed. The least loaded; its row is locked until the commit, so that
-- the slot that is chosen next is nobody else's.
SELECT n.name, n.capacity FROM nodes n
WHERE n.heartbeat_at > now() - make_interval(secs => $3::int) AND n.refusal = '' AND $1 = ANY (n.runtimes)
  AND (NOT $2::boolean OR n.contained)
ORDER BY (SELECT count(*) FROM sandboxes s WHERE s.node = n.name AND s.slot IS NOT NULL)::float8 / greatest(n.capacity, 1), n.name
LIMIT 1 FOR UPDATE OF n

-- name: sandbox_insert
-- $1 id, $2 org, $3 class, $4 image, $5 runtime, $6 kernel, $7 network, $8 tier, $9 node, $10 capacity, $11 workdir, $12 env,
-- $13 limits, $14 session or NULL, $15 created by, $16 ttl in seconds. No row when the node is full.
INSERT INTO sandboxes (id, org, class, image, runtime, iso_kernel, iso_network, iso_tier, node, slot, workdir, env, limits,
  session, created_by, expires_at)
SELECT $1, $2, $3, $4, $5, $6::boolean, $7, $8::int, $9, s.slot, $11, $12, $13, $14, $15, now() + make_interval(secs => $16::int)
FROM generate_series(0, $10::int - 1) AS s (slot)
WHERE NOT EXISTS (SELECT FROM sandboxes x WHERE x.node = $9 AND x.slot = s.slot)
ORDER BY s.slot LIMIT 1
RETURNING id

-- name: sandbox_get
-- $1 org, $2 id
SELECT id, class, project, status, image, runtime, iso_kernel, iso_network, iso_tier, workdir, node, error,
  to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  to_char(last_used_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
FROM sandboxes WHERE org = $1 AND id = $2

-- name: sandbox_list
-- $1 org, $2 id of the last row seen or empty, $3 how many. Newest first. The columns of sandbox_get.
SELECT id, class, project, status, image, runtime, iso_kernel, iso_network, iso_tier, workdir, node, error,
  to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  to_char(last_used_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
FROM sandboxes WHERE org = $1 AND ($2 = '' OR id < $2) ORDER BY id DESC LIMIT $3::int

-- name: sandbox_reach
-- $1 org, $2 id, $3 seconds of silence allowed
SELECT s.status, s.node, s.workdir, n.address, n.heartbeat_at > now() - make_interval(secs => $3::int), s.error
FROM sandboxes s JOIN nodes n ON n.name = s.node WHERE s.org = $1 AND s.id = $2

-- name: sandbox_used
-- $1 org, $2 id
UPDATE sandboxes SET last_used_at = now() WHERE org = $1 AND id = $2 AND status = 'running'

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
SELECT status, class, runtime, workdir, env, limits, slot, iso_tier, (EXTRACT(epoch FROM expires_at - now()) * 1000)::bigint
FROM sandboxes WHERE node = $1 AND id = $2

-- name: sandbox_n_running
-- $1 node, $2 id
UPDATE sandboxes SET status = 'running' WHERE node = $1 AND id = $2 AND status = 'pending' RETURNING id

-- name: sandbox_n_close
-- $1 node, $2 id, $3 status, $4 error or NULL. Only after everything of it is gone: this frees its slot.
UPDATE sandboxes SET status = $3, error = $4, ended_at = now(), slot = NULL
WHERE node = $1 AND id = $2 AND status IN ('pending', 'running')

-- name: sandbox_n_live
-- $1 node
SELECT id, status, (EXTRACT(epoch FROM expires_at - now()) * 1000)::bigint, end_asked_at IS NOT NULL
FROM sandboxes WHERE node = $1 AND status IN ('pending', 'running')
