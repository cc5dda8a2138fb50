// Listens for halts, and gives each run an AbortSignal that a halt aborts.
import { randomUUID } from "node:crypto";
import { type BaseOptions, Consumer, ListOffsetTimestamps } from "@platformatic/kafka";
import { Halted, Halts, type News } from "./halts.js";
import type { ControlEvent } from "./types/control-event.js";
import type { RunStatus } from "./types/run-status.js";
import { Keys, only, type SignedRecord, Verifier } from "./verify.js";

export { Halted };

export interface ListenerOptions {
  brokers?: string;
  prefix?: string;
  /** `tls` and `sasl`, for example. */
  kafka?: Partial<BaseOptions>;
  /** The keys of workers and of operators; by default those of the environment. Without them, all are believed. */
  controlKey?: string;
  commandKey?: string;
}

/** What a record says, apart from its signatures. `halted`: undefined, if it is not about whether the run is halted. */
function read(role: string, value: unknown): Omit<News, "resumed"> | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const atMs = Date.parse((value as RunStatus | ControlEvent).at ?? "") || 0;
  if (role === "runs") {
    const status = value as RunStatus;
    const halted = status.status === "halted" || (status.status === "finished" && status.halt);
    const reason = halted ? new Halted(status.run_id, status.halt ?? undefined) : undefined;
    const place = { partition: status.partition ?? -1, offset: status.offset ?? -1, atMs };
    return { runId: status.run_id, place, halted: reason, haltId: status.halt?.id ?? "", isStatus: true };
  }
  const control = value as ControlEvent;
  const halts = control.severity === "halt";
  if (control.type === "fleet.state" || !(halts || control.type === "run.resumed")) return undefined;
  const place = { partition: control.trigger?.partition ?? -1, offset: control.trigger?.offset ?? -1, atMs };
  const reason = halts ? new Halted(control.run_id, control) : undefined;
  return { runId: control.run_id, place, halted: reason, haltId: control.id, isStatus: false };
}

export class HaltListener {
  readonly #consumer: Consumer<Buffer, Buffer | null, Buffer, Buffer>;
  readonly #control: string;
  readonly #runs: string;
  readonly #halts = new Halts();
  readonly #verifier: Verifier;
  readonly #controllers = new Map<string, AbortController>();
  /** Settles when listening ends: rejects if Kafka is lost for good, after which no halt arrives. */
  ended: Promise<void> = Promise.resolve();

  constructor(options: ListenerOptions = {}) {
    const brokers = options.brokers ?? process.env.STREAMPROC_BROKERS ?? "localhost:9092";
    const prefix = options.prefix ?? process.env.STREAMPROC_TOPIC_PREFIX ?? "streamproc";
    this.#control = `${prefix}.control`;
    this.#runs = `${prefix}.runs`;
    const workers = new Keys(options.controlKey ?? process.env.STREAMPROC_CONTROL_KEY ?? "");
    const operators = new Keys(options.commandKey ?? process.env.STREAMPROC_COMMAND_KEY ?? "");
    this.#verifier = new Verifier(workers, operators, prefix);
    this.#consumer = new Consumer({
      ...options.kafka,
      clientId: "streamproc-typescript",
      groupId: `${prefix}-listener-${randomUUID()}`, // a group of its own: every listener reads every partition
      bootstrapBrokers: brokers.split(","),
      autocommit: false,
      maxWaitTime: 500,
    });
  }

  /** Connects, and returns when every halt of before is known. */
  async start(): Promise<void> {
    const [first, last] = await Promise.all(
      [ListOffsetTimestamps.EARLIEST, ListOffsetTimestamps.LATEST].map((timestamp) =>
        this.#consumer.listOffsets({ topics: [this.#runs, this.#control], timestamp }),
      ),
    );
    const begins = first!.get(this.#runs)!;
    const ends = last!.get(this.#runs)!;
    const unread = new Set([...ends.keys()].filter((partition) => begins[partition]! < ends[partition]!));
    const from = (topic: string, offsets: bigint[]) =>
      offsets.map((offset, partition) => ({ topic, partition, offset }));
    const stream = await this.#consumer.consume({
      topics: [this.#runs, this.#control],
      mode: "manual",
      offsets: [...from(this.#runs, begins), ...from(this.#control, last!.get(this.#control)!)],
    });
    await new Promise<void>((caughtUp, failed) => {
      const read = async () => {
        if (unread.size === 0) caughtUp();
        for await (const record of stream) {
          const { topic, partition, offset, key, value, headers, timestamp } = record;
          this.apply(topic === this.#runs ? "runs" : "control", { key, value, headers, timestampMs: Number(timestamp) });
          if (topic === this.#runs && offset >= ends[partition]! - 1n) unread.delete(partition);
          if (unread.size === 0) caughtUp();
        }
      };
      this.ended = read();
      this.ended.catch(failed);
    });
  }

  /** Returns a signal that is aborted when the run is halted, or is aborted already. Its `reason` is a `Halted`. */
  signal(runId: string): AbortSignal {
    let controller = this.#controllers.get(runId);
    if (!controller) {
      this.#controllers.set(runId, (controller = new AbortController()));
      const halted = this.#halts.of(runId);
      if (halted) controller.abort(halted);
    }
    return controller.signal;
  }

  /** Forgets a run that has ended. A halted one stays halted. */
  forget(runId: string): void {
    this.#controllers.delete(runId);
    this.#halts.forget(runId);
  }

  async close(): Promise<void> {
    await this.#consumer.close(true);
  }

  /** Applies a record of the topic `runs` or `control`. Whatever it is, it changes only what its author may change. */
  apply(role: "runs" | "control", record: SignedRecord): void {
    let said: Omit<News, "resumed"> | undefined;
    try {
      said = read(role, record.value ? JSON.parse(record.value.toString()) : null);
    } catch {
      return; // not from a worker
    }
    if (!said) return; // not about a halt, or a tombstone: who knows a halt keeps it
    const { workers, operators } = this.#verifier;
    const place = workers.some ? this.#verifier.place(role, record, said.runId) : said.place;
    if (!place) return;
    const signed = workers.some && operators.some;
    const resume = signed && !said.halted ? this.#verifier.resume(record, said.runId) : undefined;
    if (signed && role === "control" && !said.halted && !resume) return;
    const resumed = signed ? resume !== undefined : only(record, "operator.resume") !== undefined;
    this.#halts.apply({ ...said, place, resumed }, (halt) => !signed || this.#verifier.lifts(resume, halt));
    this.#signal(said.runId);
  }

  #signal(runId: string): void {
    const halted = this.#halts.of(runId);
    const controller = this.#controllers.get(runId);
    if (halted) controller?.abort(halted); // nothing happens if it is aborted already
    else if (controller?.signal.aborted) this.#controllers.delete(runId); // resumed: ask for a new signal
  }
}
