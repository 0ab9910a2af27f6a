// Commands: to their end, in the background, with input, killed, out of time, found again.
import { Sandbox } from 'e2b';
import { assert, check, refused, until, done } from './case.mjs';

const s = await Sandbox.create({ timeoutMs: 600_000, envs: { FROM_LEASE: 'l' } });

await check('one runs in a login shell, and both streams come as they are written', async () => {
  const out = [], err = [];
  const r = await s.commands.run('echo "€ $X $FROM_LEASE $(pwd)"; echo bad >&2; shopt login_shell', {
    cwd: '/tmp', envs: { X: 'ü' }, onStdout: (d) => out.push(d), onStderr: (d) => err.push(d),
  });
  assert.equal(r.exitCode, 0);
  assert.match(r.stdout, /^€ ü l \/tmp\n/);
  assert.match(r.stdout, /login_shell\s+on/);
  assert.equal(r.stderr, 'bad\n');
  assert.equal(out.join(''), r.stdout);
  assert.equal(err.join(''), 'bad\n');
});
await check('characters that come in pieces are whole', async () => {
  const r = await s.commands.run("printf '\\342'; sleep 0.2; printf '\\202\\254'; printf '\\377'");
  assert.equal(r.stdout, '€\ufffd');
});
await check('what it ends with is its own: an exit, a signal, not found', async () => {
  assert.equal((await refused(s.commands.run('echo o; exit 3'), 'CommandExitError', /exit status 3/)).stdout, 'o\n');
  const e = await refused(s.commands.run('kill -TERM $$'), 'CommandExitError', /signal: terminated/);
  assert.equal(e.exitCode, -1);
  assert.equal((await refused(s.commands.run('no_such_program'), 'CommandExitError', /exit status 127/)).exitCode, 127);
});
await check('five megabytes come whole', async () => {
  const r = await s.commands.run('seq 1 700000', { timeoutMs: 300_000 });
  assert.equal(r.stdout.length, 4_788_895);
  assert.ok(r.stdout.endsWith('\n700000\n'));
});
await check('in the background it is listed, written to, and its input closed', async () => {
  const h = await s.commands.run('while read -r x; do echo "<$x>"; done; echo over', { background: true, stdin: true });
  const listed = (await s.commands.list()).find((p) => p.pid === h.pid);
  assert.equal(listed.cmd, '/bin/bash');
  assert.deepEqual(listed.args.slice(0, 2), ['-l', '-c']);
  await s.commands.sendStdin(h.pid, 'öne\n');
  await until('the answer', () => h.stdout === '<öne>\n');
  await h.sendStdin(new TextEncoder().encode('two\n'));
  await h.closeStdin();
  assert.equal((await h.wait()).stdout, '<öne>\n<two>\nover\n');
  assert.equal((await s.commands.list()).some((p) => p.pid === h.pid), false);
});
await check('without an open input there is none', async () => {
  assert.equal((await s.commands.run('cat; echo end')).stdout, 'end\n');
  const h = await s.commands.run('sleep 300', { background: true });
  await refused(s.commands.sendStdin(h.pid, 'x'), 'SandboxError', /standard input/);
  assert.equal(await h.kill(), true);
  assert.equal(await h.kill(), false);
});
await check('killed it dies with all that it started, and every reader hears of it', async () => {
  const h = await s.commands.run('setsid sleep 301 & nohup sleep 302 >/dev/null 2>&1 & echo up; sleep 303', { background: true, timeoutMs: 0 });
  await until('its start', () => h.stdout === 'up\n');
  const other = await s.commands.connect(h.pid);
  assert.equal(await s.commands.kill(h.pid), true);
  await refused(h.wait(), 'CommandExitError', /signal: killed/);
  await refused(other.wait(), 'CommandExitError', /signal: killed/);
  assert.equal((await s.commands.run('pgrep -c "^sleep" || true')).stdout, '0\n');
});
await check('its time is over: so is all of it', async () => {
  await refused(s.commands.run('sleep 701 & sleep 702', { timeoutMs: 1000 }), 'TimeoutError', /timeoutMs/);
  const gone = await s.commands.run('for i in $(seq 500); do pgrep "^sleep" >/dev/null || break; sleep 0.1; done; pgrep -fc "^sleep 7" || true');
  assert.equal(gone.stdout, '0\n');
  await refused(s.commands.run('true', { timeoutMs: 10_000_000 }), 'InvalidArgumentError', /timeoutMs/);
});
await check('who hangs up finds it again, and it goes on', async () => {
  const h = await s.commands.run('rm -f go; echo 1; until [ -e go ]; do sleep 0.1; done; for i in 2 3 4; do echo $i; done; exit 9', { background: true });
  await until('the first line', () => h.stdout.startsWith('1\n'));
  await h.disconnect();
  const again = await (await Sandbox.connect(s.sandboxId)).commands.connect(h.pid);
  await s.commands.run('touch go');
  const e = await refused(again.wait(), 'CommandExitError', /exit status 9/);
  assert.ok(e.stdout.endsWith('4\n') && !e.stdout.startsWith('1'), e.stdout);
  await refused(s.commands.connect(h.pid), 'NotFoundError', /pid/);
});
await check('there is one user, and that is not root', async () => {
  assert.notEqual((await s.commands.run('id -u', { user: 'user' })).stdout, '0\n');
  await refused(s.commands.run('id', { user: 'root' }), 'InvalidArgumentError', /root/);
});
await check('twenty at once are twenty', async () => {
  const all = await Promise.all(Array.from({ length: 20 }, (_, i) => s.commands.run(`echo ${i}; sleep 0.2; exit 0`)));
  assert.deepEqual(all.map((r) => r.stdout), Array.from({ length: 20 }, (_, i) => `${i}\n`));
});
await s.kill();
done();
