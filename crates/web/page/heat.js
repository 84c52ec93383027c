// Heat: how much of each tier was used how recently, and the tiers of hot objects.

import { bytes, seconds } from "./format.js";
import { html, keyed, say, set } from "./draw.js";

export class Heat {
  constructor(ages, hot) {
    this.ages = ages;
    this.hot = hot;
  }
  show(state) {
    const ends = state.heat.ages_s;
    const columns = [...ends.map((end) => `< ${seconds(end)}`), "longer ago"];
    const rows = state.tiers.map((tier) => {
      const found = state.heat.tiers.find((row) => row.tier === tier.name);
      const cells = (found?.bytes ?? []).map((value, age) => ({
        // Square root of the share of capacity: small values show, large do not hide them.
        warmth: Math.sqrt(value / Math.max(1, tier.capacity_bytes)),
        text: value > 0 ? bytes(value) : "",
        title: `${bytes(value)} of ${found.objects[age]} objects`,
        age,
      }));
      return { key: tier.name, name: tier.name, cells };
    });
    grid(this.ages, ["tier", ...columns], rows, "age");
    const tiers = state.tiers.map((tier) => tier.name);
    const hottest = Math.max(1, ...state.hot.map((object) => object.score));
    const objects = state.hot.slice(0, 15).map((object) => {
      const cells = tiers.map((tier) => {
        const there = object.tiers[tier] ?? 0;
        return {
          warmth: there > 0 ? Math.max(0.08, Math.sqrt(object.score / hottest)) * (0.35 + 0.65 * Math.min(1, there / Math.max(1, object.size_bytes))) : 0,
          text: there > 0 ? bytes(there) : "",
          title: `${bytes(there)} on ${tier}`,
        };
      });
      return { key: object.object, name: shorter(object.object), title: object.object, cells: [...cells, { text: bytes(object.score), warmth: 0, title: "bytes used of late" }] };
    });
    grid(this.hot, ["object", ...tiers, "used of late"], objects, "hot");
  }
}

/** `label/0000…2a`: the end of an id distinguishes it better than its leading zeros. */
function shorter(name) {
  const slash = name.lastIndexOf("/");
  const id = name.slice(slash + 1).replace(/^0+(?=.)/, "");
  return `${name.slice(0, slash)}/${id.length > 12 ? `${id.slice(0, 6)}…${id.slice(-4)}` : id}`;
}

function grid(table, titles, rows, kind) {
  if (!table.tHead) table.append(html("thead", {}, [html("tr")]), html("tbody"));
  keyed(table.tHead.rows[0], titles, (title) => title, () => html("th", { scope: "col" }), say);
  const make = () => html("tr", {}, [html("th", { scope: "row" })]);
  keyed(table.tBodies[0], rows, (row) => row.key, make, (line, row) => {
    const head = line.firstElementChild;
    say(head, row.name);
    if (row.title) set(head, { title: row.title });
    while (line.children.length > row.cells.length + 1) line.lastElementChild.remove();
    while (line.children.length < row.cells.length + 1) line.append(html("td"));
    row.cells.forEach((cell, number) => {
      const element = line.children[number + 1];
      say(element, cell.text);
      set(element, { title: cell.title, "data-kind": kind });
      element.style.setProperty("--warmth", Math.min(1, cell.warmth).toFixed(3));
      if (cell.age !== undefined) element.style.setProperty("--age", cell.age);
    });
  });
}
