// A fleet: its seats on the ring, the servers that hold them, the tables they own.

import { poll, read } from "./api.js";
import { cut, lines, plain } from "./chart.js";
import { counted, duration, h, link, tail, whole } from "./dom.js";
import { figure, Panel } from "./panel.js";

const EVERY_S = 5;
const MOST_TABLES = 1500;
const MOST_ROWS = 2000;
const OWNERS = "Which server answers for which table.";
const host = (url) => url.replace(/^https?:\/\//, "");

export function fleetView(main, _, signal) {
  const head = h("dl", { class: "figures", "aria-label": "At a glance" });
  const trouble = h("div", { role: "status" });
  const ring = new Panel("Ring", "Seats by group; a seat has the tables that its server owns.", {
    height: "tall", empty: "This server is not in a fleet. Servers that are started with --fleet show their seats here.",
    columns: [
      { label: "Seat", number: true, cell: (row) => (row.seat === null ? "–" : String(row.seat)) },
      { label: "Server", cell: (row) => (row.url ? host(row.url) : "vacant") },
      { label: "Group", cell: (row) => row.group || "" },
      { label: "State", cell: (row) => h("span", { class: `tag ${TONES[row.state]}` }, row.state) },
      { label: "Tables", number: true, cell: (row) => whole(row.tables.length) },
    ],
  });
  const owners = new Panel("Owners", OWNERS, {
    empty: "No table is open.",
    columns: [{ label: "Table", long: true, cell: (row) => link(row.table, "table", { table: row.table }) }, { label: "Owner", cell: (row) => (row.owner ? host(row.owner) : "–") }, { label: "Group", cell: (row) => row.group || "" }, { label: "Newest instant", cell: (row) => row.instant || "none" }],
  });
  const moves = new Panel("Moves", "Tables on their way from one group of servers to another.", {
    empty: "No table moves.",
    columns: [{ label: "Path", long: true, cell: (row) => row.path }, { label: "From", cell: (row) => row.source }, { label: "To", cell: (row) => row.destination }, { label: "State", cell: (row) => row.state.toLowerCase() }],
  });
  const panels = [ring, owners, moves];
  main.append(h("h1", {}, "Fleet"), trouble, head, ...panels.map((each) => each.element));
  signal.addEventListener("abort", () => panels.forEach((each) => each.dispose()));
  const load = async () => {
    try {
      const [status, tables] = await Promise.all([read("status", { names: "strandline_ready" }, signal), read("tables", { limit: 10000, once: true }, signal)]);
      owners.element.hidden = moves.element.hidden = status.fleet === null;
      if (status.fleet === null) {
        ring.show({ draw: null, summary: "", rows: [] });
        return;
      }
      const owned = owners_of(tables.rows);
      const rows = seats(status.fleet, owned);
      const gone = status.servers.filter((each) => each.error).map((each) => `${each.server}: ${each.error}`);
      if (status.fleet.trouble) gone.push(`state store: ${status.fleet.trouble}`);
      trouble.replaceChildren(...(gone.length ? [h("ul", { class: "notice bad" }, gone.map((text) => h("li", {}, text)))] : []));
      head.replaceChildren(
        figure("Seats", `${rows.filter((row) => row.seat !== null && row.url).length}`, `of ${rows.filter((row) => row.seat !== null).length} taken`, status.fleet.vacant.length ? "warn" : "good"),
        figure("Servers", whole(status.fleet.members.length), counted(Object.keys(status.fleet.groups).length, "group")),
        figure("Epoch", whole(status.fleet.epoch), "changes so far"),
        figure("Leader", status.fleet.leader ? host(status.fleet.leader) : "none", ""),
        figure("Longest up", duration(Math.max(...status.servers.map((each) => each.uptime_s || 0))), ""));
      ring.show({ draw: drawn(rows), summary: rows.map((row) => `seat ${row.seat}: ${row.url || "vacant"}, ${counted(row.tables.length, "table")}`).join("; "), rows });
      const all = [...owned.values()].flat();
      owners.about.textContent = OWNERS + (all.length > MOST_ROWS ? ` These are ${whole(MOST_ROWS)} of ${whole(all.length)} tables.` : "");
      owners.show({ draw: null, summary: "Owners of tables", rows: all.slice(0, MOST_ROWS) });
      moves.show({ draw: null, summary: "Moves", rows: status.fleet.moves });
    } catch (error) {
      if (!signal.aborted) panels.forEach((each) => each.fail(error));
    }
  };
  poll(EVERY_S, signal, load);
}

const TONES = { ready: "good", warming: "warn", vacant: "bad", drained: "quiet", standby: "quiet", router: "quiet" };

/** Returns what is shown of each table, once, by its owner's address. */
function owners_of(rows) {
  const seen = new Set();
  const owned = new Map();
  for (const { table, owner, group, instant } of rows) {
    if (seen.has(table)) continue;
    seen.add(table);
    if (!owned.has(owner)) owned.set(owner, []);
    owned.get(owner).push({ table, owner, group, instant });
  }
  return owned;
}

function seats(fleet, owned) {
  const rows = fleet.members.map((member) => ({
    ...member, tables: owned.get(member.url) || [],
    state: member.router ? "router" : fleet.drained.includes(member.url) ? "drained" : member.seat === null ? "standby" : member.ready ? "ready" : "warming",
  }));
  for (const seat of fleet.vacant) rows.push({ seat, url: null, group: null, state: "vacant", tables: [] });
  return rows.sort((a, b) => (a.seat ?? Infinity) - (b.seat ?? Infinity));
}

function drawn(rows) {
  return (c) => {
    const tone = { good: c.good, warn: c.warn, bad: c.bad, quiet: c.quiet };
    const groups = Map.groupBy ? Map.groupBy(rows.filter((row) => row.seat !== null), (row) => row.group || "") : grouped(rows);
    let left = MOST_TABLES;
    const data = [...groups].map(([group, held], at) => ({
      name: group || "default", itemStyle: { color: c.series[at % c.series.length] },
      children: held.map((row) => {
        const shown = row.tables.slice(0, Math.max(0, left));
        left -= shown.length;
        return {
          name: `${row.seat}`, server: row.url, value: Math.max(1, row.tables.length), itemStyle: { color: tone[TONES[row.state]] },
          children: shown.map((table) => ({ name: table.table, value: 1, itemStyle: { color: c.line } })),
        };
      }),
    }));
    return {
      tooltip: { formatter: (mark) => (mark.data.server === undefined ? lines(mark.name) : lines(`Seat ${mark.name}`, mark.data.server || "vacant", counted(mark.data.children.length, "table"))) },
      series: [{
        type: "sunburst", data, radius: ["18%", "96%"], sort: null, nodeClick: false, emphasis: { focus: "none" },
        itemStyle: { borderColor: c.ground, borderWidth: 2 },
        levels: [{}, { r0: "18%", r: "40%", label: { color: c.ground, rotate: 0, formatter: (mark) => cut(plain(mark.name), 10) } },
          { r0: "41%", r: "72%", label: { color: c.ground, formatter: (mark) => `seat ${mark.name}` } },
          { r0: "73%", r: "96%", label: { show: rows.reduce((sum, row) => sum + row.tables.length, 0) <= 24, color: c.text, formatter: (mark) => cut(plain(tail(mark.name)), 14) } }],
      }],
    };
  };
}

function grouped(rows) {
  const found = new Map();
  for (const row of rows) if (row.seat !== null) found.set(row.group || "", [...(found.get(row.group || "") || []), row]);
  return found;
}
