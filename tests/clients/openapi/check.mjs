// check.mjs FILE - judge our OpenAPI document (OP-1): a third-party validator against the specification's own schema, then
// every example against the schema that it stands in, with a third-party JSON Schema implementation.
import { readFileSync } from "node:fs";
import Ajv2020 from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { Validator } from "@seriousme/openapi-schema-validator";

const text = readFileSync(process.argv[2], "utf8");
const problems = [];

const validator = new Validator();
const result = await validator.validate(text);
if (!result.valid) problems.push(`not valid: ${JSON.stringify(result.errors).slice(0, 2000)}`);
if (validator.version !== "3.1") problems.push(`version ${validator.version}`);

const doc = JSON.parse(text);
const ajv = new Ajv2020({ strict: true, strictTypes: false, allowUnionTypes: true });
addFormats.default(ajv);
let examples = 0;

// Every schema that carries examples, at any depth.
function judge(schema, where) {
  if (schema === null || typeof schema !== "object") return;
  if (Array.isArray(schema.examples))
    for (const e of schema.examples) {
      examples++;
      const check = ajv.compile(schema);
      if (!check(e)) problems.push(`${where}: example ${JSON.stringify(e)}: ${ajv.errorsText(check.errors)}`);
    }
  for (const [name, s] of Object.entries(schema.properties ?? {})) judge(s, `${where}.${name}`);
  if (schema.items) judge(schema.items, `${where}[]`);
  if (typeof schema.additionalProperties === "object") judge(schema.additionalProperties, `${where}.*`);
}

const ids = new Set();
for (const [path, item] of Object.entries(doc.paths))
  for (const [method, op] of Object.entries(item)) {
    const where = `${method} ${path}`;
    if (ids.has(op.operationId)) problems.push(`${where}: ${op.operationId} is there twice`);
    ids.add(op.operationId);
    for (const p of op.parameters ?? []) judge(p.schema, `${where} ${p.name}`);
    const body = op.requestBody?.content?.["application/json"];
    if (body) {
      judge(body.schema, `${where} body`);
      const check = ajv.compile(body.schema);
      examples++;
      if (!check(body.example)) problems.push(`${where}: the example: ${ajv.errorsText(check.errors)}`);
    }
    for (const [status, r] of Object.entries(op.responses))
      for (const content of Object.values(r.content ?? {})) {
        judge(content.schema, `${where} ${status}`);
        if (content.schema) ajv.compile(content.schema);
      }
  }

for (const p of problems) console.error(p);
console.log(`openapi: ${ids.size} operations, ${examples} examples, ${problems.length} problems`);
process.exit(problems.length === 0 && ids.size > 0 ? 0 : 1);
