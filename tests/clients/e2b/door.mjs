// The door itself, without the SDK: the older paths, the shape of errors, and what is not there.
import { assert, check, done } from './case.mjs';

const at = process.env.E2B_API_URL, key = process.env.E2B_API_KEY;
const call = async (method, path, { body, token, headers } = {}) => {
  const r = await fetch(at + path, {
    method, body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
    headers: { ...(token ? { 'x-access-token': token } : { 'x-api-key': key }), 'content-type': 'application/json', ...headers },
  });
  const text = await r.text();
  let json;
  try { json = JSON.parse(text); } catch { json = undefined; }
  return { status: r.status, json, headers: r.headers, text };
};
let box;

await check('the older paths are served, too', async () => {
  const made = await call('POST', '/sandboxes', { body: { templateID: 'base', timeout: 600, unknown: 1 } });
  assert.equal(made.status, 201);
  box = made.json;
  assert.match(box.sandboxID, /^sbx_/);
  assert.match(box.envdAccessToken, /^gs_/);
  assert.equal((await call('GET', '/sandboxes')).json.some((s) => s.sandboxID === box.sandboxID), true);
  assert.equal((await call('POST', `/sandboxes/${box.sandboxID}/refreshes`, { body: { duration: 120 } })).status, 204);
  assert.equal((await call('POST', `/sandboxes/${box.sandboxID}/connect`, { body: {} })).status, 200);
});
await check('every error is {code, message}, whoever tells it', async () => {
  const wrong = [['GET', '/nothing/here', {}, 404], ['GET', '/', {}, 404], ['GET', '/sandboxes/sbx_x', {}, 404],
    ['POST', '/sandboxes', { body: '{' }, 400], ['POST', '/sandboxes', { body: { timeout: 'x' } }, 400],
    ['GET', '/sandboxes', { headers: { 'x-api-key': 'wrong' } }, 401], ['GET', '/files?path=x', {}, 401],
    ['GET', '/files?path=x', { token: 'gs_wrong' }, 401], ['GET', '/sandboxes?limit=0', {}, 400]];
  for (const [method, path, opts, status] of wrong) {
    const r = await call(method, path, opts);
    assert.equal(r.status, status, `${method} ${path}: ${r.text}`);
    assert.equal(r.json.code, status, r.text);
    assert.equal(typeof r.json.message, 'string');
  }
});
await check('nothing of ours is at this door, and nothing of it at ours', async () => {
  const auth = { headers: { authorization: `Bearer ${key}` } };
  for (const path of ['/v1/sandboxes', '/v1/openapi.json', '/v1/node/ready', '/ready', '/metrics', '/git/x/y'])
    assert.equal((await call('GET', path, auth)).status, 404, path);
  for (const path of ['/sandboxes', '/v2/sandboxes', '/files', '/process.Process/List']) {
    const r = await fetch(process.env.GATEHOUSE_URL + path, { headers: { 'x-api-key': key, authorization: `Bearer ${key}` } });
    assert.equal(r.status, 404, path);
    assert.ok((await r.json()).error.request_id);
  }
});
await check('a token of a sandbox opens nothing else', async () => {
  for (const path of ['/sandboxes', `/sandboxes/${box.sandboxID}`])
    assert.equal((await call('GET', path, { token: box.envdAccessToken })).status, 403);
  const r = await fetch(`${process.env.GATEHOUSE_URL}/v1/sandboxes`, { headers: { authorization: `Bearer ${box.envdAccessToken}` } });
  assert.equal(r.status, 403);
});
await check('calls that are none are told in the protocol of calls', async () => {
  const rpc = (path, body, headers) => call('POST', path, { body, token: box.envdAccessToken, headers });
  assert.equal((await rpc('/process.Process/SendSignal', { process: { pid: 4000000 }, signal: 'SIGNAL_SIGKILL' })).json.code, 'not_found');
  assert.equal((await rpc('/process.Process/SendSignal', { process: { pid: 1 }, signal: 'SIGNAL_SIGSTOP' })).json.code, 'invalid_argument');
  assert.equal((await rpc('/filesystem.Filesystem/Stat', { path: '/etc/passwd' })).json.code, 'permission_denied');
  assert.equal((await rpc('/filesystem.Filesystem/Stat', {})).json.code, 'invalid_argument');
  const stream = { 'content-type': 'application/connect+json' };
  for (const [body, code] of [['\0\0\0\0\x02{}', 'invalid_argument'], ['\x01\0\0\0\x02{}', 'invalid_argument'], ['\0\0\0', 'invalid_argument'],
    ['\0\0\0\0\x27{"process":{"cmd":"/bin/true","args":[1]}}', 'invalid_argument']]) {
    const r = await rpc('/process.Process/Start', body, stream);
    assert.equal(r.status, 200);
    assert.equal(r.text.charCodeAt(0), 2, r.text);
    assert.equal(JSON.parse(r.text.slice(5)).error.code, code, r.text);
  }
});
await call('DELETE', `/sandboxes/${box.sandboxID}`);
done();
