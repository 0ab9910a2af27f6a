// echo.js - the bundled model provider of `make run`: no language model, and it says so. It speaks chat.completions, as JSON and as
// a stream, and repeats what it was told last. It is there so that every command of the README works without a vendor's key.
//
//   node echo.js PORT PIDFILE     it ends when PIDFILE no longer names it
const http = require('http'), fs = require('fs');
const [port, pidfile] = [Number(process.argv[2]), process.argv[3]];
const MODEL = 'scripted', BODY_MAX = 32 << 20, PACE_MS = 20;

const mine = () => {
  try { return Number(fs.readFileSync(pidfile, 'utf8').split(' ')[0]) === process.pid; } catch { return false; }
};
setInterval(() => mine() || process.exit(0), 1000);
process.on('SIGTERM', () => process.exit(0));

const textOf = content => typeof content === 'string' ? content
  : Array.isArray(content) ? content.filter(p => p && p.type === 'text').map(p => p.text).join(' ') : '';
const tokens = text => Math.ceil(Buffer.byteLength(text) / 4);

function fail(res, status, message) {
  res.writeHead(status, { 'content-type': 'application/json' });
  res.end(JSON.stringify({ error: { message, type: 'invalid_request_error', param: null, code: null } }));
}

function answer(ask) {
  const said = ask.messages.filter(m => m && m.role === 'user').map(m => textOf(m.content)).pop() || '';
  const text = 'This is echo, a scripted stand-in and no language model; it repeats you. You said: ' + said.slice(0, 2000);
  const n = { prompt: tokens(ask.messages.map(m => textOf(m && m.content)).join('\n')), completion: tokens(text) };
  return {
    text,
    head: { id: 'chatcmpl-echo-' + process.hrtime.bigint().toString(36), created: Math.floor(Date.now() / 1000), model: MODEL },
    usage: { prompt_tokens: n.prompt, completion_tokens: n.completion, total_tokens: n.prompt + n.completion },
  };
}

function whole(res, a) {
  res.writeHead(200, { 'content-type': 'application/json' });
  res.end(JSON.stringify({
    ...a.head, object: 'chat.completion', usage: a.usage,
    choices: [{ index: 0, finish_reason: 'stop', logprobs: null, message: { role: 'assistant', content: a.text, refusal: null } }],
  }));
}

function stream(res, a, withUsage) {
  res.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
  const send = (delta, finish) => res.write('data: ' + JSON.stringify({
    ...a.head, object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason: finish }],
  }) + '\n\n');
  send({ role: 'assistant', content: '' }, null);
  const words = a.text.match(/\s*\S+/g) || [];
  const next = () => {
    if (res.destroyed) return;
    if (words.length > 0) {
      send({ content: words.shift() }, null);
      setTimeout(next, PACE_MS);
      return;
    }
    send({}, 'stop');
    if (withUsage)
      res.write('data: ' + JSON.stringify({ ...a.head, object: 'chat.completion.chunk', choices: [], usage: a.usage }) + '\n\n');
    res.end('data: [DONE]\n\n');
  };
  next();
}

function chat(res, body) {
  let ask;
  try { ask = JSON.parse(body); } catch { return fail(res, 400, 'The body is not JSON.'); }
  if (!ask || !Array.isArray(ask.messages) || ask.messages.length === 0) return fail(res, 400, '`messages` is needed.');
  const a = answer(ask);
  return ask.stream === true ? stream(res, a, ask.stream_options && ask.stream_options.include_usage) : whole(res, a);
}

http.createServer((req, res) => {
  if (req.method === 'GET' && req.url === '/v1/models') {
    res.writeHead(200, { 'content-type': 'application/json' });
    return res.end(JSON.stringify({ object: 'list', data: [{ id: MODEL, object: 'model', created: 0, owned_by: 'echo' }] }));
  }
  if (req.method !== 'POST' || req.url !== '/v1/chat/completions') return fail(res, 404, 'echo knows only chat.completions.');
  const parts = [];
  let n = 0;
  req.on('data', p => { n += p.length; if (n > BODY_MAX) req.destroy(); else parts.push(p); });
  req.on('end', () => chat(res, Buffer.concat(parts).toString()));
}).listen(port, '127.0.0.1');
