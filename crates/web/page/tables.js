// Tables that sort by their column titles.

import { bytes, count, percent, rate } from "./format.js";
import { html, keyed, say, set } from "./draw.js";

/** A table of `columns`: `{ title, value(row), text(row), number }`. */
export class Table {
  constructor(table, columns, key, empty) {
    Object.assign(this, { columns, key, empty, by: null, down: true });
    this.head = html("tr");
    this.body = html("tbody");
    columns.forEach((column) => {
      const button = html("button", { type: "button" }, [column.title]);
      button.addEventListener("click", () => {
        this.down = this.by === column ? !this.down : Boolean(column.number);
        this.by = column;
        this.show(this.rows ?? []);
      });
      this.head.append(html("th", { scope: "col", class: column.number ? "number" : "" }, [button]));
    });
    table.append(html("thead", {}, [this.head]), this.body);
  }
  show(rows) {
    this.rows = rows;
    const sorted = [...rows];
    if (this.by) {
      const value = this.by.value;
      sorted.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (this.down ? -1 : 1));
    }
    this.columns.forEach((column, number) => {
      set(this.head.children[number], { "aria-sort": this.by !== column ? "none" : this.down ? "descending" : "ascending" });
    });
    const make = () => html("tr", {}, this.columns.map((column) => html("td", { class: column.number ? "number" : "" })));
    keyed(this.body, sorted, this.key, make, (line, row) => {
      this.columns.forEach((column, number) => {
        say(line.children[number], String(column.text(row)));
        if (column.bar) line.children[number].style.setProperty("--bar", column.bar(row));
      });
    });
    if (rows.length === 0 && this.empty) {
      keyed(this.body, [0], () => "empty", () => html("tr", {}, [html("td", { colspan: this.columns.length, class: "quiet" }, [this.empty])]), () => {});
    }
  }
}

const column = (title, value, text = value) => ({ title, value, text });
const number = (title, value, text) => ({ title, value, text: text ?? value, number: true });

export const flowTable = (table) => new Table(table, [
  column("from", (flow) => flow.from),
  column("to", (flow) => flow.to),
  column("why", (flow) => flow.why),
  number("now", (flow) => flow.rate, (flow) => rate(flow.rate)),
  number("in all", (flow) => flow.bytes, (flow) => bytes(flow.bytes)),
  number("pieces", (flow) => flow.operations, (flow) => count(flow.operations)),
], (flow) => flow.key, "nothing flowed yet");

export const clientTable = (table) => new Table(table, [
  column("program", (client) => client.program, (client) => client.program || "?"),
  number("process", (client) => client.pid),
  number("user", (client) => client.uid),
  number("reads", (client) => client.read_rate, (client) => rate(client.read_rate)),
  number("writes", (client) => client.write_rate, (client) => rate(client.write_rate)),
  number("messages", (client) => client.request_rate, (client) => (client.request_rate < 1 ? "–" : `${count(client.request_rate)}/s`)),
  number("read in all", (client) => client.read_bytes, (client) => bytes(client.read_bytes)),
  number("written in all", (client) => client.written_bytes, (client) => bytes(client.written_bytes)),
  number("leased", (client) => client.leased_bytes, (client) => bytes(client.leased_bytes)),
], (client) => client.session, "nobody is here");

export const containerTable = (table) => new Table(table, [
  column("label", (container) => container.label),
  number("objects", (container) => container.objects, (container) => count(container.objects)),
  number("stored", (container) => container.stored_bytes, (container) => bytes(container.stored_bytes)),
  number("quota", (container) => container.quota_bytes, (container) => (container.quota_bytes > 0 ? `${percent(container.stored_bytes / container.quota_bytes)} of ${bytes(container.quota_bytes)}` : "none")),
  { ...number("share", (container) => container.share_permille, (container) => percent(container.share_permille / 1000)), bar: (container) => container.share_permille / 1000 },
], (container) => container.id, "no containers yet");
