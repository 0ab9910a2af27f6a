// vendor.mjs - a vendor of three wires whose model has one idea: run a shell command with whatever tool is offered for it, and when it is
// told the result, say so. It writes down what it is asked.
import http from 'node:http';

const SHELLS = /^(exec_command|shell|shell_command|local_shell|bash|Bash)$/;
export const asked = [];

// The tool for shell commands among those that are offered, and its arguments by its own schema.
function call(tools, command) {
  const shell = tools.find(t => SHELLS.test(t.name) || /(^|_)(exec_command|Bash)$/.test(t.name));
  if (!shell) return null;
  const p = shell.schema?.properties ?? {};
  if (p.cmd) return { name: shell.name, input: { cmd: command } };
  if (p.command?.type === 'array') return { name: shell.name, input: { command: ['bash', '-lc', command] } };
  return { name: shell.name, input: { command, ...(p.description ? { description: 'Writes a file' } : {}) } };
}

const sse = res => (name, data) => res.write((name ? `event: ${name}\n` : '') + `data: ${JSON.stringify(data)}\n\n`);
// Arguments come in two pieces, as they do.
const halves = text => [text.slice(0, text.length >> 1), text.slice(text.length >> 1)];

const wires = {
  '/v1/chat/completions': {
    tools: b => (b.tools ?? []).filter(t => t.type === 'function').map(t => ({ name: t.function.name, schema: t.function.parameters })),
    told: b => b.messages.some(m => m.role === 'tool'),
    stream(res, todo) {
      const send = sse(res), base = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'agent' };
      const delta = (d, f = null) => send('', { ...base, choices: [{ index: 0, delta: d, finish_reason: f }] });
      delta({ role: 'assistant', content: todo.text ?? null });
      if (todo.call) {
        delta({ tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: { name: todo.call.name, arguments: '' } }] });
        for (const part of halves(JSON.stringify(todo.call.input))) delta({ tool_calls: [{ index: 0, function: { arguments: part } }] });
      }
      delta({}, todo.call ? 'tool_calls' : 'stop');
      send('', { ...base, choices: [], usage: { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110 } });
      res.end('data: [DONE]\n\n');
    },
    whole: todo => ({
      id: 'chatcmpl-1', object: 'chat.completion', created: 1, model: 'agent', usage: { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110 },
      choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: todo.text ?? 'A title' } }],
    }),
  },
  '/v1/messages': {
    tools: b => (b.tools ?? []).filter(t => t.input_schema).map(t => ({ name: t.name, schema: t.input_schema })),
    told: b => b.messages.some(m => Array.isArray(m.content) && m.content.some(p => p.type === 'tool_result')),
    stream(res, todo) {
      const emit = sse(res), send = d => emit(d.type, d);
      send({ type: 'message_start', message: { id: 'msg_1', type: 'message', role: 'assistant', model: 'agent', content: [], stop_reason: null, stop_sequence: null, usage: { input_tokens: 100, output_tokens: 1 } } });
      if (todo.call) {
        send({ type: 'content_block_start', index: 0, content_block: { type: 'tool_use', id: 'toolu_1', name: todo.call.name, input: {} } });
        for (const part of halves(JSON.stringify(todo.call.input)))
          send({ type: 'content_block_delta', index: 0, delta: { type: 'input_json_delta', partial_json: part } });
      } else {
        send({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } });
        send({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: todo.text } });
      }
      send({ type: 'content_block_stop', index: 0 });
      send({ type: 'message_delta', delta: { stop_reason: todo.call ? 'tool_use' : 'end_turn', stop_sequence: null }, usage: { output_tokens: 10 } });
      send({ type: 'message_stop' });
      res.end();
    },
    whole: todo => ({
      id: 'msg_1', type: 'message', role: 'assistant', model: 'agent', stop_reason: 'end_turn', stop_sequence: null,
      content: [{ type: 'text', text: todo.text ?? 'A title' }], usage: { input_tokens: 100, output_tokens: 10 },
    }),
  },
  '/v1/responses': {
    tools: b => (b.tools ?? []).filter(t => t.type === 'function').map(t => ({ name: t.name, schema: t.parameters })),
    told: b => Array.isArray(b.input) && b.input.some(i => i.type === 'function_call_output'),
    item: todo => todo.call
      ? { type: 'function_call', id: 'fc_1', call_id: 'call_1', name: todo.call.name, arguments: JSON.stringify(todo.call.input), status: 'completed' }
      : { type: 'message', id: 'msg_1', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: todo.text ?? 'A title', annotations: [] }] },
    response: (todo, status, output) => ({
      id: 'resp_1', object: 'response', created_at: 1, status, model: 'agent', output, error: null, incomplete_details: null,
      usage: status === 'completed' ? { input_tokens: 100, input_tokens_details: { cached_tokens: 0 }, output_tokens: 10, output_tokens_details: { reasoning_tokens: 0 }, total_tokens: 110 } : null,
    }),
    stream(res, todo) {
      const emit = sse(res);
      let n = 0;
      const send = d => emit(d.type, { ...d, sequence_number: n++ });
      const item = this.item(todo);
      send({ type: 'response.created', response: this.response(todo, 'in_progress', []) });
      send({ type: 'response.output_item.added', output_index: 0, item: { ...item, status: 'in_progress', ...(todo.call ? { arguments: '' } : { content: [] }) } });
      if (todo.call) {
        for (const part of halves(item.arguments)) send({ type: 'response.function_call_arguments.delta', item_id: 'fc_1', output_index: 0, delta: part });
        send({ type: 'response.function_call_arguments.done', item_id: 'fc_1', output_index: 0, arguments: item.arguments });
      } else {
        send({ type: 'response.content_part.added', item_id: 'msg_1', output_index: 0, content_index: 0, part: { type: 'output_text', text: '', annotations: [] } });
        send({ type: 'response.output_text.delta', item_id: 'msg_1', output_index: 0, content_index: 0, delta: todo.text });
        send({ type: 'response.output_text.done', item_id: 'msg_1', output_index: 0, content_index: 0, text: todo.text });
        send({ type: 'response.content_part.done', item_id: 'msg_1', output_index: 0, content_index: 0, part: item.content[0] });
      }
      send({ type: 'response.output_item.done', output_index: 0, item });
      send({ type: 'response.completed', response: this.response(todo, 'completed', [item]) });
      res.end();
    },
    whole(todo) { return this.response(todo, 'completed', [this.item(todo)]); },
  },
};

export function vendor(port, command) {
  const server = http.createServer((req, res) => {
    const parts = [];
    req.on('data', p => parts.push(p));
    req.on('end', () => {
      const wire = wires[req.url.split('?')[0]];
      if (!wire) return res.writeHead(404).end();
      const body = JSON.parse(Buffer.concat(parts));
      const told = wire.told(body), shell = told ? null : call(wire.tools(body), command);
      asked.push({ path: req.url, tools: wire.tools(body).map(t => t.name), told, stream: body.stream === true, called: shell?.name ?? null });
      const todo = shell ? { call: shell } : { text: told ? 'Done: the command ran.' : 'A title' };
      if (body.stream === true) {
        res.writeHead(200, { 'content-type': 'text/event-stream' });
        wire.stream(res, todo);
      } else {
        res.writeHead(200, { 'content-type': 'application/json' });
        res.end(JSON.stringify(wire.whole(todo)));
      }
    });
  });
  return new Promise(go => server.listen(port, '127.0.0.1', () => go(server)));
}
