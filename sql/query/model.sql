-- Statements of app/model/provider, catalog and keyring. Triggers tell every process of every change.

-- name: model_provider_add
-- $1 org, $2 name, $3 wire, $4 base URL, $5 enabled, $6 created by
INSERT INTO model_providers (name, org, wire, base_url, enabled, created_by) VALUES ($2, $1, $3, $4, $5::boolean, $6)

-- name: model_provider_set
-- $1 org, $2 name, $3 wire, $4 base URL, $5 enabled; NULL leaves it
UPDATE model_providers SET wire = coalesce($3, wire), base_url = coalesce($4, base_url),
  enabled = coalesce($5::boolean, enabled)
WHERE org = $1 AND name = $2

-- name: model_provider_lock
-- $1 org, $2 name. One change of a provider at a time: what it has afterwards is counted.
SELECT wire, base_url FROM model_providers WHERE org = $1 AND name = $2 FOR UPDATE

-- name: model_provider_remove
-- $1 org, $2 name
DELETE FROM model_providers WHERE org = $1 AND name = $2

-- name: model_provider_rows
-- $1 org, $2 a name or NULL for all, $3 names behind this one, $4 how many. Never what is sealed; of the deployment's providers
-- another org is told neither keys nor where they are.
SELECT p.name, p.org = $1, p.org = 'admin', p.wire, p.base_url, p.enabled, p.created_by,
  to_char(p.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
  (SELECT coalesce(json_agg(json_build_object('id', k.id,
      'state', CASE WHEN k.cooled_until > clock_timestamp() THEN 'cooling' ELSE 'ready' END,
      'until', CASE WHEN k.cooled_until > clock_timestamp()
        THEN to_char(k.cooled_until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') END,
      'why', CASE WHEN k.cooled_until > clock_timestamp() THEN k.outcome END,
      'restsFor', (SELECT coalesce(json_agg(r.model ORDER BY r.model), '[]') FROM model_rests r
        WHERE r.key = k.id AND r.cooled_until > clock_timestamp()),
      'createdAt', to_char(k.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) ORDER BY k.id), '[]')
    FROM model_keys k WHERE k.org = p.org AND k.provider = p.name AND k.sealed IS NOT NULL),
  (SELECT coalesce(json_agg(json_build_object('name', m.name, 'upstream', m.upstream, 'contextTokens', m.context_tokens,
      'outputTokens', m.output_tokens, 'fallbacks', m.fallbacks,
      'prices', json_build_object('input', m.price_input, 'cached', m.price_cached, 'cacheWrite', m.price_cache_write,
        'output', m.price_output, 'reasoning', m.price_reasoning)) ORDER BY m.name), '[]')
    FROM model_models m WHERE m.org = p.org AND m.provider = p.name)
FROM model_providers p
WHERE (p.org = $1 OR p.org = 'admin') AND ($2::text IS NULL OR p.name = $2)
  AND (p.name || CASE WHEN p.org = $1 THEN ' 1' ELSE ' 2' END) > $3
ORDER BY p.name || CASE WHEN p.org = $1 THEN ' 1' ELSE ' 2' END LIMIT $4::int

-- name: model_key_add
-- $1 org, $2 provider, $3 id, $4 sealed or NULL
INSERT INTO model_keys (id, org, provider, sealed) VALUES ($3, $1, $2, $4)

-- name: model_key_remove
-- $1 org, $2 provider, $3 id
DELETE FROM model_keys WHERE org = $1 AND provider = $2 AND id = $3 AND sealed IS NOT NULL

-- name: model_keys_clear
-- $1 org, $2 provider
DELETE FROM model_keys WHERE org = $1 AND provider = $2 AND sealed IS NOT NULL

-- name: model_key_even
-- $1 org, $2 provider. The row without a key goes where there is one.
DELETE FROM model_keys WHERE org = $1 AND provider = $2 AND sealed IS NULL
  AND EXISTS (SELECT FROM model_keys k WHERE k.org = $1 AND k.provider = $2 AND k.sealed IS NOT NULL)

-- name: model_key_count
-- $1 org, $2 provider
SELECT count(*) FROM model_keys WHERE org = $1 AND provider = $2

-- name: model_key_sealed
-- $1 org, $2 provider
SELECT id, sealed FROM model_keys WHERE org = $1 AND provider = $2 AND sealed IS NOT NULL

-- name: model_fallback_lost
-- $1 org, $2 provider, $3 its models before they are put: a fallback that is new and is the model itself, or that nothing has the name of.
SELECT x.n - 1, x.v ->> 'name', f, f = $2 || '/' || (x.v ->> 'name')
FROM jsonb_array_elements($3::jsonb) WITH ORDINALITY AS x(v, n),
  jsonb_array_elements_text(coalesce(nullif(x.v -> 'fallbacks', 'null'), '[]')) f
WHERE (f = $2 || '/' || (x.v ->> 'name')
    OR f NOT IN (SELECT $2 || '/' || (y ->> 'name') FROM jsonb_array_elements($3::jsonb) y
      UNION ALL SELECT y ->> 'name' FROM jsonb_array_elements($3::jsonb) y
      UNION ALL SELECT m.provider || '/' || m.name FROM model_models m WHERE m.org IN ($1, 'admin')
      UNION ALL SELECT m.name FROM model_models m WHERE m.org IN ($1, 'admin')
      UNION ALL SELECT a.name FROM model_aliases a WHERE a.org IN ($1, 'admin')))
  AND NOT EXISTS (SELECT FROM model_models o WHERE o.org = $1 AND o.provider = $2 AND o.name = x.v ->> 'name'
    AND f = ANY (o.fallbacks))
ORDER BY x.n LIMIT 1

-- name: model_models_clear
-- $1 org, $2 provider, $3 the models that stay, as JSON
DELETE FROM model_models WHERE org = $1 AND provider = $2
  AND name NOT IN (SELECT x ->> 'name' FROM jsonb_array_elements($3::jsonb) x)

-- name: model_models_put
-- $1 org, $2 provider, $3 models as the op takes them. A price that is not given is another's: reading from the cache and
-- writing to it cost as input, reasoning as output.
INSERT INTO model_models (org, provider, name, upstream, context_tokens, output_tokens, price_input, price_cached,
  price_cache_write, price_output, price_reasoning, fallbacks)
SELECT $1, $2, x.name, coalesce(x.upstream, x.name), coalesce(x."contextTokens", 0), coalesce(x."outputTokens", 0),
  p.input, coalesce(p.cached, p.input), coalesce(p."cacheWrite", p.input), p.output, coalesce(p.reasoning, p.output),
  ARRAY(SELECT jsonb_array_elements_text(coalesce(nullif(x.fallbacks, 'null'), '[]')))
FROM jsonb_to_recordset($3::jsonb) AS x(name text, upstream text, "contextTokens" bigint, "outputTokens" bigint,
    fallbacks jsonb, prices jsonb),
  jsonb_to_record(x.prices) AS p(input bigint, cached bigint, "cacheWrite" bigint, output bigint, reasoning bigint)
ON CONFLICT (org, provider, name) DO UPDATE SET upstream = excluded.upstream, context_tokens = excluded.context_tokens,
  output_tokens = excluded.output_tokens, price_input = excluded.price_input, price_cached = excluded.price_cached,
  price_cache_write = excluded.price_cache_write, price_output = excluded.price_output,
  price_reasoning = excluded.price_reasoning, fallbacks = excluded.fallbacks

-- name: model_routing
-- $1 org
SELECT coalesce((SELECT tier FROM model_orgs WHERE org = $1), 'free'),
  (SELECT to_json(allow) FROM model_orgs WHERE org = $1),
  (SELECT to_json(allow_by) FROM model_orgs WHERE org = $1),
  (SELECT coalesce(json_object_agg(name, targets ORDER BY name), '{}') FROM model_aliases WHERE org = $1)

-- name: model_allow_lost
-- $1 org, $2 a JSON array, once the aliases are put: a row that is new and that matches nothing there is
SELECT a FROM jsonb_array_elements_text($2::jsonb) a
WHERE a <> '*'
  AND a NOT IN (SELECT p.name || '/*' FROM model_providers p WHERE p.org IN ($1, 'admin')
    UNION ALL SELECT m.provider || '/' || m.name FROM model_models m WHERE m.org IN ($1, 'admin')
    UNION ALL SELECT l.name FROM model_aliases l WHERE l.org IN ($1, 'admin'))
  AND NOT EXISTS (SELECT FROM model_orgs o WHERE o.org = $1 AND a = ANY (o.allow))
LIMIT 1

-- name: model_allow_set
-- $1 org, $2 a JSON array, or null for everything
INSERT INTO model_orgs (org, allow)
VALUES ($1, CASE WHEN $2::jsonb <> 'null' THEN ARRAY(SELECT jsonb_array_elements_text(nullif($2::jsonb, 'null'))) END)
ON CONFLICT (org) DO UPDATE SET allow = excluded.allow

-- name: model_org_set
-- $1 org, $2 tier or NULL, $3 what the operator allows as a JSON array, null for everything, NULL leaves it
INSERT INTO model_orgs (org, tier, allow_by)
SELECT o.slug, coalesce($2, 'free'), CASE WHEN $3::jsonb <> 'null'
  THEN ARRAY(SELECT jsonb_array_elements_text(nullif($3::jsonb, 'null'))) END
FROM orgs o WHERE o.slug = $1
ON CONFLICT (org) DO UPDATE SET tier = coalesce($2, model_orgs.tier),
  allow_by = CASE WHEN $3::jsonb IS NULL THEN model_orgs.allow_by ELSE excluded.allow_by END
RETURNING tier, coalesce(to_json(allow_by)::text, 'null')

-- name: model_aliases_lost
-- $1 org, $2 {"name": ["target", …]} before it is put: a target that is new and that nothing has the name of. One that is its
-- alias's own name means what that hides.
SELECT a.key, t FROM jsonb_each($2::jsonb) a, jsonb_array_elements_text(a.value) t
WHERE t NOT IN (SELECT m.provider || '/' || m.name FROM model_models m WHERE m.org IN ($1, 'admin')
    UNION ALL SELECT m.name FROM model_models m WHERE m.org IN ($1, 'admin'))
  AND (t = a.key OR NOT $2::jsonb ? t AND t NOT IN (SELECT name FROM model_aliases WHERE org = 'admin' AND org <> $1))
  AND NOT EXISTS (SELECT FROM model_aliases o WHERE o.org = $1 AND o.name = a.key AND t = ANY (o.targets))
LIMIT 1

-- name: model_aliases_clear
-- $1 org
DELETE FROM model_aliases WHERE org = $1

-- name: model_aliases_put
-- $1 org, $2 {"name": ["target", …]}
INSERT INTO model_aliases (org, name, targets)
SELECT $1, a.key, ARRAY(SELECT jsonb_array_elements_text(a.value)) FROM jsonb_each($2::jsonb) a

-- name: model_copy
-- $1 org: everything that a call of this org may need, its own rows first
SELECT p.org, p.name, p.wire, p.base_url, p.enabled,
  (SELECT coalesce(json_agg(json_build_object('id', k.id, 'sealed', k.sealed, 'seq', k.cool_seq, 'strikes', k.strikes,
      'why', k.outcome,
      'ms', greatest(0, coalesce(ceil(extract(epoch FROM k.cooled_until - clock_timestamp()) * 1000), 0))::bigint,
      'rests', (SELECT json_agg(json_build_object('model', r.model, 'seq', r.cool_seq, 'strikes', r.strikes,
          'why', r.outcome, 'ms', greatest(0,
            coalesce(ceil(extract(epoch FROM r.cooled_until - clock_timestamp()) * 1000), 0))::bigint))
        FROM model_rests r WHERE r.key = k.id))
      ORDER BY k.id), '[]')
    FROM model_keys k WHERE k.org = p.org AND k.provider = p.name),
  (SELECT coalesce(json_agg(json_build_object('name', m.name, 'upstream', m.upstream, 'context', m.context_tokens,
      'output', m.output_tokens, 'fallbacks', m.fallbacks, 'created', extract(epoch FROM m.created_at)::bigint,
      'prices', json_build_array(m.price_input, m.price_cached, m.price_cache_write, m.price_output, m.price_reasoning))
      ORDER BY m.name), '[]')
    FROM model_models m WHERE m.org = p.org AND m.provider = p.name)
FROM model_providers p WHERE p.org = $1 OR p.org = 'admin'
ORDER BY p.org <> $1, p.name

-- name: model_key_cool
-- $1 org, $2 id, $3 milliseconds that the provider asked for or 0, $4 the first and $5 the longest cooldown in milliseconds, $6 why.
-- A key that cools already is told of by calls that began before: that is no further strike.
UPDATE model_keys k SET cool_seq = k.cool_seq + 1, outcome = $6,
  strikes = CASE WHEN k.cooled_until > n.t THEN k.strikes ELSE least(k.strikes + 1, 20) END,
  cooled_until = greatest(k.cooled_until, n.t + interval '1 millisecond' * CASE WHEN $3::bigint > 0 THEN $3::bigint
    WHEN k.cooled_until > n.t THEN 0 ELSE least($5::bigint, $4::bigint * (1 << least(k.strikes, 20))) END)
FROM (SELECT clock_timestamp() AS t) n
WHERE k.org = $1 AND k.id = $2
RETURNING k.cool_seq, greatest(0, ceil(extract(epoch FROM k.cooled_until - clock_timestamp()) * 1000))::bigint, k.strikes

-- name: model_key_well
-- $1 org, $2 id, $3 also while it cools. A call that succeeds while its key cools began before that.
UPDATE model_keys SET cool_seq = cool_seq + 1, strikes = 0, cooled_until = NULL, outcome = NULL
WHERE org = $1 AND id = $2 AND strikes > 0 AND ($3::boolean OR cooled_until IS NULL OR cooled_until <= clock_timestamp())
RETURNING cool_seq

-- name: model_rest_cool
-- As model_key_cool, of the key for one model: $7.
INSERT INTO model_rests AS k (key, model, cooled_until, outcome, strikes, cool_seq)
SELECT m.id, $7, clock_timestamp() + interval '1 millisecond' * CASE WHEN $3::bigint > 0 THEN $3::bigint
  ELSE least($5::bigint, $4::bigint) END, $6, 1, 1
FROM model_keys m WHERE m.org = $1 AND m.id = $2
ON CONFLICT (key, model) DO UPDATE SET cool_seq = k.cool_seq + 1, outcome = excluded.outcome,
  strikes = CASE WHEN k.cooled_until > clock_timestamp() THEN k.strikes ELSE least(k.strikes + 1, 20) END,
  cooled_until = greatest(k.cooled_until, clock_timestamp() + interval '1 millisecond' * CASE
    WHEN $3::bigint > 0 THEN $3::bigint WHEN k.cooled_until > clock_timestamp() THEN 0
    ELSE least($5::bigint, $4::bigint * (1 << least(k.strikes, 20))) END)
RETURNING k.cool_seq, greatest(0, ceil(extract(epoch FROM k.cooled_until - clock_timestamp()) * 1000))::bigint, k.strikes

-- name: model_rest_well
-- As model_key_well, of the key for one model: $4.
UPDATE model_rests k SET cool_seq = k.cool_seq + 1, strikes = 0, cooled_until = NULL, outcome = NULL
FROM model_keys m
WHERE m.org = $1 AND m.id = $2 AND k.key = m.id AND k.model = $4 AND k.strikes > 0
  AND ($3::boolean OR k.cooled_until IS NULL OR k.cooled_until <= clock_timestamp())
RETURNING k.cool_seq

-- name: model_copy_routes
-- $1 org
SELECT coalesce((SELECT tier FROM model_orgs WHERE org = $1), 'free'),
  (SELECT to_json(allow) FROM model_orgs WHERE org = $1),
  (SELECT to_json(allow_by) FROM model_orgs WHERE org = $1),
  (SELECT coalesce(json_agg(json_build_object('org', a.org, 'name', a.name, 'targets', a.targets)
      ORDER BY a.org <> $1, a.name), '[]') FROM model_aliases a WHERE a.org = $1 OR a.org = 'admin')
