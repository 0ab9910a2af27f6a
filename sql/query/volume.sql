-- Statements about volumes. As in sandbox.sql the API's carry the org, and a node's own (volume_n_*) name the node instead.

-- name: volume_lock
-- $1 what: leases and purges of one volume come one after the other.
SELECT pg_advisory_xact_lock(hashtextextended('volume ' || $1, 0))

-- name: volume_live
-- $1 org, $2 project or NULL, $3 session or NULL: who holds either now. At most two rows, those of the project first.
SELECT id, status, class, runtime, end_asked_at IS NOT NULL, coalesce(project = $2, false)
FROM sandboxes WHERE org = $1 AND slot IS NOT NULL AND (project = $2 OR state_of = $3)
ORDER BY coalesce(project = $2, false) DESC

-- name: volume_find
-- $1 org, $2 kind, $3 name
SELECT node, purge_asked_at IS NOT NULL FROM volumes WHERE org = $1 AND kind = $2 AND name = $3

-- name: volume_claim
-- $1 org, $2 kind, $3 name, $4 node, $5 size of a new one, $6 the lease. The row stays locked until the commit.
INSERT INTO volumes (org, kind, name, node, size_bytes, made_for) VALUES ($1, $2, $3, $4, $5::bigint, $6)
ON CONFLICT (org, kind, name) DO UPDATE
  SET made_for = CASE WHEN volumes.made_for IS NULL THEN NULL ELSE EXCLUDED.made_for END

-- name: volume_session
-- $1 org, $2 session
SELECT state FROM sessions WHERE org = $1 AND id = $2

-- name: volume_list
-- $1 org, $2 name of the last row seen or empty, $3 how many
SELECT name, size_bytes, used_bytes, to_char(leased_on, 'YYYY-MM-DD'), node,
  (SELECT s.id FROM sandboxes s WHERE s.org = volumes.org AND s.project = volumes.name AND s.slot IS NOT NULL)
FROM volumes WHERE org = $1 AND kind = 'project' AND purge_asked_at IS NULL AND name > $2 ORDER BY name LIMIT $3::int

-- name: volume_ask_purge
-- $1 org, $2 project. Where it is; its node deletes it at its next round, whether or not it can be told so.
UPDATE volumes v SET purge_asked_at = COALESCE(v.purge_asked_at, now())
FROM nodes n WHERE v.org = $1 AND v.kind = 'project' AND v.name = $2 AND n.name = v.node
RETURNING v.node, n.address

-- name: volume_unused
-- $1 days: those of every org that nobody has leased for so long, none of them live; what the operator may purge.
SELECT org, name, node, size_bytes, used_bytes, coalesce(to_char(leased_on, 'YYYY-MM-DD'), 'never')
FROM volumes v
WHERE kind = 'project' AND purge_asked_at IS NULL
  AND coalesce(leased_on, (created_at AT TIME ZONE 'UTC')::date) <= (now() AT TIME ZONE 'UTC')::date - $1::int
  AND NOT EXISTS (SELECT FROM sandboxes s WHERE s.org = v.org AND s.project = v.name AND s.slot IS NOT NULL)
ORDER BY leased_on NULLS FIRST, org, name

-- name: volume_n_lock
-- $1 node, $2 org, $3 kind, $4 name
SELECT name FROM volumes WHERE node = $1 AND org = $2 AND kind = $3 AND name = $4 FOR UPDATE

-- name: volume_n_due
-- $1 node, $2 org, $3 kind, $4 name or all three NULL: what is to be deleted, and no sandbox has. It was asked for; or the
-- lease that was to make it never ran; or its session is over.
SELECT v.org, v.kind, v.name FROM volumes v
WHERE v.node = $1 AND ($4::text IS NULL OR (v.org, v.kind, v.name) = ($2, $3, $4))
  AND (v.purge_asked_at IS NOT NULL
    OR (v.made_for IS NOT NULL AND NOT EXISTS (SELECT FROM sandboxes s WHERE s.id = v.made_for AND s.slot IS NOT NULL))
    OR (v.kind = 'session'
      AND NOT EXISTS (SELECT FROM sessions x WHERE x.org = v.org AND x.id = v.name AND x.state = 'open')))
  AND NOT EXISTS (SELECT FROM sandboxes s WHERE s.org = v.org AND s.slot IS NOT NULL
    AND CASE v.kind WHEN 'project' THEN s.project ELSE s.state_of END = v.name)

-- name: volume_n_delete
-- $1 node, $2 org, $3 kind, $4 name. Only after its file.
DELETE FROM volumes WHERE node = $1 AND org = $2 AND kind = $3 AND name = $4

-- name: volume_n_stamp
-- $1 node: what a running sandbox has was leased today.
UPDATE volumes v SET leased_on = (now() AT TIME ZONE 'UTC')::date
FROM sandboxes s
WHERE v.node = $1 AND s.node = $1 AND s.status = 'running' AND s.org = v.org
  AND CASE v.kind WHEN 'project' THEN s.project ELSE s.state_of END = v.name
  AND v.leased_on IS DISTINCT FROM (now() AT TIME ZONE 'UTC')::date

-- name: volume_n_all
-- $1 node, $2 a sandbox of it whose volumes only are asked for, or NULL
SELECT org, kind, name, used_bytes FROM volumes v WHERE node = $1 AND ($2::text IS NULL OR EXISTS (
  SELECT FROM sandboxes s WHERE s.id = $2 AND s.org = v.org
    AND CASE v.kind WHEN 'project' THEN s.project ELSE s.state_of END = v.name))

-- name: volume_n_used
-- $1 node, $2 org, $3 kind, $4 name, $5 bytes
UPDATE volumes SET used_bytes = $5::bigint WHERE node = $1 AND org = $2 AND kind = $3 AND name = $4
