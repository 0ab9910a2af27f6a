// OpenAI's own SDK, as anybody would use it: by base URL and key alone. What answers behind speaks each of the three wires.
import OpenAI from 'openai';
import { assert, calls, check, done, key, poor, refused, tool, url, words } from './shared.mjs';

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const messages = [{ role: 'user', content: 'Say it.' }];
const tools = [{ type: 'function', function: { name: tool.name, description: tool.description, parameters: tool.schema } }];
const flat = [{ type: 'function', name: tool.name, description: tool.description, parameters: tool.schema, strict: false }];

await check('models.list', async () => {
  const ids = [];
  for await (const m of client.models.list()) ids.push(m.id);
  for (const wire of ['chat', 'messages', 'responses']) assert.ok(ids.includes(`${wire}/ok`), ids.join(' '));
});
await check('models.retrieve', async () => {
  assert.equal((await client.models.retrieve('chat/ok')).id, 'chat/ok');
  await refused(client.models.retrieve('chat/okk'), OpenAI.NotFoundError, 404, 'model_not_found');
});

for (const by of ['chat', 'messages', 'responses']) {
  await check(`chat by ${by}: buffered`, async () => {
    const { data, response } = await client.chat.completions.create({ model: `${by}/ok`, messages }).withResponse();
    assert.equal(data.choices[0].message.content.trim(), words);
    assert.equal(data.choices[0].finish_reason, 'stop');
    assert.equal(data.object, 'chat.completion');
    assert.ok(data.usage.prompt_tokens > 0 && data.usage.completion_tokens > 0);
    assert.equal(data.usage.total_tokens, data.usage.prompt_tokens + data.usage.completion_tokens);
    assert.match(response.headers.get('x-gatehouse-call-id'), /^call_/);
    assert.equal(response.headers.get('x-gatehouse-attempts'), '1');
  });
  await check(`chat by ${by}: streamed, with usage`, async () => {
    let text = '', finish = null, usage = null;
    const stream = await client.chat.completions.create({ model: `${by}/ok`, messages, stream: true, stream_options: { include_usage: true } });
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content ?? '';
      finish = chunk.choices[0]?.finish_reason ?? finish;
      usage = chunk.usage ?? usage;
    }
    assert.equal(text.trim(), words);
    assert.equal(finish, 'stop');
    assert.ok(usage.completion_tokens > 0);
  });
  await check(`chat by ${by}: two calls of a tool, buffered and streamed`, async () => {
    const whole = await client.chat.completions.create({ model: `${by}/tools`, messages, tools });
    const streamed = await client.chat.completions.stream({ model: `${by}/tools`, messages, tools }).finalChatCompletion();
    for (const answer of [whole, streamed]) {
      assert.equal(answer.choices[0].finish_reason, 'tool_calls');
      const made = answer.choices[0].message.tool_calls;
      assert.deepEqual(made.map(c => c.function.name), ['read', 'read']);
      assert.deepEqual(made.map(c => JSON.parse(c.function.arguments)), calls);
      assert.equal(new Set(made.map(c => c.id)).size, 2);
    }
    const back = [...messages, whole.choices[0].message,
      ...whole.choices[0].message.tool_calls.map(c => ({ role: 'tool', tool_call_id: c.id, content: 'Read.' }))];
    const end = await client.chat.completions.create({ model: `${by}/ok`, messages: back, tools });
    assert.equal(end.choices[0].message.content.trim(), words);
  });
  await check(`responses by ${by}: buffered`, async () => {
    const r = await client.responses.create({ model: `${by}/ok`, input: 'Say it.', instructions: 'Be brief.' });
    assert.equal(r.output_text.trim(), words);
    assert.equal(r.status, 'completed');
    assert.ok(r.usage.input_tokens > 0 && r.usage.output_tokens > 0);
  });
  await check(`responses by ${by}: streamed`, async () => {
    let text = '', last = null;
    const types = new Set();
    for await (const event of await client.responses.create({ model: `${by}/ok`, input: 'Say it.', stream: true })) {
      types.add(event.type);
      if (event.type === 'response.output_text.delta') text += event.delta;
      last = event;
    }
    assert.equal(text.trim(), words);
    assert.equal(last.type, 'response.completed');
    assert.equal(last.response.output_text ?? last.response.output.at(-1).content[0].text.trim(), last.response.output_text ?? words);
    for (const t of ['response.created', 'response.output_item.added', 'response.output_item.done']) assert.ok(types.has(t), t);
  });
  await check(`responses by ${by}: calls of a tool, streamed`, async () => {
    const made = [];
    for await (const event of await client.responses.create({ model: `${by}/tools`, input: 'Read.', tools: flat, stream: true }))
      if (event.type === 'response.output_item.done' && event.item.type === 'function_call') made.push(event.item);
    assert.deepEqual(made.map(c => c.name), ['read', 'read']);
    assert.deepEqual(made.map(c => JSON.parse(c.arguments)), calls);
  });
}

