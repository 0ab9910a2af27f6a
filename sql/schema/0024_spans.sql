-- Spans of model calls, kept for a configured time (RUN-7).
-- Invariants: a row's org is the attribute gatehouse.org of the span, and `admin` where a span has none (RUN-8); a trace of one
-- org is no trace of another's, whatever its id; traces sums up exactly the spans of its org and trace that were stored.
CREATE TABLE spans (
  org         text NOT NULL,
  trace_id    text NOT NULL CHECK (trace_id ~ '^[0-9a-f]{32}$'),
  span_id     text NOT NULL CHECK (span_id ~ '^[0-9a-f]{16}$'),
  parent_id   text,
  name        text NOT NULL,
  started_at  timestamptz NOT NULL,
  duration_us bigint NOT NULL CHECK (duration_us >= 0),
  error       text,                        -- NULL: none
  session     text,
  user_name   text NOT NULL DEFAULT '',
  attributes  jsonb NOT NULL,
  events      jsonb NOT NULL DEFAULT '[]',
  PRIMARY KEY (org, trace_id, span_id)
);
CREATE INDEX spans_started ON spans USING brin (started_at); -- rows come in the order of time; old ones are removed by it

CREATE TABLE traces (
  org        text NOT NULL,
  trace_id   text NOT NULL,
  name       text NOT NULL,                -- of its first span
  started_at timestamptz NOT NULL,
  ended_at   timestamptz NOT NULL,
  spans      bigint NOT NULL,
  errors     bigint NOT NULL,
  input_tokens  bigint NOT NULL,
  output_tokens bigint NOT NULL,
  session    text,
  user_name  text NOT NULL,
  PRIMARY KEY (org, trace_id)
);
CREATE INDEX traces_newest ON traces (org, started_at DESC, trace_id DESC);
CREATE INDEX traces_ended ON traces USING brin (ended_at);
