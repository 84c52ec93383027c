// The well: a layer of water for each tier, and the flows between programs and layers.

import { bytes, duration, percent, rate } from "./format.js";
import { keyed, say, set, svg } from "./draw.js";

const SKY = 78; // above the water: the programs
const LEDGE = 7; // rock between layers
const FLOOR = 40;
/** Reasons that are drawn as flows; checks and the like are in the table. */
const DRAWN = new Set(["write", "read", "durability", "promotion", "prefetch", "demotion", "evacuation"]);

export class Well {
  constructor(box, text) {
    this.text = text;
    this.rock = svg("path", { class: "rock" });
    this.strata = svg("path", { class: "strata" });
    this.light = svg("path", { class: "light", fill: "url(#daylight)" });
    this.sky = svg("path", { class: "sky" });
    this.clip = svg("path");
    this.layers = svg("g");
    this.rim = svg("path", { class: "rim" });
    this.labels = svg("g");
    this.flows = svg("g");
    this.tags = svg("g");
    this.programs = svg("g", { class: "programs" }, [svg("rect", { rx: 17 }), svg("text", { "text-anchor": "middle" })]);
    const marker = svg("marker", {
      id: "tip", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 15, markerHeight: 15,
      orient: "auto", markerUnits: "userSpaceOnUse",
    }, [svg("path", { d: "M0 0 8 4 0 8z", class: "tip" })]);
    const daylight = svg("linearGradient", { id: "daylight", x1: 0, y1: 0, x2: 0, y2: 1 }, [
      svg("stop", { offset: 0, class: "noon" }), svg("stop", { offset: 1, class: "night" }),
    ]);
    this.svg = svg("svg", { role: "img", "aria-labelledby": "well-title", "aria-describedby": "well-text" }, [
      svg("defs", {}, [svg("clipPath", { id: "cavern" }, [this.clip]), marker, daylight]),
      this.rock, this.strata, this.sky,
      svg("g", { "clip-path": "url(#cavern)" }, [this.layers, this.light]),
      this.rim, this.labels, this.flows, this.programs, this.tags,
    ]);
    box.append(this.svg);
    this.box = box;
    new ResizeObserver(() => this.state && this.show(this.state)).observe(box);
  }

  show(state) {
    this.state = state;
    const tiers = state.tiers;
    const shape = this.measure(tiers.length);
    set(this.svg, { viewBox: `0 0 ${shape.width} ${shape.height}`, width: shape.width, height: shape.height });
    set(this.rock, { d: ground(shape.width, shape.height) });
    set(this.strata, { d: strata(shape.width, shape.height) });
    const [near, far] = [shape.half(SKY) * 0.55, shape.half(shape.height * 0.6) * 0.95];
    set(this.light, { d: `M${shape.middle - near} ${SKY - 30}H${shape.middle + near * 0.7}L${shape.middle + far * 0.5} ${shape.height}H${shape.middle - far}Z` });
    const cavern = shape.outline();
    set(this.clip, { d: cavern });
    set(this.sky, { d: cavern });
    set(this.rim, { d: cavern });
    this.showLayers(tiers, shape);
    this.showPrograms(state, shape);
    this.showFlows(state, shape);
    say(this.text, describe(state));
  }

  /** The layout for the available width. */
  measure(count) {
    const width = Math.max(320, Math.min(860, this.box.clientWidth || 640));
    const layer = Math.max(74, Math.min(150, 470 / Math.max(1, count)));
    const height = SKY + count * (layer + LEDGE) - LEDGE + FLOOR;
    const lane = Math.max(62, width * 0.19);
    const most = width / 2 - lane;
    const depth = height - SKY;
    const half = (y) => {
      const t = Math.max(0, Math.min(1, (y - SKY + 20) / depth));
      const round = Math.sqrt(1 - 0.5 * Math.max(0, (t - 0.8) / 0.2) ** 2);
      return most * (0.64 + 0.36 * Math.sin(Math.PI * (0.1 + 0.6 * t))) * round;
    };
    const middle = width / 2;
    const outline = () => {
      const left = [];
      const right = [];
      for (let y = SKY - 26; y <= height - FLOOR + 6; y += 8) {
        const rough = Math.sin(y * 0.21) * 1.6 + Math.sin(y * 0.057 + 1) * 2.6;
        left.push(`${(middle - half(y) + rough).toFixed(1)} ${y}`);
        right.push(`${(middle + half(y) + Math.sin(y * 0.17 + 2) * 1.8).toFixed(1)} ${y}`);
      }
      return `M${left.join("L")}Q${middle} ${height - FLOOR + 34} ${right.reverse().join("L")}Z`;
    };
    const top = (number) => SKY + number * (layer + LEDGE);
    return { width, height, layer, half, middle, outline, top, narrow: width < 560 };
  }

