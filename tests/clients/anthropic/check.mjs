// Anthropic's own SDK, as anybody would use it: by base URL and key alone. What answers behind speaks each of the three wires.
import Anthropic from '@anthropic-ai/sdk';
import { assert, calls, check, done, key, poor, refused, tool, url, words } from './shared.mjs';

const client = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
const messages = [{ role: 'user', content: 'Say it.' }];
const tools = [{ name: tool.name, description: tool.description, input_schema: tool.schema }];
const ask = (model, more) => ({ model, max_tokens: 1000, system: 'Be brief.', messages, ...more });

for (const by of ['messages', 'chat', 'responses']) {
  await check(`messages by ${by}: buffered`, async () => {
    const { data, response } = await client.messages.create(ask(`${by}/ok`)).withResponse();
    assert.equal(data.type, 'message');
    assert.equal(data.role, 'assistant');
    assert.equal(data.content[0].text.trim(), words);
    assert.equal(data.stop_reason, 'end_turn');
    assert.ok(data.usage.input_tokens > 0 && data.usage.output_tokens > 0);
    assert.match(response.headers.get('x-gatehouse-call-id'), /^call_/);
  });
  await check(`messages by ${by}: streamed`, async () => {
    const types = [];
    const stream = client.messages.stream(ask(`${by}/ok`));
    stream.on('streamEvent', e => types.push(e.type));
    const message = await stream.finalMessage();
    assert.equal(message.content[0].text.trim(), words);
    assert.equal(message.stop_reason, 'end_turn');
    assert.ok(message.usage.output_tokens > 0);
    assert.equal(types[0], 'message_start');
    assert.equal(types.at(-1), 'message_stop');
  });
  await check(`messages by ${by}: two calls of a tool, and their results`, async () => {
    const whole = await client.messages.create(ask(`${by}/tools`, { tools }));
    const streamed = await client.messages.stream(ask(`${by}/tools`, { tools })).finalMessage();
    for (const m of [whole, streamed]) {
      const made = m.content.filter(b => b.type === 'tool_use');
      assert.equal(m.stop_reason, 'tool_use');
      assert.deepEqual(made.map(b => b.name), ['read', 'read']);
      assert.deepEqual(made.map(b => b.input), calls);
      assert.equal(new Set(made.map(b => b.id)).size, 2);
    }
    const results = whole.content.filter(b => b.type === 'tool_use')
      .map(b => ({ type: 'tool_result', tool_use_id: b.id, content: 'Read.' }));
    const end = await client.messages.create(ask(`${by}/ok`, {
      tools, messages: [...messages, { role: 'assistant', content: whole.content }, { role: 'user', content: results }],
    }));
    assert.equal(end.content[0].text.trim(), words);
  });
}

await check('models.list and models.retrieve', async () => {
  const ids = [];
  for await (const m of client.models.list({ limit: 2 })) ids.push(m.id);
  assert.ok(ids.includes('messages/ok'), ids.join(' '));
  assert.equal(new Set(ids).size, ids.length);
  const one = await client.models.retrieve('messages/ok');
  assert.equal(one.type, 'model');
  assert.ok(!Number.isNaN(Date.parse(one.created_at)));
  const e = await refused(client.models.retrieve('messages/okk'), Anthropic.NotFoundError, 404);
  assert.equal(e.error.error.type, 'not_found_error');
});
await check('a body too large is a 413 of nginx, and not tried again', async () => {
  const other = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 2 });
  const long = [{ role: 'user', content: 'x'.repeat(33 << 20) }];
  const e = await refused(other.messages.create(ask('messages/ok', { messages: long })), Anthropic.APIError, 413);
  assert.equal(e.error.error.type, 'request_too_large');
  assert.match(e.requestID, /./);
});
await check('count_tokens', async () => {
  const n = await client.messages.countTokens({ model: 'messages/ok', messages });
  assert.ok(n.input_tokens > 0);
});
await check('a stream that breaks off throws', async () => {
  await assert.rejects(client.messages.stream(ask('faulty-messages/cut@anthropic')).finalMessage(), Anthropic.APIError);
});
await check('an unknown model is a NotFoundError that names the nearest', async () => {
  const e = await refused(client.messages.create(ask('messages/okk')), Anthropic.NotFoundError, 404);
  assert.equal(e.error.type, 'error');
  assert.equal(e.error.error.type, 'not_found_error');
  assert.match(e.error.error.message, /messages\/ok/);
});
await check('a wrong key is an AuthenticationError, in either header', async () => {
  await refused(new Anthropic({ baseURL: url, apiKey: 'gk_wrong', maxRetries: 0 }).messages.create(ask('messages/ok')),
    Anthropic.AuthenticationError, 401);
  await refused(new Anthropic({ baseURL: url, apiKey: null, authToken: 'gk_wrong', maxRetries: 0 }).messages.create(ask('messages/ok')),
    Anthropic.AuthenticationError, 401);
});
await check('the key is taken from Authorization, too', async () => {
  const bearer = new Anthropic({ baseURL: url, apiKey: null, authToken: key, maxRetries: 0 });
  assert.equal((await bearer.messages.create(ask('messages/ok'))).content[0].text.trim(), words);
});
await check('without balance: 402 billing_error, and not tried again', async () => {
  const other = new Anthropic({ baseURL: url, apiKey: poor, maxRetries: 2 });
  const began = Date.now();
  const e = await refused(other.messages.create(ask('messages/ok')), Anthropic.APIError, 402);
  assert.equal(e.error.error.type, 'billing_error');
  assert.ok(Date.now() - began < 400);
});
await check('a bad request names its field', async () => {
  await refused(client.messages.create({ model: 'messages/ok', max_tokens: 10, messages: 'Say it.' }), Anthropic.BadRequestError, 400);
});
done();
