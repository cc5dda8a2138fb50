// Listens for halts, and gives each run an AbortSignal that a halt aborts.
import { randomUUID } from "node:crypto";
import { type BaseOptions, Consumer, ListOffsetTimestamps, type Message } from "@platformatic/kafka";
import type { ControlEvent } from "./types/control-event.js";
import type { RunStatus } from "./types/run-status.js";

/** The `reason` of an aborted signal. */
export class Halted extends Error {
  override name = "Halted";

  constructor(
    readonly runId: string,
    readonly control: ControlEvent | undefined,
  ) {
    super(control ? `run ${runId} is halted (${control.code}): ${control.message}` : `run ${runId} is halted`);
  }
}

export interface ListenerOptions {
  brokers?: string;
  prefix?: string;
  /** `tls` and `sasl`, for example. */
  kafka?: Partial<BaseOptions>;
}

/** What is known of a run. `offset` is that of the newest event of the run on which a record that was read is based. */
interface Known {
  offset: number;
  controller: AbortController;
}

type Record = Message<Buffer, Buffer | null, Buffer, Buffer>;

export class HaltListener {
  readonly #consumer: Consumer<Buffer, Buffer | null, Buffer, Buffer>;
  readonly #control: string;
  readonly #runs: string;
  readonly #known = new Map<string, Known>();
  /** Settles when listening ends: rejects if Kafka is lost for good, after which no halt arrives. */
  ended: Promise<void> = Promise.resolve();

  constructor(options: ListenerOptions = {}) {
    const brokers = options.brokers ?? process.env.STREAMPROC_BROKERS ?? "localhost:9092";
    const prefix = options.prefix ?? process.env.STREAMPROC_TOPIC_PREFIX ?? "streamproc";
    this.#control = `${prefix}.control`;
    this.#runs = `${prefix}.runs`;
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
          this.#apply(record);
          const { topic, partition, offset } = record;
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
    return this.#of(runId).controller.signal;
  }

  /** Forgets a run that has ended. */
  forget(runId: string): void {
    this.#known.delete(runId);
  }

  async close(): Promise<void> {
    await this.#consumer.close(true);
  }

  #of(runId: string): Known {
    let known = this.#known.get(runId);
    if (!known) this.#known.set(runId, (known = { offset: -1, controller: new AbortController() }));
    return known;
  }

  #apply(record: Record): void {
    let value: unknown;
    try {
      value = record.value ? JSON.parse(record.value.toString()) : null;
    } catch {
      return; // not from a worker
    }
    if (record.topic === this.#runs) this.#status(record.key.toString(), value as RunStatus | null);
    else if (value) this.#decision(value as ControlEvent);
  }

  /** Applies a decision. It arrives before the status that it leads to. */
  #decision(control: ControlEvent): void {
    if (control.type === "fleet.state") return; // a command to the whole fleet, of which workers report
    const offset = control.trigger?.offset ?? -1;
    if (control.severity === "halt") this.#set(control.run_id, offset, new Halted(control.run_id, control));
    else if (control.type === "run.resumed") this.#set(control.run_id, offset, undefined);
  }

  /** Applies a status. Without one, the run is over and was evicted. */
  #status(runId: string, status: RunStatus | null): void {
    if (!status) {
      if (this.#known.get(runId)?.controller.signal.aborted) this.#known.delete(runId);
      return;
    }
    const halted = status.status === "halted" || (status.status === "finished" && status.halt);
    this.#set(runId, status.offset ?? -1, halted ? new Halted(runId, status.halt ?? undefined) : undefined);
  }

  /** There is no order between the two topics: what is based on an older event of the run changes nothing. */
  #set(runId: string, offset: number, halted: Halted | undefined): void {
    const known = this.#known.get(runId);
    if (known && offset >= 0 && offset < known.offset) return;
    if (halted) {
      this.#of(runId).offset = offset;
      this.#of(runId).controller.abort(halted); // nothing happens if it is aborted already
    } else if (known?.controller.signal.aborted) {
      this.#known.set(runId, { offset, controller: new AbortController() }); // resumed: ask for a new signal
    } else if (known) {
      known.offset = offset;
    }
  }
}
