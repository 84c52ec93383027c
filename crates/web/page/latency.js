// Histograms of latencies on one time axis, with the median and the 99th percentile.

import { count, duration } from "./format.js";
import { html, keyed, say, set, svg } from "./draw.js";
import { bucketBegin } from "./state.js";

const FROM_NS = 64;
const TO_NS = 10e9;
const HIGH = 40;
const TICKS = [[1e3, "1 µs"], [1e6, "1 ms"], [1e9, "1 s"]];
const TITLES = {
  get: "get", put: "put", apply: "engine: changes", ask: "engine: questions", lease: "engine: space", flush: "flush",
  sync_journal: "journal synced", sync_devices: "tiers synced", copy: "batch moved", checkpoint: "checkpoint",
  make_journal: "journal file made", verify: "batch checked", reopen: "tier opened again",
};

export class Latency {
  constructor(box) {
    this.box = box;
  }
  show(state) {
    const order = Object.keys(TITLES);
    const shown = [...state.latencies].sort((a, b) => order.indexOf(a.what) - order.indexOf(b.what) || String(a.tier).localeCompare(String(b.tier)));
    keyed(this.box, shown, (latency) => latency.key, make, (row, latency) => update(row, latency));
  }
}

/** Position on the axis, as a share. */
function at(ns) {
  return Math.max(0, Math.min(1, Math.log(Math.max(ns, FROM_NS) / FROM_NS) / Math.log(TO_NS / FROM_NS)));
}

function make() {
  const grid = TICKS.map(([ns, word]) => svg("g", { class: "tick" }, [
    svg("line", { x1: at(ns) * 1000, x2: at(ns) * 1000, y1: 0, y2: HIGH, "vector-effect": "non-scaling-stroke" }),
  ]));
  const plot = svg("svg", { viewBox: `0 0 1000 ${HIGH}`, preserveAspectRatio: "none", "aria-hidden": "true", height: HIGH }, [
    svg("g", {}, grid), svg("path", { class: "all" }), svg("path", { class: "fresh" }),
    svg("line", { class: "p50", y1: 0, y2: HIGH, "vector-effect": "non-scaling-stroke" }),
    svg("line", { class: "p99", y1: 0, y2: HIGH, "vector-effect": "non-scaling-stroke" }),
  ]);
  const words = html("div", { class: "axis", "aria-hidden": "true" }, TICKS.map(([ns, word]) => {
    const tick = html("span", {}, [word]);
    tick.style.left = `${at(ns) * 100}%`;
    return tick;
  }));
  return html("div", { class: "histogram", role: "group" }, [
    html("div", { class: "what" }, [html("b"), html("span", { class: "quiet" })]),
    html("div", { class: "plot" }, [plot, words]),
    html("div", { class: "numbers" }, [html("span", { class: "p50" }), html("span", { class: "p99" })]),
  ]);
}

function update(row, latency) {
  const [what, plot, numbers] = row.children;
  const title = TITLES[latency.what] ?? latency.what;
  say(what.children[0], latency.tier ? `${title} · ${latency.tier}` : title);
  const samples = latency.sampled_in > 1 ? `1 in ${latency.sampled_in} timed` : "all timed";
  say(what.children[1], `${count(latency.count)} · ${samples}`);
  const [, all, fresh, p50, p99] = plot.firstElementChild.children;
  set(all, { d: bars(latency.buckets) });
  set(fresh, { d: bars(latency.fresh) });
  const isFresh = latency.fresh.length > 0;
  const [middle, slow] = isFresh ? [latency.p50, latency.p99] : [latency.p50_ns, latency.p99_ns];
  for (const [line, ns] of [[p50, middle], [p99, slow]]) {
    set(line, { x1: at(ns ?? 0) * 1000, x2: at(ns ?? 0) * 1000 });
  }
  say(numbers.children[0], `p50 ${duration(middle)}`);
  say(numbers.children[1], `p99 ${duration(slow)}`);
  set(row, { "data-fresh": isFresh, "data-what": latency.what, "aria-label": `${title} ${latency.tier ?? ""}: half within ${duration(middle)}, 99 in a hundred within ${duration(slow)}` });
}

function bars(buckets) {
  const most = Math.max(1, ...buckets.map(([, count]) => count));
  return buckets.map(([end, count]) => {
    const left = at(bucketBegin(end)) * 1000;
    const right = Math.max(left + 2, at(end) * 1000 - 1);
    // Square root, so that the few slow ones are visible.
    const high = Math.max(1.5, Math.sqrt(count / most) * (HIGH - 2));
    return `M${left.toFixed(1)} ${HIGH}V${(HIGH - high).toFixed(1)}H${right.toFixed(1)}V${HIGH}z`;
  }).join("");
}
