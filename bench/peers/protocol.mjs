/**
 * The child's half of the wire for Node: the same verbs and the same clock rules as protocol.py.
 * A queue brings `chunk`, `setup`, `insert`, `submit`, `work` and `isSettled`.
 */
import { writeSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

export const PAYLOAD_BYTES = 200;
const PROGRESS_MS = 500;
const SETTLED_POLL_MS = 20;
const SETTLED_MS_MAX = 60_000;
const LATENCY_GAP_MS = [30, 70];
const LATENCY_WARM_UP = 5;
const LATENCY_MS_MAX = 10_000;
const WORKER_START_MS = 1_000;

// Libraries may log; stdout belongs to the wire.
console.log = console.info = console.debug = (...args) => console.error(...args);

const require = createRequire(`${process.env.BENCH_NODE_DIR}/package.json`);

/** Import a package from the peers' own environment, not from beside this file. */
export const load = (name) => import(pathToFileURL(require.resolve(name)));

/** Return a payload that is PAYLOAD_BYTES long as compact JSON. */
export function payload(number) {
  const head = `{"n":${number},"pad":""}`.length;
  return { n: number, pad: "x".repeat(PAYLOAD_BYTES - head) };
}

/** Return numbers from first to first + count. */
export const numbers = (first, count) => Array.from({ length: count }, (_, i) => first + i);

/** Answer verbs from stdin until it closes. */
export async function serve(queue) {
  const verbs = {
    setup: async ({ place, install }) => (await queue.setup(place, { install }), {}),
    fill: (args) => insert(queue, { ...args, keyed: false }),
    enqueue: (args) => insert(queue, { ...args, keyed: true }),
    drain: (args) => drain(queue, args),
    latency: (args) => latency(queue, args),
  };
  for await (const line of createInterface({ input: process.stdin })) {
    const { verb, ...args } = JSON.parse(line);
    try {
      say({ ok: await verbs[verb](args) });
    } catch (error) {
      say({ error: `${error.name}: ${error.message}` });
      console.error(error);
      process.exit(1);
    }
  }
  process.exit(0);
}

function say(message) {
  const line = Buffer.from(`${JSON.stringify(message)}\n`);
  for (let done = 0; done < line.length; ) {
    try {
      done += writeSync(1, line, done);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error; // the pipe is full; the bench is reading it
    }
  }
}

async function insert(queue, { first, items, keyed }) {
  const started = performance.now();
  let shown = started;
  for (let offset = 0; offset < items; offset += queue.chunk) {
    await queue.insert(first + offset, Math.min(queue.chunk, items - offset), { keyed });
    if (performance.now() - shown > PROGRESS_MS) {
      shown = performance.now();
      say({ progress: offset + queue.chunk });
    }
  }
  return { items, seconds: (performance.now() - started) / 1000 };
}

async function drain(queue, { items, whole, seconds_max }) {
  let handled = 0;
  let reached = false;
  const { promise, resolve } = Promise.withResolvers();
  const handle = async () => {
    if (++handled === items) {
      reached = true;
      resolve();
    }
  };
  const started = performance.now();
  const shower = setInterval(() => say({ progress: handled }), PROGRESS_MS);
  const stop = await queue.work(handle, { mode: "throughput" });
  const timeUp = new AbortController();
  await Promise.race([
    promise,
    sleep(seconds_max * 1000, null, { signal: timeUp.signal }).catch(() => null),
  ]);
  timeUp.abort();
  clearInterval(shower);
  if (whole && reached) await settled(queue);
  const result = {
    items: handled,
    seconds: (performance.now() - started) / 1000,
    timed_out: handled < items,
  };
  await stop();
  return result;
}

async function settled(queue) {
  const until = performance.now() + SETTLED_MS_MAX;
  while (!(await queue.isSettled())) {
    if (performance.now() > until) throw new Error("not settled in time");
    await sleep(SETTLED_POLL_MS);
  }
}

async function latency(queue, { samples }) {
  let started = Promise.withResolvers();
  const stop = await queue.work(async () => started.resolve(performance.now()), { mode: "latency" });
  const waits = [];
  await sleep(WORKER_START_MS);
  for (let number = 0; number < samples + LATENCY_WARM_UP; number++) {
    await sleep(LATENCY_GAP_MS[0] + Math.random() * (LATENCY_GAP_MS[1] - LATENCY_GAP_MS[0]));
    started = Promise.withResolvers();
    const committedAt = await queue.submit(number);
    const startedAt = await Promise.race([started.promise, sleep(LATENCY_MS_MAX, null, { ref: false })]);
    if (startedAt === null) throw new Error("an item was not started in time");
    waits.push(startedAt - committedAt);
  }
  await stop();
  return { milliseconds: waits.slice(LATENCY_WARM_UP) };
}
