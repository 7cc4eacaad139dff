// The open tables, of all servers of a fleet.

import { poll, read } from "./api.js";
import { address, bytes, choice, h, link, short, whole } from "./dom.js";
import { Panel } from "./panel.js";

const EVERY_S = 10;
const PAGE = 200;

export function tablesView(main, parameters, signal) {
  let [shown, order, runs] = [PAGE, "name", 0];
  const orders = choice("Order", { name: "By name", requests: "Most look-ups", bytes: "Most memory" }, order, (key) => { order = key; load(); });
  const panel = new Panel("Open tables", "Tables that were asked for since the server started.", {
    empty: parameters.prefix ? "No open table begins with this text." : "No table is open. The first look-up of a table opens it; the field above does, too.",
    caption: "Open tables", tools: [orders],
    columns: [
      { label: "Table", long: true, cell: (row) => link(row.table, "table", { table: row.table }) },
      { label: "Newest instant", cell: (row) => row.instant || "none" },
      { label: "Server", cell: (row) => (row.server ? row.server.replace(/^https?:\/\//, "") + (row.is_owner ? " (owner)" : "") : "this one") },
      { label: "Partitions", number: true, cell: (row) => whole(row.partitions_loaded) },
      { label: "Memory", number: true, cell: (row) => bytes(row.packed_bytes + row.retained_bytes) },
      { label: "Look-ups", number: true, cell: (row) => short(row.requests) },
      { label: "Calls saved", number: true, cell: (row) => short(row.storage_calls_saved) },
    ],
  });
  const field = (name, label, value) => h("label", {}, label, h("input", { name, value, autocomplete: "off", spellcheck: "false" }));
  const form = h("form", { class: "fields", onsubmit: (event) => {
    event.preventDefault();
    const base = event.target.elements.base.value.trim();
    const prefix = event.target.elements.prefix.value.trim();
    location.hash = base ? address("table", { table: base }) : address("tables", { prefix: prefix || null });
  } }, field("prefix", "Begins with", parameters.prefix || ""), field("base", "Or open a base path", ""), h("button", {}, "Go"));
  main.append(h("h1", {}, "Tables"), form, panel.element);
  signal.addEventListener("abort", () => panel.dispose());
  const load = async () => {
    const run = ++runs; // only the newest is shown, whichever is answered last
    try {
      const found = await read("tables", { order, prefix: parameters.prefix, limit: shown, once: true }, signal);
      if (run !== runs) return;
      const more = found.more ? () => { shown = Math.min(10000, 5 * shown); load(); } : null;
      panel.show({ draw: null, summary: "Open tables", rows: found.rows, more });
    } catch (error) {
      if (run === runs && !signal.aborted) panel.fail(error, load);
    }
  };
  poll(EVERY_S, signal, load);
}
