// The store's states, one after the other: rates, and the last half minute. Knows nothing of how they are drawn.

const WINDOW_S = 30;
const RETRY_MS = 1000;
const EVERY_MS = 1000;
const SILENCE_MS = 6000;

/** Listens to the daemon: `show(state)` for each state, `tell(word)` on connection ("live") and loss ("gone"). */
export class Stream {
  constructor(show, tell) {
    this.show = show;
    this.tell = tell;
    this.history = [];
    this.watchdog = 0;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
  }
  open() {
    this.close();
    this.source = new EventSource(`/api/stream?every=${EVERY_MS}`);
    this.source.onmessage = (event) => {
      this.guard();
      this.tell("live");
      this.take(JSON.parse(event.data));
    };
    this.source.onerror = () => this.lost();
    this.guard();
  }
  close() {
    clearTimeout(this.watchdog);
    clearTimeout(this.retry);
    this.source?.close();
    this.source = null;
  }
  /** A silent connection counts as lost. */
  guard() {
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => this.lost(), SILENCE_MS);
  }
  lost() {
    this.close();
    this.tell("gone");
    this.retry = setTimeout(() => this.open(), RETRY_MS);
  }
  take(now) {
    const last = this.history.at(-1);
    if (last && (last.store !== now.store || now.uptime_s <= last.uptime_s)) this.history = [];
    this.history.push(now);
    while (this.history.length > 2 && now.uptime_s - this.history[0].uptime_s > WINDOW_S) this.history.shift();
    this.show(withRates(now, this.history));
  }
}

const flowKey = (flow) => `${flow.from}→${flow.to}:${flow.why}`;
const latencyKey = (latency) => `${latency.what}:${latency.tier}`;

function index(list, key) {
  return new Map((list ?? []).map((item) => [key(item), item]));
}

/** The state with rates since the one two before (a little smoother than since the last), and recent latencies. */
function withRates(now, history) {
  const before = history.at(-3) ?? history[0];
  const first = history[0];
  const elapsed = now.uptime_s - before.uptime_s;
  const rate = (value, old) => (elapsed > 0 ? Math.max(0, value - (old ?? 0)) / elapsed : 0);
  const flows = index(before.flows, flowKey);
  const clients = index(before.clients, (client) => client.session);
  const latencies = index(first === now ? [] : first.latencies, latencyKey);
  return {
    ...now,
    flows: now.flows.map((flow) => ({ ...flow, key: flowKey(flow), rate: rate(flow.bytes, flows.get(flowKey(flow))?.bytes) })),
    clients: now.clients.map((client) => {
      const old = clients.get(client.session);
      return {
        ...client,
        read_rate: rate(client.read_bytes, old?.read_bytes),
        write_rate: rate(client.written_bytes, old?.written_bytes),
        request_rate: rate(client.requests, old?.requests),
      };
    }),
    latencies: now.latencies.map((latency) => recent(latency, latencies.get(latencyKey(latency)), first !== now)),
    requests_rate: rate(now.counters.requests, before.counters.requests),
  };
}

/** A latency without what `old` has counted. */
function recent(latency, old, known) {
  const earlier = new Map(old?.buckets ?? []);
  const fresh = known
    ? latency.buckets.map(([end, count]) => [end, count - (earlier.get(end) ?? 0)]).filter(([, count]) => count > 0)
    : [];
  return { ...latency, key: latencyKey(latency), fresh, p50: quantile(fresh, 0.5), p99: quantile(fresh, 0.99) };
}

/** Start of a bucket that ends at `end`: there are four to each doubling. */
export function bucketBegin(end) {
  const octave = 2 ** Math.floor(Math.log2(end - 1));
  return Math.max(0, end - octave / 4);
}

function quantile(buckets, part) {
  const all = buckets.reduce((sum, [, count]) => sum + count, 0);
  if (all === 0) return null;
  let seen = 0;
  for (const [end, count] of buckets) {
    seen += count;
    if (seen >= all * part) return (bucketBegin(end) + end) / 2;
  }
  return null;
}
