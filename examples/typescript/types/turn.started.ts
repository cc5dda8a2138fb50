/* Made by make_types.mjs from schemas/turn.started.schema.json: change that file, not this one. */

/**
 * A node starts a turn. The turn's clock runs until a turn of this node (and `task_id`) ends.
 */
export interface RawTurnStarted {
  type?: "turn.started";
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
}
