// Connects the parts: passes states of the store to their views.

import { bytes, count, rate, seconds } from "./format.js";
import { say, set } from "./draw.js";
import { Stream } from "./state.js";
import { Well } from "./well.js";
import { Latency } from "./latency.js";
import { Heat } from "./heat.js";
import { clientTable, containerTable, flowTable } from "./tables.js";

const $ = (id) => document.getElementById(id);
const well = new Well($("well"), $("well-text"));
const latency = new Latency($("latency"));
const heat = new Heat($("ages"), $("hot"));
const flows = flowTable($("flows"));
const clients = clientTable($("clients"));
const containers = containerTable($("containers"));

let paused = false;
let connection = "waiting";

function show(state) {
  if (paused) return;
  document.body.dataset.ready = "true";
  const sum = (fits) => state.flows.filter(fits).reduce((all, flow) => all + flow.rate, 0);
  const isMove = (flow) => !["write", "read", "verify", "eviction"].includes(flow.why);
  say($("store"), `store ${state.store.slice(0, 8)} · up ${seconds(state.uptime_s)}${state.enabled ? "" : " · counting is off"}`);
  set($("store"), { title: state.store });
  say($("figure-write"), rate(sum((flow) => flow.why === "write")));
  say($("figure-read"), rate(sum((flow) => flow.why === "read")));
  say($("figure-move"), rate(sum(isMove)));
  say($("figure-requests"), `${count(state.requests_rate)}/s`);
  say($("figure-clients"), count(state.clients.length));
  say($("figure-objects"), count(state.stats.objects));
  document.title = `Cenote · ${bytes(state.tiers.reduce((all, tier) => all + tier.used_bytes, 0))}`;
  well.show(state);
  latency.show(state);
  heat.show(state);
  flows.show([...state.flows].sort((a, b) => b.rate - a.rate || b.bytes - a.bytes));
  clients.show([...state.clients].sort((a, b) => b.read_rate + b.write_rate - a.read_rate - a.write_rate || a.session - b.session));
  containers.show(state.containers);
}

function tell(word) {
  if (word === connection) return;
  connection = word;
  set($("status"), { "data-state": word });
  say($("status"), word === "live" ? (paused ? "paused" : "live") : "daemon gone; trying again");
  document.body.dataset.connection = word;
}

function pause() {
  paused = !paused;
  set($("pause"), { "aria-pressed": paused });
  say($("pause"), paused ? "Go on" : "Pause");
  const word = connection;
  connection = "";
  tell(word);
}

/** Switches the theme. Before the first call the system's applies. */
function theme() {
  const isDark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const next = isDark ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", next);
}

const chosen = localStorage.getItem("theme");
if (chosen) document.documentElement.dataset.theme = chosen;
$("pause").addEventListener("click", pause);
$("theme").addEventListener("click", theme);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "p") pause();
  if (event.key === "t") theme();
});

new Stream(show, tell).open();
