// Numbers as people read them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

export function bytes(value) {
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

export function rate(value) {
  return value < 1 ? "–" : `${bytes(value)}/s`;
}

export function count(value) {
  if (value >= 1e9) return `${(value / 1e9).toFixed(1)} G`;
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  return Math.round(value).toLocaleString("en");
}

export function duration(ns) {
  if (ns == null) return "–";
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  const [value, unit] = ns < 1e6 ? [ns / 1e3, "µs"] : ns < 1e9 ? [ns / 1e6, "ms"] : [ns / 1e9, "s"];
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

export function seconds(value) {
  if (value < 60) return `${Math.round(value)} s`;
  if (value < 3600) return `${Math.round(value / 60)} min`;
  if (value < 86400 && value % 3600 < 60) return `${Math.floor(value / 3600)} h`;
  if (value < 86400) return `${Math.floor(value / 3600)} h ${Math.floor((value / 60) % 60)} min`;
  return `${Math.floor(value / 86400)} d ${Math.floor((value / 3600) % 24)} h`;
}

export function percent(part) {
  const value = part * 100;
  return value > 0 && value < 1 ? "<1%" : `${Math.round(value)}%`;
}
