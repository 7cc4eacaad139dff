// What the service does: requests, latencies, refusals, syncs, storage calls, memory.

import { poll, read, sums, total } from "./api.js";
import { axis, bars, lines } from "./chart.js";
import { bytes, choice, counted, duration, h, link, share, short, tail, time, whole } from "./dom.js";
import { figure, Panel } from "./panel.js";

const EVERY_S = 5;
const KEPT = 720;
const WINDOW_MS = 120e3;
const MOST = 15;
/** Readings since this page was opened, which outlive its views: `{at, uptimes, requests, refusals}`. */
const history = [];

const REQUESTS = "strandline_requests_total";
const TOOK = "strandline_request_duration_seconds";
const REFUSALS = "strandline_refusals_total";

export function serviceView(main, _, signal) {
  const head = h("dl", { class: "figures", "aria-label": "At a glance" });
  const trouble = h("div", { role: "status" });
  const panels = Object.fromEntries(PANELS.map((each) => [each.name, new Panel(each.title, each.about, each)]));
  let server = "";
  let offered = "";
  const choose = h("div", {});
  main.append(h("div", { class: "title" }, h("h1", {}, "Service"), choose), trouble, head, ...Object.values(panels).map((each) => each.element));
  let last = null;
  const show = () => {
    const { status, tables } = last;
    const chosen = (each) => server === "" || each.server === server;
    const servers = status.servers.filter(chosen);
    const rows = tables.rows.filter(chosen);
    const cut = tables.more ? ` Of ${whole(tables.tables_open)} tables these are the ${whole(tables.rows.length)} with most look-ups.` : "";
    trouble.replaceChildren(...troubles(status));
    head.replaceChildren(...glance(servers, tables.more ? tables.tables_open : new Set(rows.map((row) => row.table)).size, server));
    for (const each of PANELS) {
      panels[each.name].about.textContent = each.about + (each.isOfTables ? cut : "");
      panels[each.name].show(each.make(servers, rows, server));
    }
  };
  /** Offers the servers of a fleet, and the chosen one although it is gone. */
  const offer = (urls) => {
    const names = [...new Set(["", ...urls, server])];
    if (names.join(" ") === offered || (names.length < 3 && offered === "")) return;
    offered = names.join(" ");
    const options = Object.fromEntries(names.map((name) => [name, name.replace(/^https?:\/\//, "") || "All servers"]));
    choose.replaceChildren(select("Server", options, server, (chosen) => { server = chosen; show(); }));
  };
  signal.addEventListener("abort", () => Object.values(panels).forEach((each) => each.dispose()));
  poll(EVERY_S, signal, async () => {
    try {
      const [status, tables] = await Promise.all([read("status", { names: NAMES }, signal), read("tables", { order: "requests", limit: 1000, once: true }, signal)]);
      remember(status);
      offer(status.servers.map((each) => each.server || ""));
      last = { status, tables };
      show();
    } catch (error) {
      if (signal.aborted) return;
      for (const panel of Object.values(panels)) panel.fail(error);
    }
  });
}

function select(label, options, chosen, choose) {
  const entries = Object.entries(options).map(([value, text]) => h("option", { value, selected: value === chosen }, text));
  return h("label", { class: "select" }, h("span", { class: "hidden" }, label), h("select", { onchange: (event) => choose(event.target.value) }, entries));
}

/** Keeps one reading, from which rates are made; a server that began anew begins a new line. */
function remember(status) {
  const readings = new Map();
  for (const server of status.servers) {
    // One that doesn't answer has no counts: as zeros, they would make its return a peak.
    if (server.error) continue;
    const ways = sums([server], REQUESTS, "way");
    const answered = new Map(ways);
    const other = total(sums([server], `${TOOK}`, "way"));
    readings.set(server.server || "", { uptime: server.uptime_s, answered, refused: total(sums([server], REFUSALS)), all: other });
  }
  history.push({ at: Date.now(), readings });
  if (history.length > KEPT) history.shift();
}

/** Returns points `[time, per second]` of a counter between the readings kept. */
function rates(of, server) {
  const points = [];
  for (let at = 1; at < history.length; at += 1) {
    const [before, now] = [history[at - 1], history[at]];
    let sum = 0;
    for (const [url, reading] of now.readings) {
      const earlier = before.readings.get(url);
      if ((server === "" || server === url) && earlier && reading.uptime >= earlier.uptime) sum += Math.max(0, of(reading) - of(earlier));
    }
    points.push([now.at, (1000 * sum) / (now.at - before.at)]);
  }
  return points;
}

const READY = (reading) => reading.answered.get("ready") || 0;
const BUILT = (reading) => total(reading.answered) - READY(reading);
const REFUSED = (reading) => reading.refused;

function troubles(status) {
  const found = [];
  for (const server of status.servers) {
    const name = server.server ? `${server.server}: ` : "";
    if (server.error) found.push(`${name}${server.error}`);
    for (const reason of server.reasons || []) found.push(`${name}not ready: ${reason}`);
    for (const { table, seconds, calls, clients } of server.hanging || []) {
      const under = calls.map((call) => `${call.kind} for ${call.cause}, ${duration(call.seconds)}`).join("; ");
      found.push(`${name}${table}: a request has held a thread for ${duration(seconds)}; calls to its storage: ${under || "none that takes long"}; waited for by ${clients.join(", ") || "nobody"}`);
    }
    for (const root of server.awaited_roots || []) found.push(`${name}waits for the root ${root}`);
  }
  return found.length ? [h("ul", { class: "notice bad" }, found.map((text) => h("li", {}, text)))] : [];
}

function glance(servers, tablesOpen, server) {
  const ways = sums(servers, REQUESTS, "way");
  const all = total(ways);
  const memory = total(sums(servers, "strandline_memory_bytes"));
  const limit = total(sums(servers, "strandline_memory_limit_bytes"));
  const refused = total(sums(servers, REFUSALS));
  const last = rates((reading) => total(reading.answered), server).at(-1);
  const ready = servers.filter((each) => each.ready).length;
  const isReady = servers.length > 0 && ready === servers.length;
  const state = isReady ? "Ready" : servers.length ? `${ready} of ${servers.length} ready` : "Gone";
  return [
    figure("State", state, servers.length === 1 ? `for ${duration(servers[0].uptime_s)}` : counted(servers.length, "server"), isReady ? "good" : "bad"),
    figure("Look-ups", last ? `${short(last[1])} /s` : short(all), last ? `${short(all)} in all` : "in all"),
    figure("From ready bytes", share(ways.get("ready") || 0, all), "of look-ups"),
    figure("Refused", short(refused), refused ? "requests" : "none so far", ""),
    figure("Memory", bytes(memory), `of ${bytes(limit)}`, limit && memory / limit > 0.9 ? "warn" : ""),
    figure("Tables open", whole(tablesOpen), ""),
  ];
}

/** Returns the quantile of a histogram's cumulative counts, within a bucket by a straight line. */
export function quantile(buckets, q) {
  const all = buckets.at(-1)?.[1] || 0;
  if (all === 0) return null;
  let [below, before] = [0, 0];
  for (const [bound, count] of buckets) {
    if (count >= q * all) return bound === Infinity ? below : below + ((bound - below) * (q * all - before)) / (count - before || 1);
    [below, before] = [bound, count];
  }
  return below;
}

/** Returns rows `{route, way, count, p50, p90, p99}` of the histogram of latencies, the most asked first. */
function latencies(servers) {
  const found = new Map();
  for (const server of servers) {
    for (const { name, labels, value } of server.metrics[TOOK]?.samples || []) {
      // A watch waits by design.
      if (!name?.endsWith("_bucket") || labels.route === "/v2/watch") continue;
      const key = `${labels.route}\n${labels.way}`;
      const row = found.get(key) || found.set(key, { route: labels.route, way: labels.way, buckets: new Map() }).get(key);
      const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
      row.buckets.set(bound, (row.buckets.get(bound) || 0) + value);
    }
  }
  const rows = [...found.values()].map(({ route, way, buckets }) => {
    const sorted = [...buckets].sort(([a], [b]) => a - b);
    const [p50, p90, p99] = [0.5, 0.9, 0.99].map((q) => quantile(sorted, q));
    return { route, way, count: sorted.at(-1)[1], p50, p90, p99 };
  });
  return rows.filter((row) => row.count > 0).sort((a, b) => b.count - a.count);
}

const counts = (map) => [...map].filter(([, value]) => value > 0).sort(([, a], [, b]) => b - a).map(([name, value]) => ({ name, value }));
const NUMBER = (label, cell) => ({ label, number: true, cell });

/** A drawing of counts by name as bars. */
const counting = (noun) => (found) => ({
  draw: bars(found.slice(0, MOST).map((row) => row.name), [{ name: noun, values: found.slice(0, MOST).map((row) => row.value) }], short),
  summary: found.slice(0, 5).map((row) => `${row.name}: ${whole(row.value)}`).join(", "),
  rows: found,
});

const PANELS = [
  {
    name: "requests", title: "Look-ups", height: "low", isOfTables: true,
    about: "Answers per second since this page was opened: ready ones are sent as they lie in memory, others are built.",
    empty: "Nothing was looked up yet. A writer or a client that asks for a table's files appears here.",
    columns: [{ label: "Table", long: true, cell: (row) => link(tail(row.table), "table", { table: row.table }) }, NUMBER("Look-ups", (row) => whole(row.requests)), NUMBER("Ready", (row) => share(row.requests_ready, row.requests))],
    make(servers, tables, server) {
      const rows = tables.filter((row) => row.requests > 0).sort((a, b) => b.requests - a.requests);
      const [ready, built, refused] = [READY, BUILT, REFUSED].map((of) => rates(of, server));
      const line = (name, data, colour) => ({ type: "line", name, data, showSymbol: data.length < 2, lineStyle: { width: 2 }, itemStyle: { color: colour }, areaStyle: { opacity: 0.12 } });
      const draw = (c, small) => ({
        title: ready.length ? undefined : { text: "Rates follow with the next reading", left: "center", top: "middle", textStyle: { color: c.faint, fontSize: 13, fontWeight: 400 } },
        grid: { left: 8, right: 32, top: 36, bottom: 4, containLabel: true },
        legend: {}, xAxis: axis("time", c, { min: Math.min(history[0].at, Date.now() - WINDOW_MS), max: history.at(-1).at, splitNumber: small ? 2 : 4, splitLine: { show: false } }),
        yAxis: axis("value", c, { minInterval: 0.5, axisLabel: { formatter: (value) => `${short(value)} /s` } }),
        tooltip: { trigger: "axis", valueFormatter: (value) => `${short(value)} /s` },
        series: [line("ready", ready, c.series[0]), line("built", built, c.series[1]), line("refused", refused, c.bad)],
      });
      const now = ready.length ? `now ${short(ready.at(-1)[1])} ready and ${short(built.at(-1)[1])} built answers per second` : "rates follow after the second reading";
      return { draw, summary: `Look-ups: ${now}`, rows, key: `${history.at(-1).at} ${server}` };
    },
  },
  {
    name: "latencies", title: "Latencies", height: "tall",
    about: "Time from a request to its answer, by route; the axis is logarithmic.",
    empty: "No request was answered yet.",
    columns: [{ label: "Route", long: true, cell: (row) => row.route }, { label: "Way", cell: (row) => row.way }, NUMBER("Requests", (row) => whole(row.count)), NUMBER("Half within", (row) => duration(row.p50)), NUMBER("99 % within", (row) => duration(row.p99))],
    make(servers) {
      const rows = latencies(servers);
      const shown = rows.slice(0, 10);
      const names = shown.map((row) => `${row.route} · ${row.way}`);
      const draw = (c, small) => ({
        grid: { left: 8, right: 24, top: 36, bottom: 4, containLabel: true },
        legend: {}, xAxis: axis("log", c, { axisLabel: { formatter: duration } }),
        yAxis: axis("category", c, { data: names, inverse: true, axisLine: { show: false }, axisLabel: { color: c.text, interval: 0, hideOverlap: false, formatter: (name) => (small ? name.slice(0, 16) : name.slice(0, 40)) } }),
        tooltip: { formatter: (mark) => lines(mark.name, `${mark.seriesName}: ${duration(mark.value[0])}`) },
        series: [["half within", "p50", 0], ["90 % within", "p90", 2], ["99 % within", "p99", 3]].map(([name, key, at]) => ({
          type: "scatter", name, symbolSize: 11, itemStyle: { color: c.series[at] }, data: shown.map((row, index) => [Math.max(1e-6, row[key]), index]),
        })),
      });
      return { draw, summary: shown.slice(0, 3).map((row) => `${row.route}, ${row.way}: half within ${duration(row.p50)}, 99 % within ${duration(row.p99)}`).join("; "), rows };
    },
  },
  {
    name: "refusals", title: "Refusals", height: "low",
    about: "Answers of 400 and more, by status and the code of the error.",
    empty: "No request was refused.",
    columns: [{ label: "Route", long: true, cell: (row) => row.route }, { label: "Answer", cell: (row) => `${row.status} ${row.code}` }, NUMBER("Requests", (row) => whole(row.value))],
    make(servers) {
      const drawn = counting("refusals")(counts(sums(servers, REFUSALS, "status", "code")));
      const rows = [...sums(servers, REFUSALS, "route", "status", "code")].filter(([, value]) => value > 0).sort(([, a], [, b]) => b - a);
      return { ...drawn, rows: rows.map(([key, value]) => { const [route, status, code] = key.split(" · "); return { route, status, code, value }; }) };
    },
  },
  {
    name: "newest", title: "Newest refusals",
    about: "Whom the server refused last, and why: the newest of each code, table and client. Of clients that aren’t admitted, the newest of each code.",
    empty: "No request was refused.",
    columns: [{ label: "At, UTC", cell: (row) => time(row.at) }, { label: "Answer", cell: (row) => `${row.status} ${row.code}` }, { label: "Table", long: true, cell: (row) => row.table || "–" }, { label: "Client", cell: (row) => row.client || "–" },
      { label: "Reason", long: true, cell: (row) => row.reason }, { label: "Request", long: true, cell: (row) => row.request }, NUMBER("Times", (row) => whole(row.count))],
    make(servers) {
      const rows = servers.flatMap((server) => server.newest_refusals || []).sort((a, b) => (a.at < b.at ? 1 : -1));
      return { draw: null, summary: "Newest refusals", rows };
    },
  },
  {
    name: "syncs", title: "Syncs", height: "low",
    about: "Reads of tables' timelines, by what caused them.",
    empty: "No timeline was read again yet.",
    columns: [{ label: "Cause", cell: (row) => row.name }, NUMBER("Syncs", (row) => whole(row.value))],
    make: (servers) => counting("syncs")(counts(sums(servers, "strandline_syncs_total", "cause"))),
  },
  {
    name: "storage", title: "Storage calls saved", height: "low", isOfTables: true,
    about: "Without the service each look-up lists its partition. Saved are the look-ups that needed no list.",
    empty: "No look-up was answered yet, so none was saved.",
    columns: [{ label: "Table", long: true, cell: (row) => link(tail(row.table), "table", { table: row.table }) }, NUMBER("Made", (row) => whole(row.storage_calls)), NUMBER("Saved", (row) => whole(row.storage_calls_saved))],
    make(_, tables) {
      const rows = tables.filter((row) => row.storage_calls || row.storage_calls_saved).sort((a, b) => b.storage_calls_saved - a.storage_calls_saved);
      const shown = rows.slice(0, MOST);
      const series = [{ name: "saved", values: shown.map((row) => row.storage_calls_saved), colour: (c) => c.good }, { name: "made", values: shown.map((row) => row.storage_calls), colour: (c) => c.quiet }];
      const sum = (key) => rows.reduce((all, row) => all + row[key], 0);
      return { draw: bars(shown.map((row) => tail(row.table)), series, short), summary: `${whole(sum("storage_calls_saved"))} calls saved, ${whole(sum("storage_calls"))} made`, rows };
    },
  },
  {
    name: "memory", title: "Memory", height: "low",
    about: "The service's budget by account. When it is spent, ready answers are dropped first, then older snapshots.",
    empty: "No memory is held for any table.",
    columns: [{ label: "Account", cell: (row) => row.name.replaceAll("_", " ") }, NUMBER("Bytes", (row) => bytes(row.value)), NUMBER("Of the budget", (row) => share(row.value, row.limit))],
    make(servers) {
      const limit = total(sums(servers, "strandline_memory_limit_bytes"));
      const found = [...sums(servers, "strandline_memory_bytes", "account")].map(([name, value]) => ({ name, value, limit }));
      const used = total(new Map(found.map((row) => [row.name, row.value])));
      const free = { name: "free", value: Math.max(0, limit - used), limit };
      const draw = (c, small) => ({
        legend: { type: "plain" }, grid: { left: 8, right: 16, top: small ? 72 : 44, height: 60, containLabel: true },
        xAxis: axis("value", c, { max: Math.max(limit, used), axisLabel: { formatter: bytes } }),
        yAxis: axis("category", c, { data: [""], axisLine: { show: false } }),
        tooltip: { formatter: (mark) => lines(mark.seriesName, bytes(mark.value), `${share(mark.value, limit)} of the budget`) },
        series: [...found, free].map((row, at) => ({ type: "bar", stack: "all", name: row.name.replaceAll("_", " "), data: [row.value], barWidth: 36, itemStyle: { color: row === free ? c.line : c.series[at % c.series.length] } })),
      });
      draw.height = 140;
      const resident = total(sums(servers, "process_resident_memory_bytes"));
      const rows = resident ? [...found, free, { name: "whole process, resident", value: resident, limit: 0 }] : [...found, free];
      return { draw, summary: `${bytes(used)} of ${bytes(limit)} are held`, rows: limit ? rows : [] };
    },
  },
];
const NAMES = [REQUESTS, TOOK, REFUSALS, "strandline_syncs", "strandline_memory", "process_resident"].join(",");
