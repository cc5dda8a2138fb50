/* Made by make_types.mjs from schemas/turn.schema.json: change that file, not this one. */

/**
 * One turn: what one node of a workflow did.
 */
export interface RawTurn {
  type?: "turn";
  /**
   * one execution of a workflow; the Kafka key
   */
  run_id: string;
  /**
   * the graph node (agent, role) that took the turn
   */
  node: string;
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
  /**
   * the node whose output this turn took as input
   */
  from?: string;
  /**
   * the final message of the turn; also accepted as content
   */
  output?: string | null;
  structured_output?: unknown;
  /**
   * the patch or file content that the turn produced
   */
  artifact?:
    | string
    | {
        [k: string]: string;
      }
    | null;
  /**
   * Markdown that the turn produced
   */
  docs?: string | null;
  tests?: TestReport | null;
  /**
   * metrics that should improve
   */
  progress?: {
    [k: string]: number;
  } | null;
  errors?: (ErrorReport | string)[] | ErrorReport | string | null;
  /**
   * @maxItems 1000
   */
  tool_calls?: ToolCall[];
  /**
   * the question of a research node
   */
  query?: string | null;
  /**
   * what this turn answers, such as a prompt or an item, without the conversation before it
   */
  request?: unknown;
  decision?: RoutingDecision | null;
  round?: number | null;
  convergence?: number | null;
  consensus?: number | null;
  usage?: UsageReport | null;
  model?: string;
  provider?: string;
  /**
   * why the model's answer ended, in the word of its API; or empty
   */
  stop_reason?: string;
  /**
   * of a review: all that are open; [] says that there are none
   */
  findings?: (ReviewFinding | string)[] | null;
}
/**
 * A verifier's result: ids of the failing tests, and how many tests passed and exist.
 */
export interface TestReport {
  /**
   * ids of the failing tests; empty if none fails
   */
  failed?: string[] | null;
  passed?: number | null;
  total?: number | null;
}
/**
 * One error of a turn.
 */
export interface ErrorReport {
  message: string;
  class?: string;
  /**
   * whether a retry is right, as after an infrastructure failure; default: the text decides
   */
  retryable?: boolean | null;
}
/**
 * One tool call. The calls of one turn are a multiset: parallel siblings are not repeats.
 */
export interface ToolCall {
  name: string;
  /**
   * the arguments; also accepted as arguments, input or parameters
   */
  args?: unknown;
  /**
   * what the tool returned; also accepted as output or content
   */
  result?: unknown;
  /**
   * why the call failed; true if the result says why
   */
  error?: unknown;
  /**
   * the call's id at the model's API; not interpreted
   */
  id?: string | null;
  /**
   * whether a retry is right, as after an infrastructure failure; default: the text decides
   */
  retryable?: boolean | null;
}
/**
 * The decision of a routing node.
 */
export interface RoutingDecision {
  next: string;
  reason?: string;
}
/**
 * Measured spend of one turn. The usage names of model APIs are accepted, too.
 */
export interface UsageReport {
  /**
   * tokens sent to the model, including cached ones
   */
  input_tokens?: number;
  output_tokens?: number;
  /**
   * how many of the input tokens were read from a cache
   */
  cached_tokens?: number;
  total_tokens?: number;
  /**
   * USD as decimal text or number; kept in micro-USD
   */
  cost_usd?: string | number | null;
  duration_ms?: number;
  /**
   * how many of the input tokens were written to a cache
   */
  cache_write_tokens?: number;
}
/**
 * A finding of a review.
 */
export interface ReviewFinding {
  id: string | number;
  /**
   * critical, high, medium, low or info; words such as blocker, major, minor, P1 are understood
   */
  severity?: string | number;
  /**
   * such as open or resolved; one that is resolved is not open any more
   */
  status?: string;
}
