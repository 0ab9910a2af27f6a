// Terminals.
import { Sandbox } from 'e2b';
import { assert, check, refused, until, done } from './case.mjs';

const s = await Sandbox.create({ timeoutMs: 600_000 });
const type = (pid, text) => s.pty.sendInput(pid, new TextEncoder().encode(text));
const screen = () => {
  const at = { text: '' }, decode = new TextDecoder();
  at.onData = (d) => { at.text += decode.decode(d, { stream: true }); };
  return at;
};
let pid;

await check('one has its size, its kind and job control', async () => {
  const at = screen();
  const p = await s.pty.create({ cols: 91, rows: 31, onData: at.onData, cwd: '/tmp', envs: { X: 'y' }, timeoutMs: 0 });
  pid = p.pid;
  await type(pid, 'stty size; tty; echo "$TERM $X $PWD"\n');
  await until('the answer', () => /31 91\r\n\/dev\/pts\/\d+\r\nxterm-256color y \/tmp\r\n/.test(at.text));
  await type(pid, 'sleep 100\n');
  await until('the echo', () => /sleep 100\r\n/.test(at.text));
  await s.pty.resize(pid, { cols: 120, rows: 40 });
  await type(pid, '\x03');
  await type(pid, 'echo "was-$?"; stty size\n');
  await until('the prompt again', () => /was-130\r\n40 120\r\n/.test(at.text));
  await p.disconnect();
});
await check('who comes back sees what happens then', async () => {
  const at = screen();
  const p = await s.pty.connect(pid, { onData: at.onData, timeoutMs: 0 });
  await type(pid, 'echo again-$((6*7))\n');
  await until('the answer', () => /again-42\r\n/.test(at.text));
  assert.equal((await s.commands.list()).find((c) => c.pid === pid).args.join(' '), '-i -l');
  await type(pid, 'exit 4\n');
  assert.equal((await refused(p.wait(), 'CommandExitError', /exit status 4/)).exitCode, 4);
});
await check('killed it takes everything along', async () => {
  const at = screen();
  const p = await s.pty.create({ cols: 80, rows: 24, onData: at.onData });
  await type(p.pid, 'sleep 201 & nohup sleep 202 & echo up-$((1+1))\n');
  await until('its start', () => /up-2/.test(at.text));
  assert.equal(await s.pty.kill(p.pid), true);
  assert.equal(await s.pty.kill(p.pid), false);
  await refused(p.wait(), 'CommandExitError', /signal: killed/);
  assert.equal((await s.commands.run('pgrep -fc "^sleep 20" || true')).stdout, '0\n');
});
await check('what is none has no size', async () => {
  const h = await s.commands.run('sleep 300', { background: true });
  await refused(s.pty.resize(h.pid, { cols: 80, rows: 24 }), 'SandboxError', /terminal/);
  await refused(s.pty.resize(4_000_000, { cols: 80, rows: 24 }), 'NotFoundError', /pid/);
  await refused(s.pty.create({ cols: 0, rows: 24, onData: () => {} }), 'InvalidArgumentError', /size/);
  await h.kill();
});
await s.kill();
done();
