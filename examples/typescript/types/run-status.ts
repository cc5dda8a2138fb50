/* Made by make_types.mjs from schemas/run-status.schema.json: change that file, not this one. */

/**
 * The complete latest status of a run, as the compacted ``runs`` topic keeps it.
 */
export interface RunStatus {
  run_id: string;
  status: "running" | "halted" | "finished";
  /**
   * the highest so far; does not fall while the run is halted
   */
  severity?: "info" | "warn" | "halt";
  workflow?: string | null;
  tenant?: string | null;
  user?: string | null;
  /**
   * the decision that halted the run
   */
  halt?: ControlEvent | null;
  turns?: number;
  /**
   * cycle iterations, such as `Loop 3/8`
   */
  badge?: string | null;
  failing_trend?: number[];
  total_tokens?: number;
  cost_usd_micro?: number;
  at?: string | null;
  /**
   * budgets that the run declared above the policy's limit, which therefore applies
   */
  capped_budgets?: string[];
  /**
   * events that were refused because they lack the token of the run
   */
  strangers?: number;
  /**
   * handovers in a row without progress on each edge, such as planner_to_researcher; counted where the policy counts each edge apart, as `planner` does
   */
  loop_counters?: {
    [k: string]: number;
  };
  /**
   * cycles of its graph that it has entered
   */
  cycles?: CycleStatus[];
  /**
   * tasks that have ended while the run goes on, and were not resumed: at most eight
   */
  ended_tasks?: EndedTask[];
  /**
   * partition of the turns topic; -1: not on Kafka
   */
  partition?: number;
  /**
   * offset of the run's last event there: a status with a lower one is older
   */
  offset?: number;
  /**
   * whether only commands name this run: no publisher has sent an event of it
   */
  unpublished?: boolean;
  /**
   * session that it belongs to; none: it is the root of its own, if it has children
   */
  session?: string | null;
  /**
   * run that started it
   */
  parent_run_id?: string | null;
}
/**
 * A decision about a run. The same log and policy give the same `id`, so you can recognise duplicates.
 */
export interface ControlEvent {
  id: string;
  type:
    | "loop.warning"
    | "loop.halted"
    | "budget.level"
    | "run.timed_out"
    | "information.none"
    | "transition.blocked"
    | "delegation.rejected"
    | "task.ended"
    | "task.escalated"
    | "run.resumed"
    | "fleet.state"
    | "notification"
    | "decision.recorded"
    | "provider.state";
  run_id: string;
  /**
   * the detector's stable code, such as LOOP002
   */
  code: string;
  severity: "info" | "warn" | "halt";
  /**
   * one sentence for a person, and for the model in a nudge
   */
  message: string;
  workflow?: string | null;
  tenant?: string | null;
  user?: string | null;
  cycle_id?: string | null;
  node?: string | null;
  task_id?: string | null;
  halt_reason?: ("budget_exceeded" | "stalled" | "oscillating" | "repeated_error" | "user_stop") | null;
  terminal_status?:
    ("aborted_stuck" | "budget_exceeded" | "timed_out" | "blocked" | "stalled" | "escalated" | "stopped") | null;
  /**
   * why the run stops, as a short name: cost_budget_exceeded, max_rounds, hard_cap_15_rounds, consensus (a good stop), recursion_limit, timeout, unsafe_cycle, or the kind of the evidence
   */
  stop_reason?: string | null;
  /**
   * the action that the policy sets
   */
  action?:
    | (
        | "warn"
        | "pause"
        | "switch_to_interactive"
        | "spawn_reviewer"
        | "retry_with_new_provider"
        | "force_synthesis"
        | "snitch"
        | "ask_human"
        | "done_partial"
        | "halt"
        | "kill"
        | "spawn_reconciliation_node"
        | "tighten_context_pack"
        | "update_docs_contract"
      )
    | null;
  /**
   * alternative actions, best first
   */
  suggested_actions?: string[];
  evidence?: ControlEvidence | null;
  trigger?: ControlTrigger | null;
  /**
   * turn index at which the loop began
   */
  onset?: number | null;
  policy?: ControlPolicy | null;
  /**
   * log time of the trigger, RFC 3339
   */
  at?: string | null;
  labels?: {
    [k: string]: string;
  } | null;
  /**
   * iterations of the cycle that has most, such as `Loop 3/8`
   */
  badge?: string | null;
  /**
   * the new state of a provider's breaker; `run_id` is then provider:NAME
   */
  provider?: ProviderState | null;
}
/**
 * The evidence of a detector. Turns are indices from 0; hashes have 16 hex digits; lists end with the latest.
 */
