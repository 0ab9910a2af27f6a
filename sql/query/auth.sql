-- Statements of app/auth: credentials and orgs.

-- name: auth_find
-- $1 id, $2 kind. The one look-up without an org: which org it is comes out of it (ID-1).
-- A sandbox's counts as long as the key that asked for it; whether the sandbox itself is over is another column, as that is to be
-- told. A run's counts until the run has ended. The last column: a key that does not end within a second (auth/known).
SELECT id, org, user_name, org_admin, scopes, repo, ref, session, hash,
  revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp() OR kind = 'sandbox')
    AND (minted_by IS NULL OR EXISTS (SELECT FROM credentials k WHERE k.id = c.minted_by AND k.org = c.org
      AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())))
    AND (kind <> 'run_token' OR NOT EXISTS (SELECT FROM runs r WHERE r.session = c.session AND r.org = c.org
      AND r.ended_at IS NOT NULL)),
  CASE WHEN old_until > clock_timestamp() THEN old_hash END,
  sandbox, sandbox IS NOT NULL AND NOT EXISTS (SELECT FROM sandboxes s WHERE s.id = c.sandbox AND s.org = c.org
    AND s.status = 'running'),
  CASE WHEN kind = 'run_token' THEN (SELECT r.id FROM runs r WHERE r.session = c.session AND r.org = c.org) END,
  kind = 'key' AND (expires_at IS NULL OR expires_at > clock_timestamp() + interval '1 s')
FROM credentials c WHERE id = $1 AND kind = $2

-- name: auth_create
-- $1 id, $2 org, $3 kind, $4 name, $5 user, $6 hash, $7 org_admin, $8 scopes, $9 repo, $10 ref, $11 session,
-- $12 seconds to live or NULL, $13 end or NULL, $14 sandbox, $15 the key that asked for it. No row when the org does not exist.
INSERT INTO credentials (id, org, kind, name, user_name, hash, org_admin, scopes, repo, ref, session, expires_at, sandbox, minted_by)
SELECT $1, slug, $3, $4, $5, $6, $7::boolean, $8, $9, $10, $11,
  coalesce($13::timestamptz, clock_timestamp() + make_interval(secs => $12::bigint)), $14, $15
FROM orgs WHERE slug = $2
RETURNING to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')

-- name: auth_sweep
-- $1 org. What ended long ago; nobody asks about it.
DELETE FROM credentials WHERE org = $1 AND kind IN ('run_token', 'grant', 'sandbox') AND expires_at < now() - interval '1 day'

-- name: auth_revoke
-- $1 org, $2 kind, $3 id
UPDATE credentials SET revoked_at = clock_timestamp() WHERE id = $3 AND org = $1 AND kind = $2 AND revoked_at IS NULL

-- name: auth_rights
-- $1 org, $2 kind, $3 id: what a key may do, and whether it has ended. The row stays as it is until the transaction ends.
SELECT scopes, expires_at <= clock_timestamp() FROM credentials
WHERE id = $3 AND org = $1 AND kind = $2 AND revoked_at IS NULL FOR UPDATE

-- name: auth_rotate
-- $1 org, $2 kind, $3 id, $4 the new hash, $5 seconds for which the secret before it still counts. One before that is gone.
UPDATE credentials SET hash = $4,
  old_hash = CASE WHEN $5::int > 0 THEN hash END,
  old_until = CASE WHEN $5::int > 0 THEN
    least(clock_timestamp() + make_interval(secs => $5::int), coalesce(expires_at, 'infinity')) END
WHERE id = $3 AND org = $1 AND kind = $2 AND revoked_at IS NULL
RETURNING name, user_name, org_admin, scopes,
  to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  to_char(old_until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')

-- name: auth_revoke_session
-- $1 org, $2 session
DELETE FROM credentials WHERE org = $1 AND session = $2 AND kind IN ('run_token', 'grant')

-- name: auth_revoke_repo
-- $1 org, $2 repository
DELETE FROM credentials WHERE org = $1 AND repo = $2 AND kind = 'grant'

-- name: auth_list
-- $1 org, $2 kind, $3 ids below this one or '', $4 how many
SELECT id, name, user_name, org_admin, scopes,
  to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
FROM credentials WHERE org = $1 AND kind = $2 AND revoked_at IS NULL AND ($3 = '' OR id < $3)
ORDER BY id DESC LIMIT $4::int

-- name: auth_org_create
INSERT INTO orgs (slug) VALUES ($1)

-- name: auth_org_exists
SELECT 1 FROM orgs WHERE slug = $1

-- name: auth_grants
-- $1 org, $2 repository, $3 ids below this one or '', $4 how many. What still works.
SELECT id, ref, user_name, session,
  to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
FROM credentials
WHERE org = $1 AND kind = 'grant' AND repo = $2 AND revoked_at IS NULL AND expires_at > clock_timestamp()
  AND ($3 = '' OR id < $3)
ORDER BY id DESC LIMIT $4::int

-- name: auth_revoke_grant
-- $1 org, $2 repository, $3 id
UPDATE credentials SET revoked_at = clock_timestamp()
WHERE id = $3 AND org = $1 AND kind = 'grant' AND repo = $2 AND revoked_at IS NULL AND expires_at > clock_timestamp()
