/* Made by make_types.mjs from schemas/run.started.schema.json: change that file, not this one. */

/**
 * A run starts, with its graph, budgets and scope. With `parent_run_id`, another run has started it.
 */
export interface RawRunStarted {
  type?: "run.started";
  /**
   * one execution of a workflow; the Kafka key
   */
  run_id: string;
  node?: string;
  /**
   * two events with the same id are one event
   */
  event_id?: string;
  /**
   * when it happened: RFC 3339, or epoch milliseconds
   */
  at?: string | number | null;
  /**
   * the publisher's own ordinal; not interpreted
   */
  seq?: number | null;
  workflow?: string;
  tenant?: string;
  user?: string;
  tier?: string;
  agent?: string;
  task_id?: string;
  session_id?: string;
  parent_run_id?: string;
  /**
   * copied to the control event, never interpreted
   */
  labels?: {
    [k: string]: string;
  } | null;
  /**
   * shows that the event comes from the run's own publishers, if it is bound
   */
  token?: string;
  /**
   * shows that the run belongs to its session, if its runs show that
   */
  session_token?: string;
  graph?: {
    [k: string]: unknown;
  } | null;
  /**
   * limits of this run, such as maxSteps; money in USD
   */
  budgets?: {
    [k: string]: string | number;
  } | null;
  /**
   * what the run is asked to do; only hashes of it are sent
   */
  prompt?: string | null;
}
