// Verifies who has written a record: a worker, and for a release also an operator. See "Signed decisions" in
// docs/fleet.md. The signed bytes are those of streamproc/fleet/record_signing.py and signing.py.
import { createHmac, createPublicKey, type KeyObject, createPrivateKey, timingSafeEqual, verify } from "node:crypto";
import type { Lifted, Place } from "./halts.js";

/** A record as a consumer reads it. A header may come twice. */
export interface SignedRecord {
  key: Buffer | null;
  value: Buffer | null;
  timestampMs: number;
  headers: Iterable<[Buffer, Buffer]>;
}

export interface Resume {
  type: string;
  run_id: string;
  event_id: string;
  by?: string;
  reason?: string;
  grant?: { [budget: string]: number };
  halt?: string;
  at?: number;
  issuer?: string;
  signature?: string;
}

interface Signature {
  key: string;
  at: number;
  partition: number;
  offset: number;
  signature: string;
}

const AGE_MS_MAX = 300_000; // a recorded record that is sent again later is not believed
const CLOCKS_MS = 60_000; // an operator's clock may be behind by this much
const RESUMES_MAX = 100_000;
// Around the 32 bytes of a key: what Node needs to read it as DER.
const PRIVATE = Buffer.from("302e020100300506032b657004220420", "hex");
const PUBLIC = Buffer.from("302a300506032b6570032100", "hex");

/** The keys of `STREAMPROC_CONTROL_KEY` or `STREAMPROC_COMMAND_KEY`, by name. */
export class Keys {
  readonly #keys = new Map<string, KeyObject | string>();

  constructor(text: string) {
    for (const part of text.split(",").map((one) => one.trim())) {
      if (!part) continue;
      const [, name, kind, rest] = /^([^:]+):(?:(ed25519|ed25519-public):)?(.+)$/.exec(part) ?? [];
      if (!name || !rest) throw new Error("a key must be NAME:SECRET or NAME:ed25519-public:BASE64");
      const raw = Buffer.from(rest, "base64");
      const der = { format: "der" } as const;
      if (kind === "ed25519") {
        const key = createPrivateKey({ ...der, type: "pkcs8", key: Buffer.concat([PRIVATE, raw]) });
        this.#keys.set(name, createPublicKey(key));
      } else if (kind) {
        this.#keys.set(name, createPublicKey({ ...der, type: "spki", key: Buffer.concat([PUBLIC, raw]) }));
      } else {
        this.#keys.set(name, rest);
      }
    }
  }

  get some(): boolean {
    return this.#keys.size > 0;
  }

  verifies(name: string, content: Buffer, signature: string): boolean {
    const key = this.#keys.get(name);
    if (key === undefined || !/^([0-9a-f]{2})+$/.test(signature)) return false;
    const given = Buffer.from(signature, "hex");
    if (typeof key !== "string") return given.length === 64 && verify(null, content, key, given);
    const own = createHmac("sha256", key).update(content).digest();
    return given.length === own.length && timingSafeEqual(given, own);
  }
}

export class Verifier {
  readonly #lifted = new Map<string, string>(); // what each resume has lifted, by its id: it lifts nothing else

  constructor(
    readonly workers: Keys,
    readonly operators: Keys,
    readonly prefix: string,
  ) {}

  /** The event that a record of the topic `role` about a run follows from; undefined: no worker has signed it. */
  place(role: string, record: SignedRecord, runId: string): Place | undefined {
    const signed = only(record, "signature") as Signature | undefined;
    if (!signed || record.key?.toString() !== runId) return undefined;
    const { key, at, partition, offset } = signed;
    const about = [this.prefix, role, record.key.toString("base64"), record.value === null];
    const head = JSON.stringify(["record", 1, ...about, key, at, partition, offset]);
    const content = Buffer.concat([Buffer.from(`${head}\n`), record.value ?? Buffer.alloc(0)]);
    if (!this.workers.verifies(key, content, signed.signature)) return undefined;
    return Math.abs(record.timestampMs - at) > AGE_MS_MAX ? undefined : { partition, offset, atMs: at };
  }

  /** The operator's resume in a record about a run; undefined: there is none, or no operator has signed it. */
  resume(record: SignedRecord, runId: string): Resume | undefined {
    const event = only(record, "operator.resume") as Resume | undefined;
    if (!event || event.type !== "operator.resume" || event.run_id !== runId || !event.halt) return undefined;
    const { type, run_id, event_id, by = "", reason = "", at = null, issuer = "" } = event;
    const grant = Object.fromEntries(Object.entries(event.grant ?? {}).sort(([one], [other]) => (one < other ? -1 : 1)));
    const form = ["event", 2, event.halt, this.prefix, type, run_id, event_id, by, reason, grant, at, issuer];
    return this.operators.verifies(issuer, Buffer.from(JSON.stringify(form)), event.signature ?? "") ? event : undefined;
  }

  /** Whether a resume lifts a halt: it names it, is not older, and has lifted no other one. */
  lifts(event: Resume | undefined, halt: Lifted): boolean {
    if (!event || (halt.id && event.halt !== halt.id) || (event.at ?? 0) + CLOCKS_MS < halt.atMs) return false;
    const key = halt.id || `${halt.partition}@${halt.atMs}`;
    const before = this.#lifted.get(event.event_id);
    if (before !== undefined && before !== key) return false;
    this.#lifted.set(event.event_id, key);
    if (this.#lifted.size > RESUMES_MAX) this.#lifted.delete(this.#lifted.keys().next().value!);
    return true;
  }
}

/** The value of a header that comes once, parsed; undefined: it does not, or is no JSON. */
export function only(record: SignedRecord, name: string): unknown {
  const found = [...record.headers].filter(([header]) => header.toString() === name);
  try {
    return found.length === 1 ? JSON.parse(found[0]![1].toString()) ?? undefined : undefined;
  } catch {
    return undefined;
  }
}
