-- Model calls as their Idempotency-Key finds them (app/model/call.c).

-- name: call_state
SELECT EXISTS (SELECT 1 FROM reservations WHERE org = $1 AND request = $2),
       EXISTS (SELECT 1 FROM usage_rows WHERE org = $1 AND request = $2),
       EXISTS (SELECT 1 FROM usage_rows WHERE org = $1 AND request = $2 AND at > now() - interval '10 seconds')