export interface ControlEvidence {
  /**
   * the detector's name, such as repeated_call
   */
  kind: string;
  /**
   * how often it occurred in this loop
   */
  count?: number | null;
  /**
   * length of the period, in steps
   */
  period?: number | null;
  /**
   * iterations of the cycle so far
   */
  iteration?: number | null;
  /**
   * turn indices of the occurrences counted
   */
  turns?: number[] | null;
  /**
   * how the occurrences match
   */
  match?: ("exact" | "normalised") | null;
  tool?: string | null;
  args_hash?: string | null;
  /**
   * redacted excerpt of the arguments, if the publisher sends content (`include_content`)
   */
  args_excerpt?: string | null;
  result_hash?: string | null;
  /**
   * content hashes of the loop
   */
  hashes?: string[] | null;
  /**
   * the handover: from node, to node
   */
  edge?: string[] | null;
  /**
   * cycles of the declared graph without an exit, each by its first nodes; count has their number
   */
  cycles?: string[][] | null;
  /**
   * failing tests at the trigger
   */
  failing?: number | null;
  /**
   * the first failing test ids
   */
  failing_tests?: string[] | null;
  /**
   * failing counts of the last results
   */
  failing_trend?: number[] | null;
  /**
   * the best value so far
   */
  best?: number | null;
  /**
   * redacted excerpt of the first error
   */
  first_error?: string | null;
  /**
   * spent from a budget, in `unit`
   */
  used?: number | null;
  /**
   * the budget, in `unit`
   */
  limit?: number | null;
  /**
   * who set the limit: run, tier, policy, grant (of an operator), delegation, session (another of its runs), detector (its parameters), hard_cap
   */
  limit_from?: string | null;
  /**
   * turns, iterations, ms, micro_usd, tokens, or what a session's tree counts
   */
  unit?: string | null;
  /**
   * the level of a budget's escalation, such as restrict
   */
  rung?: string | null;
  /**
   * whose budget, or who is killed: session:ID, user:ID or tenant:ID
   */
  account?: string | null;
  /**
   * total, or the last hour, day or month
   */
  window?: string | null;
  /**
   * current rate of spending, in `unit`
   */
  per_minute?: number | null;
  /**
   * turns without a known price; `used` lacks their cost
   */
  unpriced?: number | null;
  /**
   * the run of the session that it is about, such as a halted child
   */
  about?: string | null;
  /**
   * other runs of the session: siblings that have finished
   */
  runs?: string[] | null;
  /**
   * who issued the command
   */
  by?: string | null;
  /**
   * the reason of a command, or why a deliberation stops
   */
  reason?: string | null;
  /**
   * amounts added to budgets, in their units
   */
  grant?: {
    [k: string]: number;
  } | null;
  /**
   * the last outputs of the run
   */
  output_hashes?: string[] | null;
  /**
   * the last artifacts of the run
   */
  artifact_hashes?: string[] | null;
  /**
   * the last failing-test sets of the run
   */
  failing_signatures?: string[] | null;
  /**
   * the task's state before
   */
  from_state?: string | null;
  /**
   * the state that the task entered, or should have entered
   */
  to_state?: string | null;
  /**
   * the task's current state on the board
   */
  last_valid?: string | null;
  /**
   * the guard that the transition requires
   */
  guard?: string | null;
  /**
   * items of the guard that are missing or fail
   */
  missing?: string[] | null;
  /**
   * number of attempts
   */
  attempts?: number | null;
  /**
   * the agent that owns the task or made the attempt
   */
  agent?: string | null;
  module?: string | null;
  phase?: string | null;
  /**
   * the tasks of a batch, or the failed tasks
   */
  tasks?: string[] | null;
  /**
   * the task at which a chain is blocked
   */
  root?: string | null;
  /**
   * the blocked tasks, starting at the root
   */
  chain?: string[] | null;
  /**
   * the new priority of the root
   */
  priority?: string | null;
  failure_class?: string | null;
  validator?: string | null;
  /**
   * the verdicts against a task, oldest first
   */
  rejections?: ControlRejection[] | null;
  /**
   * the choices of a person
   */
  options?: string[] | null;
  /**
   * the last known state of a run that timed out
   */
  snapshot?: ControlSnapshot | null;
  /**
   * the codes of different warnings about one node, the latest last
   */
  signs?: string[] | null;
  /**
   * redacted excerpt of a repeated query, where content is published
   */
  query?: string | null;
  /**
   * further facts, at most 16; of a plug-in, texts are redacted excerpts of up to 256 characters
   */
  details?: {
    [k: string]: string | number;
  } | null;
}
/**
 * A verdict against a task.
 */
