// Coding agents of two vendors, unmodified, each doing a task with one shell command in an empty git repository. The model behind speaks
// another wire than the agent. VENDOR_PORT is where the test's providers (chat, messages, responses) lead.
import { execFileSync, spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { assert, check, done, key, url } from './shared.mjs';
import { asked, vendor } from './vendor.mjs';

const here = path.dirname(fileURLToPath(import.meta.url)), bin = path.join(here, 'node_modules');
const home = fs.mkdtempSync(path.join(os.tmpdir(), 'ghagents.'));
const command = 'echo "made by an agent" > made.txt';
const TASK = 'Write the file made.txt with one shell command.';
const server = await vendor(Number(process.env.VENDOR_PORT), command);

function run(argv, env, cwd) {
  return new Promise(go => {
    const child = spawn(argv[0], argv.slice(1), { cwd, env: { PATH: '/usr/bin:/bin', LANG: 'C.UTF-8', HOME: home, ...env }, stdio: ['ignore', 'pipe', 'pipe'], detached: true });
    let out = '';
    const timer = setTimeout(() => process.kill(-child.pid, 'SIGKILL'), 120000);
    child.stdout.on('data', p => { out += p; });
    child.stderr.on('data', p => { out += p; });
    child.on('close', code => { clearTimeout(timer); go({ code, out }); });
  });
}
function repository(name) {
  const dir = path.join(home, name);
  fs.mkdirSync(dir);
  execFileSync('git', ['init', '-q', '-b', 'main', dir]);
  return dir;
}

const agents = {
  codex: (model, cwd) => run([process.execPath, path.join(bin, '@openai/codex/bin/codex.js'), 'exec', '--skip-git-repo-check',
    '--dangerously-bypass-approvals-and-sandbox',
    '-c', 'model_provider=gh', '-c', `model_providers.gh={name="gh",base_url="${url}/v1",env_key="GH_KEY",wire_api="responses"}`,
    '-m', model, TASK], { CODEX_HOME: path.join(home, 'codex'), GH_KEY: key, SSL_CERT_FILE: process.env.NODE_EXTRA_CA_CERTS }, cwd),
  claude: (model, cwd) => run([path.join(bin, '@anthropic-ai/claude-code-linux-x64/claude'), '-p', '--dangerously-skip-permissions',
    '--model', model, '--', TASK], {
    ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: key, IS_SANDBOX: '1', NODE_EXTRA_CA_CERTS: process.env.NODE_EXTRA_CA_CERTS,
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1', DISABLE_AUTOUPDATER: '1',
  }, cwd),
};
fs.mkdirSync(path.join(home, 'codex'));

for (const [agent, by] of [['codex', 'chat'], ['codex', 'messages'], ['claude', 'chat'], ['claude', 'responses']])
  await check(`${agent}, answered by ${by}`, async () => {
    const cwd = repository(`${agent}-${by}`);
    asked.length = 0;
    const { code, out } = await agents[agent](`${by}/agent`, cwd);
    console.log(out.trimEnd().replace(/^/gm, '      '));
    assert.equal(code, 0, `exit ${code}`);
    assert.equal(fs.readFileSync(path.join(cwd, 'made.txt'), 'utf8'), 'made by an agent\n');
    assert.match(out, /Done: the command ran\./);
    assert.ok(asked.some(a => a.called) && asked.some(a => a.told), JSON.stringify(asked));
    assert.ok(asked.length <= 4, `asked ${asked.length} times`); // each call is paid for
  });

server.close();
server.closeAllConnections();
fs.rmSync(home, { recursive: true, force: true });
done();
