// One table: its timeline and what holds it up, its partitions, what a clean would remove.

import { read, watch } from "./api.js";
import { axis, bars, cut, lines, plain } from "./chart.js";
import { address, bytes, choice, counted, duration, h, link, named, share, short, since, tail, time, whole } from "./dom.js";
import { failure, figure, Panel } from "./panel.js";

const NEWEST = 400;
const MARKS = 800;
const BARS = 24;
/** What a clean would delete takes a second of the server's processor for a million files. */
const CLEAN_EVERY_MS = 30e3;

export function tableView(main, parameters, signal) {
  const table = parameters.table || "";
  const place = { prefix: parameters.prefix || "", partition: parameters.partition ?? null };
  const head = h("dl", { class: "figures", "aria-label": "At a glance" });
  const trail = h("nav", { class: "trail", "aria-label": "Partitions" });
  const panels = makePanels(table, place, () => parts.partitions(), () => parts.timeline());
  const failed = h("div", { role: "status" });
  const content = h("div", {}, head,
    panels.timeline.element, panels.pending.element, panels.leases.element, panels.partitions.element,
    panels.slices.element, panels.clean.element);
  main.append(h("div", { class: "title" }, h("h1", {}, tail(table)), h("p", { class: "faint" }, table)), failed, content);
  panels.partitions.element.querySelector(".head").after(trail);
  signal.addEventListener("abort", () => Object.values(panels).forEach((each) => each.dispose?.()));

  /** Returns what fills a panel; a run ends the one before, whose answer would be of what was shown before. */
  const filled = (panel, load) => {
    let run = new AbortController();
    return async (...given) => {
      run.abort();
      run = new AbortController();
      const either = AbortSignal.any([signal, run.signal]);
      panel.loading();
      panel.element.setAttribute("aria-busy", "true");
      try {
        await load((route, more) => read(route, { table, ...more }, either), ...given);
      } catch (error) {
        if (!either.aborted) panel.fail(error, () => parts[panel.key]());
      }
      if (!either.aborted) panel.element.removeAttribute("aria-busy");
    };
  };
  let [archive, oldest, many, files] = [null, null, NEWEST, NEWEST];
  // The leases are drawn in the timeline, too; they are asked for once.
  let [leases, leasesRead] = [[], null];
  let [isCleanOld, cleanReadAt] = [true, -Infinity];
  const recent = () => ({ order: "newest", limit: many, once: true });
  const parts = {
    timeline: filled(panels.timeline, async (ask, given = null) => {
      const newest = given || (await ask("timeline", recent()));
      const { rows } = newest;
      const older = newest.more ? unpacked((await ask("timeline", { summary: true, marks: MARKS })).marks) : [];
      // The archive only grows, by the oldest that are completed: it is read again once these are others.
      const first = begun(older, rows);
      if (archive === null || first !== oldest) {
        archive = unpacked((await ask("timeline", { summary: true, archived: true, marks: MARKS })).marks).filter((mark) => mark.archived);
        oldest = first;
      }
      await leasesRead;
      const more = newest.more ? () => { many = Math.min(10000, 4 * many); parts.timeline(); } : null;
      const runs = [...archive, ...older.filter((mark) => mark.end < rows.at(-1).requested_time)];
      const archived = archive.reduce((sum, mark) => sum + mark.instants, 0);
      panels.timeline.show({
        draw: timelineDrawing(runs, rows, leases, panels.range), rows, more, key: JSON.stringify([runs, leases]),
        summary: `${counted(rows.length, "instant")}, newest ${newest.instant || "none"}, and ${whole(archived)} in the archive; ${panels.range}`,
      });
    }),
    pending: filled(panels.pending, async (ask) => panels.pending.show({ draw: null, summary: "Pending instants", rows: (await ask("pending", { once: true })).rows })),
    leases: filled(panels.leases, async (ask) => {
      leases = (await ask("leases", { once: true })).rows;
      panels.leases.show({ draw: null, summary: "Leases of readers", rows: leases });
    }),
    partitions: filled(panels.partitions, async (ask) => {
      const found = await ask("partitions", { summary: true, prefix: place.prefix || null });
      const rows = unpacked(found.marks);
      trail.replaceChildren(...crumbs(table, place));
      head.replaceChildren(...glance(found));
      const { total } = found;
      panels.partitions.show({
        draw: treemap(rows, panels.size, panels.within), rows,
        summary: `${counted(total.partitions, "partition")}, ${counted(total.slices, "slice")}, ${bytes(total.bytes)}; by ${panels.size}`,
      });
    }),
    slices: filled(panels.slices, async (ask) => {
      panels.slices.element.hidden = place.partition === null;
      if (place.partition === null) return;
      const { partition } = place;
      panels.slices.title.textContent = `Slices of ${named(partition)}`;
      const found = await ask("slices", { partition, limit: files, once: true });
      const more = found.more ? () => { files = Math.min(10000, 4 * files); parts.slices(); } : null;
      const largest = [...found.rows].sort((a, b) => b.bytes - a.bytes).slice(0, BARS);
      const series = [{ name: "base file", values: largest.map((row) => row.size || 0) }, { name: "logs", values: largest.map((row) => row.bytes - (row.size || 0)) }];
      panels.slices.show({ draw: bars(largest.map((row) => row.file_id), series, bytes), rows: found.rows, more, summary: `${counted(found.rows.length, "newest slice")} of ${named(partition)}` });
    }),
    clean: filled(panels.clean, async (ask) => {
      const found = await ask("clean", { summary: true });
      const rows = unpacked(found.marks);
      const shown = rows.slice(0, BARS / 2);
      const why = Object.entries(found.reasons || {}).map(([reason, count]) => `${counted(count, "file")}: ${reason}`).join("; ");
      panels.clean.about.textContent = `Files that a clean would delete now by the policy ${found.policy}${found.earliest ? `, which keeps what readers since ${found.earliest} need` : ""}.`;
      panels.clean.show({ draw: bars(shown.map((row) => label(row.path)), [{ name: "bytes", values: shown.map((row) => row.bytes), colour: (c) => c.warn }], bytes), rows, summary: `${counted(found.total.files, "file")}, ${bytes(found.total.bytes)}. ${why}` });
    }),
  };
  const all = (newest = null) => {
    leasesRead = parts.leases();
    isCleanOld = true;
    return Promise.all([leasesRead, parts.timeline(newest), parts.pending(), parts.partitions(), parts.slices()]).then(cleaned);
  };
  /** Reads what a clean would delete, after everything else, and not with each of many commits. */
  const cleaned = async () => {
    if (!isCleanOld || Date.now() - cleanReadAt < CLEAN_EVERY_MS) return;
    isCleanOld = false;
    await parts.clean();
    cleanReadAt = Date.now();
  };
  // Heartbeats and leases change, and grow old, without a commit.
  const idle = () => Promise.all([parts.pending(), parts.leases(), cleaned()]);
  const begin = async () => {
    try {
      // Of a table that can't be opened, the reason is shown once.
      const newest = await read("timeline", { table, ...recent() }, signal);
      failed.replaceChildren();
      content.hidden = false;
      await all(newest);
      await watch(table, newest.state, signal, all, idle);
    } catch (error) {
      if (signal.aborted) return;
      content.hidden = true;
      failed.replaceChildren(failure(error, begin));
    }
  };
  begin();
  return (to) => {
    if (to.table !== table) return false;
    Object.assign(place, { prefix: to.prefix || "", partition: to.partition ?? null });
    files = NEWEST;
    parts.partitions();
    parts.slices().then(() => { if (place.partition !== null) panels.slices.element.scrollIntoView({ block: "nearest" }); });
    return true;
  };
}