  showLayers(tiers, shape) {
    const numbered = tiers.map((tier, number) => ({ ...tier, number }));
    const make = () => svg("g", { class: "layer" }, [
      svg("rect", { class: "room" }),
      svg("rect", { class: "reserved" }),
      svg("g", { class: "water" }, [svg("path", { class: "wave behind" }), svg("path", { class: "wave" })]),
      svg("path", { class: "watermark" }),
      svg("rect", { class: "ledge" }),
    ]);
    keyed(this.layers, numbered, (tier) => tier.id, make, (group, tier) => {
      const [room, reserved, water, mark, ledge] = group.children;
      const top = shape.top(tier.number);
      const shade = tiers.length < 2 ? 0 : tier.number / (tiers.length - 1);
      group.style.setProperty("--depth", shade.toFixed(3));
      set(group, { "data-state": tier.state });
      const isLast = tier.number === tiers.length - 1;
      set(room, { x: 0, y: top, width: shape.width, height: shape.layer + (isLast ? FLOOR : 0) });
      const used = Math.min(1, tier.used_bytes / Math.max(1, tier.capacity_bytes));
      const held = Math.min(1 - used, tier.reserved_bytes / Math.max(1, tier.capacity_bytes));
      // Anything that exists is visible, however small.
      const high = tier.used_bytes > 0 ? Math.max(3, used * shape.layer) : 0;
      const surface = top + shape.layer - high;
      set(reserved, { x: 0, y: surface - held * shape.layer, width: shape.width, height: held * shape.layer });
      const [behind, front] = water.children;
      const swell = Math.min(4, high / 3);
      water.style.transform = `translateY(${surface}px)`;
      // As deep as possible: the layer below covers it, also while the surface moves.
      const deep = high > 0 ? shape.layer + FLOOR : 0;
      set(front, { d: wave(shape.width, deep, swell, 0) });
      set(behind, { d: wave(shape.width, deep, swell, 40) });
      const high_y = top + shape.layer * (1 - tier.watermark_high_permille / 1000);
      set(mark, { d: `M0 ${high_y.toFixed(1)}H${shape.width}` });
      set(ledge, { x: 0, y: top + shape.layer, width: shape.width, height: isLast ? 0 : LEDGE });
    });
    const label = () => svg("g", { class: "label" }, [svg("text", { class: "tier" }), svg("text", { class: "fill" }), svg("text", { class: "kind" })]);
    keyed(this.labels, numbered, (tier) => tier.id, label, (group, tier) => {
      const middle = shape.top(tier.number) + shape.layer / 2;
      const [name, fill, kind] = group.children;
      for (const [text, dy] of [[name, -15], [fill, 5], [kind, 23]]) set(text, { x: shape.middle, y: middle + dy, "text-anchor": "middle" });
      say(name, tier.name);
      const part = percent(tier.used_bytes / Math.max(1, tier.capacity_bytes));
      say(fill, `${part} · ${bytes(tier.used_bytes)} of ${bytes(tier.capacity_bytes)}`);
      const state = tier.state === "online" ? "" : ` · ${tier.state}`;
      const speed = tier.speed ? ` · ${rate(tier.speed.read_bytes_per_s)} after ${duration(tier.speed.read_latency_ns)}` : "";
      say(kind, `${tier.kind}${tier.persistent ? "" : ", volatile"}${speed}${state}`);
      set(group, { "data-state": tier.state, "data-tier": tier.name, "data-used": tier.used_bytes });
    });
  }

  showPrograms(state, shape) {
    const [rect, text] = this.programs.children;
    const wide = shape.narrow ? 128 : 150;
    set(rect, { x: shape.middle - wide / 2, y: 6, width: wide, height: 34 });
    set(text, { x: shape.middle, y: 28 });
    const clients = state.clients.length;
    say(text, clients === 1 ? "1 program" : `${clients} programs`);
    this.programsHalf = wide / 2;
  }

