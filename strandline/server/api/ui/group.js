// One file group: its slices over the instants at which they began.

import { read, watch } from "./api.js";
import { axis, lines } from "./chart.js";
import { bytes, counted, h, link, named, tail, time, whole } from "./dom.js";
import { figure, Panel } from "./panel.js";

export function groupView(main, parameters, signal) {
  const { table = "", partition = "", file_id = "" } = parameters;
  const head = h("dl", { class: "figures", "aria-label": "At a glance" });
  const number = (label, cell) => ({ label, number: true, cell });
  const slices = new Panel("Slices", "Each slice is a base file, from its instant on, and the logs that were written upon it. Pale ones are no longer the newest.", {
    height: "tall", empty: "The group has no slice.",
    columns: [{ label: "Instant", cell: (row) => row.base_instant }, { label: "State", cell: (row) => state(row) }, number("Base", (row) => bytes(row.size)), number("Logs", (row) => whole(row.logs.length)), number("Bytes", (row) => bytes(row.bytes))],
  });
  const files = new Panel("Files", "Every file of the group, oldest first.", {
    empty: "The group has no file.",
    columns: [{ label: "File", long: true, cell: (row) => row.path }, { label: "Written by", cell: (row) => row.instant }, number("Bytes", (row) => bytes(row.size)), { label: "Modified, UTC", cell: (row) => time(row.modified_at) }],
  });
  main.append(
    h("p", { class: "trail" }, link(tail(table), "table", { table }), " / ", link(named(partition), "table", { table, partition })),
    h("div", { class: "title" }, h("h1", { class: "long" }, file_id)), head, slices.element, files.element);
  signal.addEventListener("abort", () => [slices, files].forEach((each) => each.dispose()));
  let seen = null;
  const load = async () => {
    try {
      const found = await read("group", { table, partition, file_id }, signal);
      if (seen === null) watch(table, (seen = found.state), signal, load);
      const { rows } = found;
      head.replaceChildren(
        figure("Slices", whole(rows.length), ""),
        figure("Bytes", bytes(rows.reduce((sum, row) => sum + row.bytes, 0)), "of all slices"),
        figure("Pending", found.pending ? found.pending.action : "nothing", found.pending ? `requested at ${found.pending.requested_time}` : "", found.pending ? "warn" : ""),
        figure("Replaced by", found.replaced_by || "nothing", ""));
      slices.show({ draw: drawing(rows), rows, summary: rows.slice(-5).map((row) => `${row.base_instant}: ${bytes(row.bytes)}, ${counted(row.logs.length, "log")}`).join("; ") });
      files.show({ draw: null, summary: "Files", rows: rows.flatMap((row) => [...(row.path ? [{ ...row, instant: row.base_instant }] : []), ...row.logs]) });
    } catch (error) {
      if (!signal.aborted) [slices, files].forEach((each) => each.fail(error, load));
    }
  };
  load();
}

const state = (row) => h("span", { class: `tag ${row.newest ? "good" : row.visible ? "quiet" : "warn"}` }, row.newest ? "newest" : row.visible ? "older" : "not visible");

function drawing(rows) {
  const most = Math.max(0, ...rows.map((row) => row.logs.length));
  const faded = (row) => (row.newest ? 1 : row.visible ? 0.45 : 0.25);
  return (c) => ({
    legend: { data: most ? ["base file", "log 1"] : ["base file"], formatter: (name) => (name === "log 1" ? "logs" : name) },
    grid: { left: 8, right: 16, top: 36, bottom: 20, containLabel: true },
    xAxis: axis("category", c, { data: rows.map((row) => row.base_instant), axisLabel: { formatter: (text) => `${text.slice(4, 6)}-${text.slice(6, 8)}\n${text.slice(8, 10)}:${text.slice(10, 12)}` } }),
    yAxis: axis("value", c, { axisLabel: { formatter: bytes } }),
    tooltip: { formatter: (mark) => lines(mark.data.path, bytes(mark.data.value)) },
    series: [
      { type: "bar", stack: "all", name: "base file", barMaxWidth: 44, data: rows.map((row) => ({ value: row.size || 0, path: row.path || "no base file", itemStyle: { color: c.series[0], opacity: faded(row) } })) },
      ...Array.from({ length: most }, (_, at) => ({
        type: "bar", stack: "all", name: `log ${at + 1}`, barMaxWidth: 44, itemStyle: { color: c.series[1], borderColor: c.ground, borderWidth: 1 },
        data: rows.map((row) => (row.logs[at] ? { value: row.logs[at].size, path: row.logs[at].path, itemStyle: { opacity: faded(row) } } : { value: 0, path: "" })),
      })),
    ],
  });
}
