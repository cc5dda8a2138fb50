/* Made by make_types.mjs from schemas/user.message.schema.json: change that file, not this one. */

/**
 * A person sent a message.
 */
export interface RawUserMessage {
  type?: "user.message";
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
