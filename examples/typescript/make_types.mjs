// Writes types/*.ts from the JSON Schemas of streamproc: `npm run types`. With --check it only compares, and exits
// with 1 if they differ.
import { readFile, writeFile } from "node:fs/promises";
import { compile } from "json-schema-to-typescript";

const SCHEMAS = new URL(process.env.SCHEMAS ?? "../../schemas/", import.meta.url);
const NAMES = ["run.started", "turn.started", "turn", "run.finished", "user.message", "control-event", "run-status"];
const BANNER = (name) =>
  `/* Made by make_types.mjs from schemas/${name}.schema.json: change that file, not this one. */`;

const KINDS = ["type", "$ref", "anyOf", "allOf", "oneOf", "enum", "const", "properties"];

/** Workers ignore unknown fields, so the schemas allow them. Here they do not, and a misspelt field is an error. */
function closed(schema) {
  if (typeof schema !== "object" || schema === null) return schema;
  if (Array.isArray(schema)) return schema.map(closed);
  const { title, ...rest } = schema; // with titles, each field would have a type of its own
  const result = Object.fromEntries(
    Object.entries(rest).map(([name, value]) =>
      name === "properties" || name === "$defs"
        ? [name, Object.fromEntries(Object.entries(value).map(([key, part]) => [key, closed(part)]))]
        : [name, closed(value)],
    ),
  );
  if (!KINDS.some((kind) => kind in schema)) return { ...result, tsType: "unknown" }; // any JSON
  return schema.properties ? { ...result, additionalProperties: false } : result;
}

const checking = process.argv.includes("--check");
let stale = 0;
for (const name of NAMES) {
  const schema = JSON.parse(await readFile(new URL(`${name}.schema.json`, SCHEMAS), "utf8"));
  const options = { additionalProperties: false, bannerComment: BANNER(name) };
  const text = await compile({ ...closed(schema), title: schema.title, $id: undefined }, schema.title, options);
  const file = new URL(`types/${name}.ts`, import.meta.url);
  if (text === (await readFile(file, "utf8").catch(() => ""))) continue;
  stale += 1;
  if (!checking) await writeFile(file, text);
  console.error(`types/${name}.ts ${checking ? "is not current: npm run types" : "written"}`);
}
process.exit(stale && checking ? 1 : 0);
