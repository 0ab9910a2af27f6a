// Files: written, read, looked at, moved, removed, watched.
import { Sandbox } from 'e2b';
import { assert, check, refused, until, done } from './case.mjs';

const s = await Sandbox.create({ timeoutMs: 600_000 });
const f = s.files;

await check('text, bytes and streams come back as they went', async () => {
  const info = await f.write('a.txt', 'häßlich\n');
  assert.equal(info.path, '/mnt/data/a.txt');
  assert.equal(await f.read('a.txt'), 'häßlich\n');
  const bytes = new Uint8Array(70_000).map((_, i) => i * 7);
  await f.write('/tmp/b', bytes.buffer);
  assert.deepEqual(await f.read('/tmp/b', { format: 'bytes' }), bytes);
  assert.equal((await f.read('/tmp/b', { format: 'blob' })).size, 70_000);
  await f.write('/tmp/b', new Blob(['blob']));
  assert.equal(await f.read('/tmp/b'), 'blob');
  await f.write('empty', '');
  assert.equal(await f.read('empty'), '');
  assert.equal((await f.read('empty', { format: 'bytes' })).length, 0);
});
await check('twenty megabytes go and come as streams', async () => {
  const piece = new Uint8Array(100_000).map((_, i) => i), n = 200;
  let sent = 0;
  await f.write('big', new ReadableStream({ pull: (c) => (sent++ < n ? c.enqueue(piece) : c.close()) }));
  assert.equal((await f.getInfo('big')).size, n * piece.length);
  let at = 0;
  for await (const part of await f.read('big', { format: 'stream' })) {
    for (let i = 0; i < part.length; i += 997) assert.equal(part[i], piece[(at + i) % piece.length]);
    at += part.length;
  }
  assert.equal(at, n * piece.length);
});
await check('many are written in one request, wherever they are', async () => {
  const many = Array.from({ length: 30 }, (_, i) => ({ path: `many/d${i}/f "${i}" ü.txt`, data: `${i}\r\n--x` }));
  const infos = await f.write(many);
  assert.deepEqual(infos.map((i) => i.path), many.map((m) => `/mnt/data/${m.path}`));
  assert.equal(await f.read(many[17].path), '17\r\n--x');
  const one = await f.write([{ path: '/tmp/one', data: 'o' }]);
  assert.equal(one[0].name, 'one');
  await f.write('many/octets', 'octets', { useOctetStream: true });
  assert.equal(await f.read('many/octets'), 'octets');
});
await check('directories are made, listed, looked at, moved and removed', async () => {
  assert.equal(await f.makeDir('d/e/f'), true);
  assert.equal(await f.makeDir('d/e/f'), false);
  await f.write('d/x', '123');
  await s.commands.run('cd d && ln -s x l && chmod 640 x');
  assert.deepEqual((await f.list('d')).map((e) => [e.name, e.type]), [['e', 'dir'], ['l', 'symlink'], ['x', 'file']]);
  assert.deepEqual((await f.list('/mnt/data/d/', { depth: 2 })).map((e) => e.path), ['e', 'e/f', 'l', 'x'].map((p) => `/mnt/data/d/${p}`));
  const info = await f.getInfo('d/x');
  assert.deepEqual([info.name, info.type, info.size, info.permissions, info.mode], ['x', 'file', 3, '-rw-r-----', 0o640]);
  assert.ok(Math.abs(info.modifiedTime - Date.now()) < 60_000);
  assert.equal((await f.getInfo('d/l')).symlinkTarget, 'x');
  assert.equal(await f.read('d/l'), '123');
  assert.equal((await f.rename('d/x', 'd/new/y')).path, '/mnt/data/d/new/y');
  assert.equal(await f.exists('d/x'), false);
  assert.equal(await f.exists('d/new'), true);
  await f.remove('d');
  await f.remove('d');
  assert.equal(await f.exists('d'), false);
});
await check('what is not there, or outside, is told apart', async () => {
  await refused(f.read('nope'), 'FileNotFoundError', /./);
  await refused(f.list('nope'), 'FileNotFoundError', /./);
  await refused(f.getInfo('nope'), 'FileNotFoundError', /./);
  await refused(f.rename('nope', 'x'), 'FileNotFoundError', /./);
  await refused(f.read('many'), 'InvalidArgumentError', /not a file/);
  await refused(f.list('a.txt'), 'InvalidArgumentError', /not a directory/);
  for (const path of ['/etc/passwd', '/mnt/data/../../etc/passwd', '/proc/1/environ']) {
    await refused(f.read(path), 'SandboxError', /outside/);
    await refused(f.write(path, 'x'), 'SandboxError', /outside/);
    await refused(f.remove(path), 'SandboxError', /outside/);
  }
  await s.commands.run('ln -s /etc/passwd out; ln -s /etc outdir');
  await refused(f.read('out'), 'SandboxError', /outside/);
  await refused(f.write('outdir/x', 'x'), 'SandboxError', /outside/);
});
await check('what is not offered is refused', async () => {
  await refused(f.write('z', 'z', { gzip: true }), 'SandboxError', /gzip/);
  await refused(f.write('m', 'm', { metadata: { a: 'b' } }), 'TemplateError', /0\.6\.2/);
  await refused(f.read('a.txt', { user: 'root' }), 'InvalidArgumentError', /root/);
  await refused(f.list('~'), 'InvalidArgumentError', /~/);
  assert.equal((await fetch(await s.downloadUrl('a.txt'))).status, 401);
  assert.equal(await f.exists('z'), false);
});
await check('a full disk is told as one', async () => {
  await s.commands.run('cd /tmp && fallocate -l $(($(stat -fc "%a * %S" .) - (1 << 20))) filler');
  await refused(f.write('/tmp/full', new Uint8Array(8 << 20).buffer), 'NotEnoughSpaceError', /./);
  await refused(f.write([{ path: '/tmp/full', data: new Blob([new Uint8Array(8 << 20)]) }]), 'NotEnoughSpaceError', /./);
  assert.equal(await f.exists('/tmp/full'), false);
  await f.remove('/tmp/filler');
  await f.write('/tmp/full', new Uint8Array(8 << 20).buffer);
});
await check('changes are told as they happen, until nobody listens', async () => {
  await f.makeDir('w/sub');
  const seen = [];
  const w = await f.watchDir('w', (e) => { seen.push(`${e.type} ${e.name}`); });
  await f.write('w/a', '1');
  await until('the creation', () => seen.includes('create a'));
  await s.commands.run('cd w && echo x >>a && chmod 600 a && mv a b && rm b && mkdir d && : >sub/deep');
  const want = ['create a', 'write a', 'chmod a', 'rename a', 'create b', 'remove b', 'create d'];
  await until('the rest', () => seen.includes('create d'));
  assert.deepEqual(seen, want);
  await w.stop();
  const deep = [];
  let ended;
  await f.watchDir('w', (e) => { deep.push(`${e.type} ${e.name}`); }, { recursive: true, timeoutMs: 10_000, onExit: (e) => { ended = e ?? 'gone'; } });
  await f.write('w/sub/q', '1');
  await until('the deep one', () => deep.includes('create sub/q'));
  assert.equal(seen.length, want.length);
  await until('its end', () => ended);
  assert.equal(ended.name, 'TimeoutError');
  await refused(f.watchDir('nope', () => {}), 'FileNotFoundError', /./);
  await refused(f.watchDir('a.txt', () => {}), 'InvalidArgumentError', /not a directory/);
});
await check('a watch ends with its sandbox', async () => {
  let ended;
  await f.watchDir('.', () => {}, { timeoutMs: 0, onExit: (e) => { ended = e ?? 'gone'; } });
  await s.kill();
  await until('its end', () => ended);
});
done();
