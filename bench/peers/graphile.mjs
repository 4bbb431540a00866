/**
 * graphile-worker with its batched local queue, as its performance page recommends for throughput:
 * `localQueue.size` 500, `completeJobBatchDelay`/`failJobBatchDelay` 0 (10 and 50 ms were no faster),
 * 24 jobs at once (10 were as good, 100 and more slower). It keeps no history: a finished job is
 * deleted. For latency: no local queue and no batching, its defaults otherwise.
 */
import { load, numbers, payload, serve } from "./protocol.mjs";

const { Logger, makeWorkerUtils, run } = await load("graphile-worker");
const { default: pg } = await load("pg");

const LOCAL_QUEUE = 500;
const CONCURRENCY = 24;
const BATCH_DELAY_MS = 0;
const quiet = new Logger(() => () => {});

const presets = {
  throughput: {
    concurrentJobs: CONCURRENCY,
    localQueue: { size: LOCAL_QUEUE },
    completeJobBatchDelay: BATCH_DELAY_MS,
    failJobBatchDelay: BATCH_DELAY_MS,
  },
  latency: { concurrentJobs: 4 },
};

class Graphile {
  chunk = 2000;

  async setup(place, { install }) {
    this.pool = new pg.Pool({ ...place, max: 12 });
    this.pool.on("error", () => {});
    this.utils = await makeWorkerUtils({ pgPool: this.pool, logger: quiet });
    if (install) await this.utils.migrate();
    this.client = await this.pool.connect();
  }

  // jobKey is graphile-worker's idempotency key: the same key again replaces the job.
  async insert(first, count, { keyed }) {
    await this.utils.addJobs(
      numbers(first, count).map((n) => ({
        identifier: "noop",
        payload: payload(n),
        ...(keyed && { jobKey: `key-${n}` }),
      })),
    );
  }

  async submit(number) {
    await this.client.query("BEGIN");
    await this.client.query("SELECT graphile_worker.add_job('noop', $1::json)", [payload(number)]);
    const committedAt = performance.now();
    await this.client.query("COMMIT");
    return committedAt;
  }

  async work(handle, { mode }) {
    const runner = await run({
      preset: { worker: presets[mode] },
      pgPool: this.pool,
      logger: quiet,
      noHandleSignals: true,
      parsedCronItems: [],
      taskList: { noop: async (job) => handle(job.n) },
    });
    return () => runner.stop();
  }

  async isSettled() {
    const { rows } = await this.client.query(
      "SELECT NOT EXISTS (SELECT FROM graphile_worker._private_jobs) AS settled",
    );
    return rows[0].settled;
  }
}

await serve(new Graphile());