function makePanels(table, place, resized, ranged) {
  const inside = (row) => (row.path === null ? null : row.is_leaf ? { table, prefix: place.prefix || null, partition: row.path } : { table, prefix: `${row.path}/` });
  const within = (row) => label(row.path?.startsWith(place.prefix) ? row.path.slice(place.prefix.length) : row.path);
  const panels = { within, size: "bytes", range: "all" };
  const partition = (row) => (row.path === null ? "all others" : link(within(row), "table", inside(row)));
  const sizes = choice("Area by", { bytes: "Bytes", slices: "Slices" }, "bytes", (key) => { panels.size = key; resized(); });
  const ranges = choice("Time shown", { all: "All", month: "30 days", day: "24 hours", hour: "1 hour" }, "all", (key) => { panels.range = key; ranged(); });
  const number = (name, cell) => ({ label: name, number: true, cell });
  const made = {
    timeline: new Panel("Timeline", "Instants by action, from request to completion. Archived ones are pale, pending ones are outlined.", {
      height: "tall", tools: [ranges], empty: "The table has no instant yet.", caption: "The newest instants",
      columns: [{ label: "Instant", cell: (row) => row.requested_time }, { label: "Action", cell: (row) => row.action },
        { label: "State", cell: (row) => h("span", { class: `tag ${row.state === "COMPLETED" ? "good" : "warn"}` }, row.state.toLowerCase()) },
        number("Took", (row) => (row.completed_at && row.requested_at ? duration((Date.parse(row.completed_at) - Date.parse(row.requested_at)) / 1000) : "–"))],
    }),
    pending: new Panel("Held up by writers", "Instants that aren’t completed. One whose heartbeat is old belongs to a writer that died; the next write rolls it back.", {
      empty: "No instant is pending.", ages: true,
      columns: [{ label: "Instant", cell: (row) => row.requested_time }, { label: "Action", cell: (row) => row.action }, { label: "State", cell: (row) => row.state.toLowerCase() }, number("Pending for", (row) => since(row.requested_at)),
        number("Last heartbeat", (row) => (row.heartbeat_at ? `${since(row.heartbeat_at)} ago` : "none")), number("File groups", (row) => whole(row.file_groups))],
    }),
    leases: new Panel("Held by readers", "Leases, for which a clean and the archive keep files and instants.", {
      empty: "No reader holds a lease.",
      columns: [{ label: "Holder", long: true, cell: (row) => row.holder || row.id }, { label: "Reads at", cell: (row) => row.instant || "–" }, { label: "Keeps since", cell: (row) => row.earliest || "–" }, { label: "Expires, UTC", cell: (row) => time(row.expires_at) }, { label: "Problem", long: true, cell: (row) => row.problem || "" }],
    }),
    partitions: new Panel("Partitions", "Area by size; the darker, the more slices. Choose one to look into it.", {
      height: "tall", tools: [sizes], empty: "The table has no file yet.", caption: "Partitions",
      clicked: (mark) => { const to = mark.data?.row && inside(mark.data.row); if (to) location.hash = address("table", to); },
      columns: [{ label: "Partition", long: true, cell: partition }, number("Partitions", (row) => whole(row.partitions)), number("Groups", (row) => whole(row.file_groups)), number("Slices", (row) => whole(row.slices)), number("Bytes", (row) => bytes(row.bytes))],
    }),
    slices: new Panel("Slices", "The newest slice of each file group: its base file and the logs upon it.", {
      height: "tall", empty: "This partition has no file.",
      columns: [{ label: "File group", long: true, cell: (row) => link(row.file_id, "group", { table, partition: row.partition, file_id: row.file_id }) }, { label: "Since", cell: (row) => row.base_instant }, number("Base", (row) => bytes(row.size)), number("Logs", (row) => whole(row.logs)), number("Bytes", (row) => bytes(row.bytes))],
    }),
    clean: new Panel("Clean", "Files that a clean would delete now.", {
      height: "low", empty: "A clean would delete nothing.",
      columns: [{ label: "Partition", long: true, cell: (row) => (row.path === null ? "all others" : label(row.path)) }, number("Files", (row) => whole(row.files)), number("Bytes", (row) => bytes(row.bytes))],
    }),
  };
  for (const [key, panel] of Object.entries(made)) panel.key = key;
  return Object.assign(panels, made);
}

