// Which runs are halted, according to the records read so far.
import type { ControlEvent } from "./types/control-event.js";

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

/** The event of the turns topic that a record follows from, and when the record was written. */
export interface Place {
  partition: number;
  offset: number;
  atMs: number;
}

/** What a record says about a run. */
export interface News {
  runId: string;
  place: Place;
  /** Why the run is halted; undefined: it is not. */
  halted: Halted | undefined;
  /** The decision that halts it, as a resume names it. A status knows the first one since the last resume. */
  haltId: string;
  isStatus: boolean;
  /** Whether the record has an operator's resume. */
  resumed: boolean;
}

/** A halt that a record would lift. */
export interface Lifted {
  id: string;
  partition: number;
  atMs: number;
}

interface Said {
  place: Place;
  halted: Halted | undefined;
  haltId: string;
}

const ANOTHER_LOG_MS = 60_000; // of two workers' clocks at most; deleting and filling the turns topic takes longer

/** Whether a record follows from an earlier event than another one of its partition. */
function isBefore(one: Place, other: Place): boolean {
  if (one.offset < other.offset) return one.atMs <= other.atMs + ANOTHER_LOG_MS;
  return one.offset > other.offset && other.atMs > one.atMs + ANOTHER_LOG_MS; // the topic was deleted and made again
}

/**
 * A run is halted while any partition of the turns topic says so, and what follows from one partition releases only
 * what that one has halted: a run has one home, and one that was begun elsewhere is a stranger of the same name.
 * There is no order between the topics: what follows from an older event of a partition changes nothing.
 */
export class Halts {
  readonly #said = new Map<string, Map<number, Said>>();

  /** Why a run is halted; undefined: it is not. */
  of(runId: string): Halted | undefined {
    return [...(this.#said.get(runId)?.values() ?? [])].find((said) => said.halted)?.halted;
  }

  /** Forgets a run that is not halted. */
  forget(runId: string): void {
    if (!this.of(runId)) this.#said.delete(runId);
  }

  /** Applies a record, unless it lifts a halt and `mayLift` says that it must not. */
  apply(news: News, mayLift: (halt: Lifted) => boolean): void {
    const { runId, place } = news;
    const known = this.#said.get(runId)?.get(place.partition);
    if (known && isBefore(place, known.place)) return;
    if (news.halted) {
      const first = known?.halted ? (news.isStatus && news.haltId) || known.haltId : news.haltId;
      this.#set(runId, { place, halted: news.halted, haltId: first });
    } else if (known?.halted) {
      const { haltId, place: since } = known;
      const atMs = Date.parse(known.halted.control?.at ?? "") || since.atMs;
      if (isBefore(since, place) && mayLift({ id: haltId, partition: since.partition, atMs })) {
        this.#set(runId, { place, halted: undefined, haltId: "" });
      }
    } else if (known || news.resumed) {
      this.#set(runId, { place, halted: undefined, haltId: "" }); // an older halt of this partition may come late
    }
  }

  #set(runId: string, said: Said): void {
    if (!this.#said.has(runId)) this.#said.set(runId, new Map());
    this.#said.get(runId)!.set(said.place.partition, said);
  }
}
