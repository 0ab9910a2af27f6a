// Sandboxes: created, found, lengthened, changed, ended, and what is refused.
import { Sandbox } from 'e2b';
import { assert, check, refused, until, done } from './case.mjs';

const mark = `t${process.pid}`;
const native = async (method, path, body) => {
  const r = await fetch(process.env.GATEHOUSE_URL + path, {
    method, body: body && JSON.stringify(body),
    headers: { authorization: `Bearer ${process.env.E2B_API_KEY}`, 'content-type': 'application/json' },
  });
  return r.json();
};
const all = async (opts) => {
  const found = [], pages = Sandbox.list(opts);
  while (pages.hasNext) found.push(...(await pages.nextItems()));
  return found;
};
let a, b;

await check('one is created, with metadata, variables and time', async () => {
  a = await Sandbox.create({ timeoutMs: 300_000, metadata: { mark, user: 'ä b&c=%41' }, envs: { GREETING: 'hé "x"' } });
  const info = await a.getInfo();
  assert.equal(info.sandboxId, a.sandboxId);
  assert.equal(info.templateId, 'base');
  assert.equal(info.state, 'running');
  assert.deepEqual(info.metadata, { mark, user: 'ä b&c=%41' });
  const left = info.endAt - Date.now();
  assert.ok(left > 200_000 && left <= 301_000, `${left}`);
  assert.ok(info.cpuCount >= 1 && info.memoryMB >= 64);
  assert.equal((await a.commands.run('printf %s "$GREETING"')).stdout, 'hé "x"');
  assert.equal(await a.isRunning(), true);
});
await check('it is the same sandbox over our own API', async () => {
  const ours = await native('GET', `/v1/sandboxes/${a.sandboxId}`);
  assert.equal(ours.class, 'exec');
  assert.equal(ours.status, 'running');
});
await check('what is said nothing about lasts five minutes and reaches nothing', async () => {
  b = await Sandbox.create({ metadata: { mark } });
  const info = await b.getInfo();
  const left = info.endAt - Date.now();
  assert.ok(left > 280_000 && left <= 301_000, `${left}`);
  assert.equal(info.allowInternetAccess, false);
});
await check('running ones are listed, by metadata, page by page, in both orders', async () => {
  const ids = (list) => list.map((s) => s.sandboxId);
  assert.deepEqual(ids(await all({ query: { metadata: { mark } } })), [b.sandboxId, a.sandboxId]);
  assert.deepEqual(ids(await all({ query: { metadata: { mark } }, limit: 1, order: 'asc' })), [a.sandboxId, b.sandboxId]);
  assert.deepEqual(ids(await all({ query: { metadata: { mark, user: 'ä b&c=%41' } } })), [a.sandboxId]);
  assert.deepEqual(await all({ query: { metadata: { mark: 'other' } } }), []);
  assert.deepEqual(await all({ query: { metadata: { mark }, state: ['paused'] } }), []);
});
await check('another process connects to it, which makes its time no shorter', async () => {
  const before = (await a.getInfo()).endAt;
  const again = await Sandbox.connect(a.sandboxId, { timeoutMs: 30_000 });
  assert.equal((await again.commands.run('echo $((6*7))')).stdout, '42\n');
  assert.ok((await again.getInfo()).endAt >= before);
  await Sandbox.connect(a.sandboxId, { timeoutMs: 600_000 });
  assert.ok((await a.getInfo()).endAt - Date.now() > 580_000);
});
await check('its time is set anew, longer and shorter', async () => {
  await a.setTimeout(300_000);
  const left = (await a.getInfo()).endAt - Date.now();
  assert.ok(left > 280_000 && left <= 301_000, `${left}`);
});
await check('it ends at its new end, and that is seen', async () => {
  const c = await Sandbox.create({ metadata: { mark: 'short' } });
  const running = c.commands.run('sleep 600', { timeoutMs: 0 }).then(() => null, (e) => e);
  await c.setTimeout(1000);
  let over = false;
  const poll = setInterval(() => c.isRunning().then((is) => { over = over || !is; }, () => {}), 200);
  await until('its end', () => over);
  clearInterval(poll);
  assert.ok(await running);
  await refused(c.commands.run('true'), 'SandboxNotFoundError', /not running/);
  await refused(c.files.read('x'), 'TimeoutError', /not running/);
  assert.equal(await c.kill(), false);
});
await check('what it may reach is changed, or refused by name', async () => {
  await a.updateNetwork({ allowOut: ['api.example.com'], denyOut: ['0.0.0.0/0'] });
  assert.deepEqual((await a.getInfo()).network.allowOut, ['api.example.com']);
  assert.deepEqual((await native('GET', `/v1/sandboxes/${a.sandboxId}`)).network.allowedHosts, ['api.example.com']);
  await a.updateNetwork({ allowInternetAccess: true });
  assert.equal((await a.getInfo()).allowInternetAccess, true);
  await a.updateNetwork({});
  assert.equal((await a.getInfo()).allowInternetAccess, false);
  await refused(a.updateNetwork({ denyOut: ['10.0.0.0/8'] }), 'SandboxError', /10\.0\.0\.0\/8/);
  await refused(a.updateNetwork({ allowOut: ['*.example.com'], denyOut: ['0.0.0.0/0'] }), 'SandboxError', /\*\.example\.com/);
  await refused(a.updateNetwork({ rules: { 'a.example': [{ transform: { headers: { x: 'y' } } }] } }), 'SandboxError', /rules/);
});
await check('what is not there is refused by name, and leaves nothing', async () => {
  const wrong = [[{ template: 'python-3' }, /python-3/], [{ timeoutMs: 1e12 }, /timeout/], [{ lifecycle: { onTimeout: 'pause' } }, /pause/],
    [{ envs: { HTTP_PROXY: 'x' } }, /HTTP_PROXY/], [{ volumeMounts: { '/v': 'vol' } }, /volumeMounts/], [{ network: { egressProxy: { address: 'p:1' } } }, /egressProxy/]];
  for (const [opts, words] of wrong) await refused(Sandbox.create({ metadata: { mark: 'wrong' }, ...opts }), 'SandboxError', words);
  assert.deepEqual(await all({ query: { metadata: { mark: 'wrong' } } }), []);
  await refused(a.pause(), 'SandboxError', /not offered/);
  await refused(a.createSnapshot(), 'SandboxError', /not offered/);
  await refused(a.fork(), 'SandboxError', /not offered/);
});
await check('only a key opens the door, and another org sees nothing', async () => {
  await refused(Sandbox.create({ apiKey: 'gk_00000000000000000000000000_x' }), 'AuthenticationError', /X-API-Key/);
  const theirs = { apiKey: process.env.OTHER_KEY };
  await refused(Sandbox.connect(a.sandboxId, theirs), 'SandboxNotFoundError', /not found/);
  await refused(Sandbox.getInfo(a.sandboxId, theirs), 'SandboxNotFoundError', /not found/);
  await refused(Sandbox.setTimeout(a.sandboxId, 60_000, theirs), 'SandboxNotFoundError', /not found/);
  assert.equal(await Sandbox.kill(a.sandboxId, theirs), false);
  assert.deepEqual(await all({ ...theirs, query: { metadata: { mark } } }), []);
  assert.equal(await a.isRunning(), true);
});
await check("a sandbox's token is for that one, and ends with the key that asked for it", async () => {
  const key = await native('POST', '/v1/keys', { name: 'short-lived' });
  const c = await Sandbox.create({ apiKey: key.secret ?? key.key, metadata: { mark: 'key' } });
  assert.equal((await c.commands.run('echo in')).stdout, 'in\n');
  const call = (token, id) => fetch(`${process.env.E2B_SANDBOX_URL}/files?path=/etc/hostname`, { headers: { 'x-access-token': token, 'e2b-sandbox-id': id } });
  assert.equal((await call(c.envdAccessToken, a.sandboxId)).status, 401);
  assert.equal((await call(process.env.E2B_API_KEY, a.sandboxId)).status, 401);
  assert.equal((await call(c.envdAccessToken, c.sandboxId)).status, 403); // outside the workspace
  await native('DELETE', `/v1/keys/${key.id}`);
  assert.equal((await call(c.envdAccessToken, c.sandboxId)).status, 401);
  await refused(c.commands.run('echo in'), 'AuthenticationError', /X-Access-Token/);
  assert.equal(await Sandbox.kill(c.sandboxId), true);
});
await check('killed it is gone, once', async () => {
  assert.equal(await a.kill(), true);
  assert.equal(await a.kill(), false);
  assert.equal(await Sandbox.kill(b.sandboxId), true);
  assert.equal(await a.isRunning(), false);
  await refused(Sandbox.connect(a.sandboxId), 'SandboxNotFoundError', /not found/);
  assert.deepEqual(await all({ query: { metadata: { mark } } }), []);
});
done();