const label = (path) => (path === null ? "all others" : named(path));

/** Returns marks in columns as objects. */
function unpacked(marks) {
  const names = Object.keys(marks);
  return marks[names[0]].map((_, at) => Object.fromEntries(names.map((name) => [name, marks[name][at]])));
}

/** Returns in a text when the oldest completed instant of each action was requested. */
function begun(runs, rows) {
  const first = new Map();
  for (const { action, state, begin, requested_time: time = begin } of [...runs, ...rows]) {
    if (state === "COMPLETED" && !(first.get(action) <= time)) first.set(action, time);
  }
  return [...first].flat().sort().join(" ");
}

function glance({ total, instant }) {
  return [
    figure("Newest instant", instant || "none", ""),
    figure("Bytes", bytes(total.bytes), "of newest slices"),
    figure("Partitions", short(total.partitions), ""),
    figure("File groups", short(total.file_groups), ""),
    figure("Logs", short(total.log_files), total.log_files ? "not compacted" : ""),
    figure("Older slices", share(total.slices - total.file_groups, total.slices), "of all slices"),
  ];
}

function crumbs(table, place) {
  const steps = place.prefix.split("/").filter(Boolean);
  const found = [link("All", "table", { table })];
  for (let at = 0; at < steps.length; at += 1) found.push(" / ", link(steps[at], "table", { table, prefix: `${steps.slice(0, at + 1).join("/")}/` }));
  found.at(-1).setAttribute?.("aria-current", "true");
  return found;
}

const HOUR_MS = 3600e3;
const RANGES = { all: Infinity, month: 720 * HOUR_MS, day: 24 * HOUR_MS, hour: HOUR_MS };
const LEASES = "held by readers";

/** Returns an instant, text in the table's zone, as if that zone were UTC; in milliseconds. */
function written(instant) {
  const [year, month, day, hour, minute, second, ms] = instant.match(/^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d{3})?/)?.slice(1).map(Number) || [];
  return Date.UTC(year, month - 1, day, hour, minute, second, ms || 0);
}