  showFlows(state, shape) {
    const place = new Map(state.tiers.map((tier, number) => [tier.name, number]));
    const y = (end) => (end === "client" ? 23 : shape.top(place.get(end)) + shape.layer / 2);
    const edge = (end) => (end === "client" ? this.programsHalf : shape.half(y(end)) - 3);
    const known = (end) => end === "client" || place.has(end);
    const shown = state.flows.filter((flow) => DRAWN.has(flow.why) && flow.rate >= 1 && flow.from !== flow.to && known(flow.from) && known(flow.to));
    // The longest path goes outermost; each side has lanes of its own.
    const sides = { down: [], up: [] };
    for (const flow of shown) sides[y(flow.to) > y(flow.from) ? "down" : "up"].push(flow);
    const drawn = [];
    for (const [side, flows] of Object.entries(sides)) {
      flows.sort((a, b) => Math.abs(y(a.to) - y(a.from)) - Math.abs(y(b.to) - y(b.from)));
      flows.forEach((flow, lane) => drawn.push({ ...flow, side, lane, lanes: flows.length }));
    }
    const make = () => svg("g", { class: "flow" }, [svg("path", { class: "bed" }), svg("path", { class: "drops", "marker-end": "url(#tip)" })]);
    keyed(this.flows, drawn, (flow) => flow.key, make, (group, flow) => {
      const [bed, drops] = group.children;
      const sign = flow.side === "down" ? -1 : 1;
      const nudge = ((flow.lane + 1) / (flow.lanes + 1) - 0.5) * Math.min(46, shape.layer * 0.5);
      const from = [shape.middle + sign * edge(flow.from), y(flow.from) + (flow.from === "client" ? 0 : nudge)];
      const to = [shape.middle + sign * edge(flow.to), y(flow.to) + (flow.to === "client" ? 0 : nudge)];
      const rim = shape.middle - Math.max(edge(flow.from), edge(flow.to), shape.half((from[1] + to[1]) / 2));
      const reach = rim * (0.42 + 0.5 * ((flow.lane + 1) / flow.lanes));
      const out = shape.middle + sign * (shape.middle - rim + reach);
      const d = `M${from[0]} ${from[1]}C${out} ${from[1]} ${out} ${to[1]} ${to[0]} ${to[1]}`;
      set(bed, { d });
      set(drops, { d });
      set(group, { "data-why": flow.why, "data-from": flow.from, "data-to": flow.to });
      // 1 KiB/s trickles, 10 GiB/s rushes.
      const strength = Math.max(0, Math.min(1, (Math.log2(flow.rate) - 10) / 23));
      group.style.setProperty("--wide", (2 + strength * 7).toFixed(1));
      group.style.setProperty("--pace", `${(2.6 - strength * 2.1).toFixed(2)}s`);
      // The tag hangs where the path turns; on the next lane, a little lower.
      const x = shape.middle + sign * (shape.middle - rim + reach * 0.74);
      flow.tag = [Math.max(38, Math.min(shape.width - 38, x)), (from[1] + to[1]) / 2 + (flow.lanes > 1 ? (flow.lane % 2 ? 14 : -12) : 0)];
    });
    apart(drawn.filter((flow) => flow.side === "down"));
    apart(drawn.filter((flow) => flow.side === "up"));
    const tag = () => svg("g", { class: "flow tag" }, [svg("text"), svg("text", { class: "why" })]);
    keyed(this.tags, drawn, (flow) => flow.key, tag, (group, flow) => {
      const [amount, why] = group.children;
      set(group, { "data-why": flow.why });
      set(amount, { x: flow.tag[0], y: flow.tag[1], "text-anchor": "middle" });
      set(why, { x: flow.tag[0], y: flow.tag[1] + 14, "text-anchor": "middle" });
      say(amount, rate(flow.rate));
      say(why, flow.why);
    });
  }
}

/** Moves tags down until none overlaps another. */
function apart(flows) {
  const placed = [];
  for (const flow of [...flows].sort((a, b) => a.tag[1] - b.tag[1])) {
    for (const [x, y] of placed) {
      if (Math.abs(x - flow.tag[0]) < 84 && Math.abs(y - flow.tag[1]) < 33) flow.tag[1] = y + 33;
    }
    placed.push(flow.tag);
  }
}

/** The ground around the well: uneven, as ground is. */
function ground(width, height) {
  let d = `M0 ${SKY - 24}`;
  for (let x = 0; x <= width; x += 12) d += `L${x} ${(SKY - 26 + Math.sin(x * 0.03) * 3 + Math.sin(x * 0.11) * 1.5).toFixed(1)}`;
  return `${d}L${width} ${SKY - 26}V${height - 12}Q${width} ${height} ${width - 12} ${height}H12Q0 ${height} 0 ${height - 12}Z`;
}

/** Layers of limestone. */
function strata(width, height) {
  let d = "";
  for (let y = SKY + 14, turn = 1; y < height - 10; y += 34 + (turn % 3) * 9, turn += 1) {
    d += `M0 ${y}`;
    for (let x = 20; x <= width; x += width / 30) d += `L${x} ${(y + Math.sin(x * 0.021 + turn * 1.7) * 5).toFixed(1)}`;
  }
  return d;
}

/** Water of a height with a moving surface. Drawn twice as wide, so that it can move by one period. */
function wave(width, high, swell, phase) {
  const period = 80;
  let d = `M${-period - phase} 0`;
  for (let x = -period - phase; x < width + period; x += period) d += `q${period / 4} ${-swell} ${period / 2} 0t${period / 2} 0`;
  return `${d}V${high}H${-period - phase}z`;
}

function describe(state) {
  const tiers = state.tiers.map((tier) => `${tier.name} (${tier.kind}) ${percent(tier.used_bytes / Math.max(1, tier.capacity_bytes))} full, ${bytes(tier.used_bytes)} of ${bytes(tier.capacity_bytes)}`);
  const flows = state.flows.filter((flow) => flow.rate >= 1).map((flow) => `${flow.why} from ${flow.from} to ${flow.to} ${rate(flow.rate)}`);
  return `Tiers from fast to slow: ${tiers.join("; ")}. ${flows.length ? `Flows: ${flows.join("; ")}.` : "Nothing flows."}`;
}
