// case.mjs - what the cases of this folder share, beside shared.mjs.
import { assert } from './shared.mjs';
export { assert, check, done } from './shared.mjs';

// What a call is refused with: an error of this class whose message has these words.
export async function refused(promise, name, words) {
  const e = await promise.then(() => assert.fail('it was not refused'), (e) => e);
  assert.equal(e.name, name, `${e.name}: ${e.message}`);
  assert.match(e.message, words);
  return e;
}
export async function until(what, is, ms = 120_000) {
  for (const end = Date.now() + ms; !is(); await new Promise((r) => setTimeout(r, 10)))
    if (Date.now() > end) assert.fail(`waited for ${what}`);
}
