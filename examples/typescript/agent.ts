// An agent that gets stuck, and that a halt stops: node dist/agent.js [RUN_ID]
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { Halted, HaltListener } from "./listen.js";
import { TurnPublisher } from "./publish.js";

const STEPS_MAX = 200;
const STEP_MS = 50;

/** Your agent: everything that it awaits takes the signal (`fetch` and the clients of model APIs do). */
async function step(signal: AbortSignal): Promise<string> {
  await sleep(STEP_MS, undefined, { signal });
  return "2 failed: test_login, test_logout";
}

const runId = process.argv[2] ?? randomUUID();
const turns = new TurnPublisher();
const halts = new HaltListener();
await halts.start();
const signal = halts.signal(runId);
let steps = 0;
try {
  signal.throwIfAborted(); // halted before it began
  await turns.publish({ type: "run.started", run_id: runId, workflow: "bugfix", budgets: { maxSteps: 500 } });
  for (; steps < STEPS_MAX; steps += 1) {
    const result = await step(signal);
    const tool_calls = [{ name: "run", args: { cmd: "pytest" }, result }];
    await turns.publish({ run_id: runId, node: "coder", tool_calls });
  }
  console.log(`not halted in ${steps} steps`);
  process.exitCode = 1;
} catch (error) {
  // `sleep` rejects with an AbortError; why it was aborted is in the signal.
  if (!(signal.reason instanceof Halted)) throw error;
  const { control, message } = signal.reason;
  console.log(`stopped after ${steps} steps: ${message}`);
  console.log(`next: ${(control?.suggested_actions ?? []).join(", ")}`);
} finally {
  await turns.publish({ type: "run.finished", run_id: runId, status: signal.aborted ? "halted" : "done" });
  halts.forget(runId);
  await Promise.all([turns.close(), halts.close()]);
}
