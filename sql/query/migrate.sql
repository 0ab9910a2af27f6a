-- The record of applied migrations (io/migrate).

-- name: migrate_lock
-- One at a time, held until the transaction ends; the number is only ours ("gate" in ASCII).
SELECT pg_advisory_xact_lock(1734440037)

-- name: migrate_table
CREATE TABLE IF NOT EXISTS schema_migrations (
  name        text PRIMARY KEY,
  sha256      text NOT NULL,
  applied_at  timestamptz NOT NULL DEFAULT now()
)

-- name: migrate_exists
SELECT to_regclass('schema_migrations') IS NOT NULL

-- name: migrate_applied
SELECT name, sha256 FROM schema_migrations ORDER BY name

-- name: migrate_record
INSERT INTO schema_migrations (name, sha256) VALUES ($1, $2)