await check('a fault before the first token is not seen', async () => {
  const { data, response } = await client.chat.completions.create({ model: 'faulty/500-once@openai', messages }).withResponse();
  assert.equal(data.choices[0].message.content.trim(), words);
  assert.equal(response.headers.get('x-gatehouse-attempts'), '2');
});
await check('a stream that breaks off throws', async () => {
  let text = '';
  await assert.rejects(async () => {
    for await (const chunk of await client.chat.completions.create({ model: 'faulty/cut@openai', messages, stream: true }))
      text += chunk.choices[0]?.delta?.content ?? '';
  }, OpenAI.APIError);
  assert.ok(text.length < words.length);
});
await check('an unknown model is a NotFoundError that names the nearest', async () => {
  const e = await refused(client.chat.completions.create({ model: 'chat/okk', messages }), OpenAI.NotFoundError, 404, 'model_not_found');
  assert.match(e.message, /chat\/ok/);
});
await check('a wrong key is an AuthenticationError', async () => {
  const other = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'gk_wrong', maxRetries: 0 });
  await refused(other.chat.completions.create({ model: 'chat/ok', messages }), OpenAI.AuthenticationError, 401);
});
await check('a bad request names its field', async () => {
  await refused(client.chat.completions.create({ model: 'chat/ok' }), OpenAI.BadRequestError, 400);
});
await check('without balance: insufficient_quota, and not tried again', async () => {
  let asked = 0;
  const counting = (...args) => { asked++; return fetch(...args); };
  const other = new OpenAI({ baseURL: `${url}/v1`, apiKey: poor, maxRetries: 2, fetch: counting });
  await refused(other.chat.completions.create({ model: 'chat/ok', messages }), OpenAI.RateLimitError, 429, 'insufficient_quota');
  await refused(other.responses.create({ model: 'chat/ok', input: 'x' }), OpenAI.RateLimitError, 429, 'insufficient_quota');
  assert.equal(asked, 2);
});
await check('a body too large is a 413 of nginx, in words that the SDK shows', async () => {
  const long = [{ role: 'user', content: 'x'.repeat(33 << 20) }];
  const e = await refused(client.chat.completions.create({ model: 'chat/ok', messages: long }), OpenAI.APIError, 413, 'request_too_large');
  assert.match(e.message, /larger than 32 MiB/);
  assert.match(e.requestID, /./);
});
await check('what is away is retried by the SDK, as it is told when', async () => {
  const patient = client.withOptions({ maxRetries: 1 });
  const began = Date.now();
  await refused(patient.chat.completions.create({ model: 'faulty/503@openai', messages }), OpenAI.InternalServerError);
  assert.ok(Date.now() - began > 300);
});
await check('a client that leaves ends the stream', async () => {
  const stream = await client.chat.completions.create({ model: 'chat/endless@openai', messages, stream: true });
  for await (const chunk of stream) if (chunk.choices[0]?.delta?.content) break;
  stream.controller.abort();
});
done();