export interface ControlRejection {
  validator?: string;
  /**
   * redacted excerpt of the report
   */
  reason?: string;
}
/**
 * The last known state of a run that timed out, for saving or resuming its work.
 */
export interface ControlSnapshot {
  turns?: number;
  /**
   * the highest round that was reported
   */
  round?: number | null;
  /**
   * cycle iterations, such as `Loop 3/8`
   */
  badge?: string | null;
  failing_trend?: number[] | null;
  total_tokens?: number;
  cost_usd_micro?: number;
  /**
   * node of the last turn; the name may be cut off
   */
  last_node?: string | null;
  /**
   * log time of the run's last event
   */
  heard_at?: string | null;
}
/**
 * The event that caused a decision, and its position in the log.
 */
export interface ControlTrigger {
  event_id?: string;
  /**
   * turn index in the run, from 0
   */
  turn?: number | null;
  topic?: string | null;
  partition?: number | null;
  offset?: number | null;
}
/**
 * The policy that decided: its name, version and content hash.
 */
export interface ControlPolicy {
  name: string;
  version: string;
  hash: string;
}
/**
 * The state of one breaker. Times are epoch milliseconds of the log's clock; a higher `number` is newer.
 */
export interface ProviderState {
  /**
   * provider and model, such as anthropic/claude-sonnet-4-5
   */
  provider: string;
  state: "closed" | "open" | "half_open";
  /**
   * changes of this breaker so far
   */
  number?: number;
  /**
   * log time of the latest call or change
   */
  at_ms?: number;
  /**
   * when it became closed, open or half-open
   */
  since_ms?: number;
  /**
   * open: when probes may go; half_open: when they must have brought an outcome; closed: 0
   */
  until_ms?: number;
  /**
   * why, as a sentence for people
   */
  reason?: string;
  /**
   * what failed last, such as 429
   */
  why?: string;
  /**
   * calls in the window
   */
  calls?: number;
  /**
   * how many of them the provider did not answer: 429, 5xx, time-outs
   */
  failures?: number;
  /**
   * how many runs these are of; more than 64 are not told apart
   */
  runs?: number;
  /**
   * mean duration of the calls, where durations are known
   */
  mean_ms?: number;
  /**
   * openings in a row; each doubles the cool-down
   */
  level?: number;
  /**
   * half-open episodes so far
   */
  episode?: number;
  /**
   * ids of the callers that may probe in this episode
   */
  permits?: string[];
  /**
   * callers that wait and have asked for a permit
   */
  waiting?: number;
  /**
   * whether the fleet's budget of retries has something left
   */
  retries_left?: boolean;
  /**
   * callers come back at random moments within this time
   */
  spread_ms?: number;
}
/**
 * What a run keeps of one cycle of its graph.
 */
export interface CycleStatus {
  /**
   * id of the cycle: a hash of its nodes and edges
   */
  cycle: string;
  /**
   * completed so far
   */
  iterations: number;
  /**
   * of its own nodes, against `maxCycleRuntimeMs`
   */
  runtime_ms?: number;
  /**
   * of its own nodes, against `maxCycleCost`
   */
  cost_usd_micro?: number;
  /**
   * hashes in each of its windows (steps, statements, artifacts, narration); none as long as all turns belong to the cycle: its windows are those of the run
   */
  windows?: {
    [k: string]: number;
  };
}
/**
 * A task that has ended while its run goes on: guards for it, and for its agent, refuse work.
 */
export interface EndedTask {
  task_id: string;
  terminal_status: "aborted_stuck" | "budget_exceeded" | "timed_out" | "blocked" | "stalled" | "escalated" | "stopped";
  /**
   * of the rule that ended it
   */
  code: string;
  /**
   * that owns it; empty: not known
   */
  agent?: string;
}
