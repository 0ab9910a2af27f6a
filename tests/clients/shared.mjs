// shared.mjs - what the client checks share: cases that run one after the other, each of which may only throw.
import assert from 'node:assert/strict';
export { assert };

export const url = process.env.GATEHOUSE_URL, key = process.env.GATEHOUSE_KEY, poor = process.env.GATEHOUSE_POOR_KEY;
export const words = Array.from({ length: 60 }, (_, i) => 'w' + i).join(' ');
// What the scripted vendor's model `tools` calls.
export const tool = { name: 'read', description: 'Reads a file.', schema: { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] } };
export const calls = [{ path: 'a' }, { path: 'b' }];

let bad = 0;
export async function check(name, fn) {
  const began = Date.now();
  try {
    await fn();
    console.log(`ok    ${name} (${Date.now() - began} ms)`);
  } catch (e) {
    bad++;
    console.log(`FAIL  ${name}: ${e && e.stack || e}`);
  }
}
export async function refused(promise, kind, status, code) {
  try {
    await promise;
  } catch (e) {
    assert.ok(e instanceof kind, `${e && e.constructor && e.constructor.name}: ${e}`);
    if (status !== undefined) assert.equal(e.status, status);
    if (code !== undefined) assert.equal(e.code, code);
    return e;
  }
  assert.fail('it was served');
}
export const done = () => process.exit(bad === 0 ? 0 : 1);
