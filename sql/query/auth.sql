-- Statements of app/auth: credentials and orgs.

-- name: auth_find
-- $1 id, $2 kind. The one look-up without an org: which org it is comes out of it (ID-1).
SELECT id, org, user_name, org_admin, scopes, repo, ref, session, hash,
  revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())
FROM credentials WHERE id = $1 AND kind = $2

-- name: auth_create
-- $1 id, $2 org, $3 kind, $4 name, $5 user, $6 hash, $7 org_admin, $8 scopes, $9 repo, $10 ref, $11 session,
-- $12 seconds to live or NULL, $13 end or NULL. No row when the org does not exist.
INSERT INTO credentials (id, org, kind, name, user_name, hash, org_admin, scopes, repo, ref, session, expires_at)
SELECT $1, slug, $3, $4, $5, $6, $7::boolean, $8, $9, $10, $11,
  coalesce($13::timestamptz, clock_timestamp() + make_interval(secs => $12::bigint))
FROM orgs WHERE slug = $2
RETURNING to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')

-- name: auth_sweep
-- $1 org. Run tokens and grants that ended long ago; nobody asks about them.
DELETE FROM credentials WHERE org = $1 AND kind IN ('run_token', 'grant') AND expires_at < now() - interval '1 day'

-- name: auth_revoke
-- $1 org, $2 kind, $3 id
UPDATE credentials SET revoked_at = clock_timestamp() WHERE id = $3 AND org = $1 AND kind = $2 AND revoked_at IS NULL

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
