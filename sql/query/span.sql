-- Statements of app/model/trace: spans as they come, and as they are read.

-- name: span_put
-- $1 an array of spans. One that is there already (the answer to it was lost), or twice in the array, is neither stored nor counted again.
-- Members are taken one by one: that takes a third of the time of a record set.
WITH stored AS (
  INSERT INTO spans (org, trace_id, span_id, parent_id, name, started_at, duration_us, error, session, user_name,
    attributes, events)
  SELECT x ->> 'org', x ->> 'trace', x ->> 'span', x ->> 'parent', x ->> 'name',
    'epoch'::timestamptz + (x ->> 'start_us')::bigint * interval '1 microsecond',
    greatest(0, (x ->> 'end_us')::bigint - (x ->> 'start_us')::bigint), x ->> 'error', x ->> 'session', coalesce(x ->> 'user', ''),
    x -> 'attrs', coalesce(nullif(x -> 'events', 'null'), '[]')
  FROM jsonb_array_elements($1::jsonb) x
  ON CONFLICT (org, trace_id, span_id) DO NOTHING
  RETURNING org, trace_id, name, started_at, duration_us, error, session, user_name,
    (attributes ->> 'gen_ai.usage.input_tokens')::bigint AS input, (attributes ->> 'gen_ai.usage.output_tokens')::bigint AS output
)
INSERT INTO traces (org, trace_id, name, started_at, ended_at, spans, errors, input_tokens, output_tokens, session, user_name)
SELECT org, trace_id, (array_agg(name ORDER BY started_at))[1], min(started_at),
  max(started_at + duration_us * interval '1 microsecond'), count(*), count(error), coalesce(sum(input), 0), coalesce(sum(output), 0),
  max(session), max(user_name)
FROM stored GROUP BY org, trace_id ORDER BY org, trace_id
ON CONFLICT (org, trace_id) DO UPDATE SET
  name = CASE WHEN excluded.started_at < traces.started_at THEN excluded.name ELSE traces.name END,
  started_at = least(traces.started_at, excluded.started_at), ended_at = greatest(traces.ended_at, excluded.ended_at),
  spans = traces.spans + excluded.spans, errors = traces.errors + excluded.errors,
  input_tokens = traces.input_tokens + excluded.input_tokens, output_tokens = traces.output_tokens + excluded.output_tokens,
  session = coalesce(traces.session, excluded.session)

-- name: span_prune
-- $1 hours that are kept, $2 how many go at once
DELETE FROM spans WHERE ctid = ANY (ARRAY(SELECT ctid FROM spans
  WHERE started_at < now() - $1::int * interval '1 hour' LIMIT $2::int))

-- name: span_prune_traces
-- $1 hours that are kept, $2 how many go at once
DELETE FROM traces WHERE ctid = ANY (ARRAY(SELECT ctid FROM traces
  WHERE ended_at < now() - $1::int * interval '1 hour' LIMIT $2::int))

-- name: span_traces
-- $1 org, $2 where the page begins ('' at the newest): "MICROSECONDS TRACE" of the row before, $3 how many, $4 of this session or NULL
SELECT trace_id, name, to_char(started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  (extract(epoch FROM ended_at - started_at) * 1000)::bigint, spans, errors, input_tokens, output_tokens, session, user_name,
  (extract(epoch FROM started_at) * 1000000)::bigint || ' ' || trace_id
FROM traces
WHERE org = $1 AND ($4::text IS NULL OR session = $4)
  AND ($2 = '' OR (started_at, trace_id) < ('epoch'::timestamptz + split_part($2, ' ', 1)::bigint * interval '1 microsecond',
    split_part($2, ' ', 2)))
ORDER BY started_at DESC, trace_id DESC LIMIT $3::int

-- name: span_of
-- $1 org, $2 trace, $3 how many
SELECT span_id, parent_id, name, to_char(started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  duration_us, error, session, user_name, attributes, events,
  (extract(epoch FROM started_at - min(started_at) OVER ()) * 1000000)::bigint
FROM spans WHERE org = $1 AND trace_id = $2 ORDER BY started_at, span_id LIMIT $3::int
