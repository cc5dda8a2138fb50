// Publishes raw turns. The worker makes their fingerprints, so what you put into a turn is on the topic until its
// retention ends: send what the worker needs to see, and leave out what must stay here.
import { randomUUID } from "node:crypto";
import {
  type BaseOptions,
  compatibilityPartitioner,
  type MessageToProduce,
  ProduceAcks,
  Producer,
  stringSerializers,
} from "@platformatic/kafka";
import type { RawRunFinished } from "./types/run.finished.js";
import type { RawRunStarted } from "./types/run.started.js";
import type { RawTurnStarted } from "./types/turn.started.js";
import type { RawTurn } from "./types/turn.js";
import type { RawUserMessage } from "./types/user.message.js";

type Typed<Event extends { type?: string }> = Event & { type: NonNullable<Event["type"]> };

/** An event of a run. Without a `type` it is a turn. */
export type RunEvent =
  | RawTurn
  | Typed<RawRunStarted>
  | Typed<RawTurnStarted>
  | Typed<RawRunFinished>
  | Typed<RawUserMessage>;

export interface PublisherOptions {
  brokers?: string;
  prefix?: string;
  clientId?: string;
  /** `tls` and `sasl`, for example. */
  kafka?: Partial<BaseOptions>;
}

const BATCH_MAX = 20; // a run remembers the ids of its last 24 events: of those, a batch that is sent twice counts once

interface Waiting {
  message: MessageToProduce<string, string, string, string>;
  resolve: () => void;
  reject: (error: unknown) => void;
}

export class TurnPublisher {
  readonly #producer: Producer<string, string, string, string>;
  readonly #topic: string;
  readonly #clientId: string;
  readonly #waiting: Waiting[] = [];
  #sending: Promise<void> | undefined;

  constructor(options: PublisherOptions = {}) {
    const brokers = options.brokers ?? process.env.STREAMPROC_BROKERS ?? "localhost:9092";
    this.#topic = `${options.prefix ?? process.env.STREAMPROC_TOPIC_PREFIX ?? "streamproc"}.turns`;
    this.#clientId = options.clientId ?? process.env.STREAMPROC_CLIENT_ID ?? "streamproc-typescript";
    this.#producer = new Producer({
      ...options.kafka,
      clientId: this.#clientId,
      bootstrapBrokers: brokers.split(","),
      serializers: stringSerializers,
      // Java's partitioner, which all publishers of a run must share. The default of this client is not the same: it
      // keeps the sign bit of the hash, which changes the partition unless their number is a power of two.
      partitioner: compatibilityPartitioner,
      acks: ProduceAcks.ALL,
      // This client's idempotence loses events: it counts only what was acknowledged, so two sends at once, or one after
      // a send that timed out, have the same sequence number, and the broker drops the second one as a duplicate.
      // What a retry repeats has the same `event_id`, and counts once.
      idempotent: false,
    });
  }

  /**
   * Publishes an event, and returns its id once Kafka has acknowledged it. Rejects if Kafka does not: the agent decides
   * whether it goes on without being watched.
   */
  publish(event: RunEvent): Promise<string> {
    const id = event.event_id || randomUUID();
    const value = JSON.stringify({ ...event, event_id: id });
    const message = { topic: this.#topic, key: event.run_id, value, headers: { publisher: this.#clientId } };
    return new Promise((resolve, reject) => {
      this.#waiting.push({ message, resolve: () => resolve(id), reject });
      this.#sending ??= this.#send();
    });
  }

  /** Sends what is left, and disconnects. */
  async close(): Promise<void> {
    await this.#sending;
    await this.#producer.close();
  }

  /** Sends one batch at a time, so that the events of a run keep their order. */
  async #send(): Promise<void> {
    await Promise.resolve(); // what is published in the same moment goes into one batch
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, BATCH_MAX);
      try {
        await this.#producer.send({ messages: batch.map(({ message }) => message) });
        for (const { resolve } of batch) resolve();
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
    this.#sending = undefined;
  }
}