/**
 * Draws instants as bars in a lane for each action.
 *
 * `runs` are sums of instants, of which only the texts are known; `rows` single instants, with times.
 */
function timelineDrawing(runs, rows, leases, range) {
  const now = Date.now();
  const known = rows.find((row) => row.requested_at);
  const zone = known ? written(known.requested_time) - Date.parse(known.requested_at) : 0;
  const at = (instant) => written(instant) - zone;
  const drawn = [
    ...runs.map((run) => ({ ...run, begin: at(run.begin), end: at(run.end), text: counted(run.instants, run.archived ? "archived instant" : "instant") })),
    ...rows.map((row) => ({ ...row, begin: at(row.requested_time), end: row.completed_at ? Date.parse(row.completed_at) : now, text: row.requested_time })),
    ...leases.map((lease) => ({ action: LEASES, begin: at(lease.earliest || lease.instant || ""), end: now, text: lease.holder || lease.id, state: "LEASE", archived: false })),
  ].filter((mark) => !Number.isNaN(mark.begin));
  const lanes = [...new Set(drawn.map((mark) => mark.action))];
  // What is pending for long, drawn until now, must not leave the others without room.
  const first = Math.min(...drawn.map((mark) => mark.begin));
  const done = Math.max(...drawn.filter((mark) => mark.end !== now).map((mark) => mark.end));
  const last = Math.min(Math.max(...drawn.map((mark) => mark.end)), done > first ? done + 0.15 * (done - first) : Infinity);
  const from = Math.max(first, last - RANGES[range]);
  return (c) => ({
    grid: { left: 8, right: 28, top: 12, bottom: 4, containLabel: true },
    xAxis: axis("time", c, { min: from, max: last, splitLine: { show: true, lineStyle: { color: c.line } } }),
    yAxis: axis("category", c, { data: lanes, inverse: true, axisLabel: { color: c.text, interval: 0 } }),
    tooltip: { formatter: ({ data }) => lines(data.mark.action, data.mark.text, data.mark.state.toLowerCase(), `${time(new Date(data.mark.begin).toISOString())} UTC`, duration((data.mark.end - data.mark.begin) / 1000)) },
    series: [{
      type: "custom", clip: true, encode: { x: [0, 1], y: 2 },
      data: drawn.map((mark) => ({ value: [mark.begin, mark.end, lanes.indexOf(mark.action)], mark })),
      renderItem: (parameters, api) => {
        const mark = drawn[parameters.dataIndex];
        const [[x, y], [end]] = [api.coord([mark.begin, api.value(2)]), api.coord([mark.end, api.value(2)])];
        const height = Math.min(22, 0.6 * api.size([0, 1])[1]);
        const isPending = mark.state !== "COMPLETED" && mark.state !== "LEASE";
        const colour = mark.state === "LEASE" ? c.quiet : isPending ? c.warn : c.series[lanes.indexOf(mark.action) % c.series.length];
        return {
          type: "rect", shape: { x: x - 1, y: y - height / 2, width: Math.max(3, end - x + 1), height, r: 2 },
          style: isPending ? { fill: c.card, stroke: colour, lineWidth: 2 } : { fill: colour, opacity: mark.archived ? 0.35 : 1 },
        };
      },
    }],
  });
}

function treemap(rows, size, within) {
  const most = Math.max(1, ...rows.map((row) => row.slices));
  return (c) => ({
    tooltip: { formatter: ({ data }) => (data?.row ? lines(label(data.row.path), bytes(data.row.bytes), counted(data.row.slices, "slice"), counted(data.row.file_groups, "file group"), counted(data.row.partitions, "partition")) : "") },
    series: [{
      type: "treemap", left: 0, right: 0, top: 0, bottom: 0, roam: false, nodeClick: false, breadcrumb: { show: false }, visibleMin: 4,
      label: { color: "#fff", fontSize: 12, lineHeight: 16, overflow: "truncate", formatter: ({ data }) => (data.row ? `${cut(plain(data.name), 40)}\n${size === "bytes" ? bytes(data.row.bytes) : counted(data.row.slices, "slice")}` : "") },
      itemStyle: { borderColor: c.ground, borderWidth: 1, gapWidth: 1, borderRadius: 2 }, cursor: "pointer",
      data: rows.map((row) => ({ name: within(row), value: Math.max(1, row[size]), row, itemStyle: { color: shade(row.slices / most) } })),
    }],
  });
}

/** Returns a blue from middle to dark, on which white text is legible. */
function shade(part) {
  const mix = [[74, 134, 211], [17, 56, 116]];
  return `rgb(${[0, 1, 2].map((at) => Math.round(mix[0][at] + part * (mix[1][at] - mix[0][at]))).join(",")})`;
}
