/**
 * pg-boss with large batches and several workers in one process.
 *
 * Settings: `batchSize` 1000 (of 500 to 5000), `localConcurrency` 2 (of 1 to 4) and `burstWhenBatchFull` (fetch again at once
 * while batches come back full), the queue in a partition of its own, supervision off while timing.
 * Its idempotency key is the job's own id: a second insert with it does nothing. That is cheaper
 * than a `singletonKey`, which would need one more unique index. Finished jobs stay as completed.
 */
import { load, numbers, payload, serve } from "./protocol.mjs";

const { PgBoss } = await load("pg-boss");
const { default: pg } = await load("pg");

const BATCH = 1000;
const WORKERS = 2;
const QUEUE = "noop";

const options = {
  throughput: {
    batchSize: BATCH,
    localConcurrency: WORKERS,
    burstWhenBatchFull: true,
    pollingIntervalSeconds: 0.5,
    notifyPollingIntervalSeconds: 0.5,
  },
  latency: { batchSize: 1, pollingIntervalSeconds: 0.5 },
};

class Boss {
  chunk = 2000;

  async setup(place, { install }) {
    const own = { supervise: false, schedule: false, useListenNotify: true, max: 10 };
    this.boss = new PgBoss({ ...place, ...own });
    this.boss.on("error", (error) => console.error(error));
    await this.boss.start();
    if (install) await this.boss.createQueue(QUEUE, { partition: true, notify: true });
    this.client = new pg.Client(place);
    await this.client.connect();
  }

  async insert(first, count, { keyed }) {
    await this.boss.insert(
      QUEUE,
      numbers(first, count).map((n) => ({
        data: payload(n),
        ...(keyed && { id: uuid(n) }),
      })),
    );
  }

  async submit(number) {
    const db = { executeSql: (text, values) => this.client.query(text, values) };
    await this.client.query("BEGIN");
    await this.boss.send(QUEUE, payload(number), { db });
    const committedAt = performance.now();
    await this.client.query("COMMIT");
    return committedAt;
  }

  async work(handle, { mode }) {
    await this.boss.work(QUEUE, options[mode], async (jobs) => {
      for (const job of jobs) await handle(job.data.n);
    });
    return () => this.boss.offWork(QUEUE);
  }

  async isSettled() {
    const { rows } = await this.client.query(
      "SELECT NOT EXISTS (SELECT FROM pgboss.job WHERE name = $1 AND state < 'completed') AS settled",
      [QUEUE],
    );
    return rows[0].settled;
  }
}

const uuid = (n) => `00000000-0000-4000-8000-${n.toString(16).padStart(12, "0")}`;

await serve(new Boss());
