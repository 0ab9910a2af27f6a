-- Statements of app/auth/reseal.c: what is sealed, of every org, since the key is the service's own (SEC-6).

-- name: seal_run_page
-- $1 how a value begins that needs nothing, $2 ids above this one or '', $3 how many
SELECT org, id, sealed_credential FROM runs
WHERE sealed_credential IS NOT NULL AND NOT starts_with(sealed_credential, $1) AND id > $2 ORDER BY id LIMIT $3::int

-- name: seal_run_put
-- $1 org, $2 id, $3 the value that was read, $4 the same sealed anew. A run that ended meanwhile has no value any more.
UPDATE runs SET sealed_credential = $4 WHERE org = $1 AND id = $2 AND sealed_credential = $3

-- name: seal_run_uses
-- $1 how a value of that key begins. Values of the first form do not say which key they need.
SELECT count(*) FROM runs
WHERE sealed_credential IS NOT NULL AND (starts_with(sealed_credential, $1) OR starts_with(sealed_credential, '1:'))

-- name: seal_broker_page
-- $1 how a value begins that needs nothing, $2 ids above this one or '', $3 how many
SELECT org, id, sealed FROM egress_credentials WHERE NOT starts_with(sealed, $1) AND id > $2 ORDER BY id LIMIT $3::int

-- name: seal_broker_put
-- $1 org, $2 id, $3 the value that was read, $4 the same sealed anew
UPDATE egress_credentials SET sealed = $4 WHERE org = $1 AND id = $2 AND sealed = $3

-- name: seal_broker_uses
-- $1 how a value of that key begins
SELECT count(*) FROM egress_credentials WHERE starts_with(sealed, $1) OR starts_with(sealed, '1:')

-- name: seal_once_uses
-- $1 key id. Fingerprints of inputs: they cannot be made anew, but are looked at for a day only (once_look).
SELECT count(*) FROM once WHERE starts_with(hash, $1) AND created_at > clock_timestamp() - interval '24 hours'

-- name: seal_model_page
-- $1 how a value begins that needs nothing, $2 ids above this one or '', $3 how many
SELECT org, id, sealed FROM model_keys
WHERE sealed IS NOT NULL AND NOT starts_with(sealed, $1) AND id > $2 ORDER BY id LIMIT $3::int

-- name: seal_model_put
-- $1 org, $2 id, $3 the value that was read, $4 the same sealed anew
UPDATE model_keys SET sealed = $4 WHERE org = $1 AND id = $2 AND sealed = $3

-- name: seal_model_uses
-- $1 how a value of that key begins
SELECT count(*) FROM model_keys WHERE starts_with(sealed, $1) OR starts_with(sealed, '1:')
