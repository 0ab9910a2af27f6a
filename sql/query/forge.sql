-- Statements of app/forge: a repository exists for its org and nobody else.

-- name: repo_insert
INSERT INTO repos (org, name, project, default_branch) VALUES ($1, $2, $3, $4)
RETURNING to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at

-- name: repo_by_name
SELECT name, project, default_branch,
       to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at
FROM repos WHERE org = $1 AND name = $2

-- name: repo_page
SELECT name, project, default_branch,
       to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at
FROM repos WHERE org = $1 AND name > $2 ORDER BY name LIMIT $3

-- name: repo_drop
DELETE FROM repos WHERE org = $1 AND name = $2
