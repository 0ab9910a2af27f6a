-- Statements of app/auth/broker: brokered credentials. Triggers tell the boundary of every change.

-- name: broker_bind
-- $1 id, $2 org, $3 name, $4 host, $5 header, $6 sealed value, $7 created by
INSERT INTO egress_credentials (id, org, name, host, header, sealed, created_by) VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING id, name, host, header, created_by, to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')

-- name: broker_list
-- $1 org, $2 id of the last row seen or empty, $3 how many. Newest first, never the value.
SELECT id, name, host, header, created_by, to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
FROM egress_credentials WHERE org = $1 AND ($2 = '' OR id < $2) ORDER BY id DESC LIMIT $3::int

-- name: broker_remove
-- $1 org, $2 id
DELETE FROM egress_credentials WHERE org = $1 AND id = $2
