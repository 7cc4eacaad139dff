// Elements and their text. Names come from tables and clients, so text is only ever set as text.

/** Makes an element: `on…` are listeners, other properties attributes; `null` and `false` are left out. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Returns the address of a view of this page. */
export function address(name, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return `#/${name}${query ? `?${query}` : ""}`;
}

export const link = (text, name, parameters) => h("a", { href: address(name, parameters) }, text);

const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const whole = (value) => (value === null || value === undefined ? "–" : WHOLE.format(value));
export const short = (value) => (value < 10000 ? WHOLE.format(value < 10 ? Math.round(value * 100) / 100 : Math.round(value * 10) / 10) : SHORT.format(value));
export const share = (part, of) => (of > 0 ? `${Math.round((1000 * part) / of) / 10} %` : "–");
export const counted = (count, noun) => `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let [amount, unit] = [value, 0];
  for (; amount >= 999.5 && unit < 5; unit += 1) amount /= 1000;
  return `${unit && amount < 9.95 ? amount.toFixed(1) : Math.round(amount)} ${["B", "kB", "MB", "GB", "TB", "PB"][unit]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${Number((seconds * 1000).toPrecision(2))} ms`;
  if (seconds < 120) return `${seconds < 10 ? Number(seconds.toPrecision(2)) : Math.round(seconds)} s`;
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];
  const at = units.findIndex(([size]) => seconds >= 2 * size);
  const [size, name] = units[at < 0 ? 2 : at];
  return `${Math.floor(seconds / size)} ${name}`;
}

/** Returns a time in UTC, to the second. */
export const time = (text) => (text ? `${text.slice(0, 10)} ${text.slice(11, 19)}` : "–");
export const since = (text) => (text ? duration(Math.max(0, (Date.now() - Date.parse(text)) / 1000)) : "–");
/** Returns the last part of a path, of which the whole is too long for a label. */
export const tail = (path) => path.replace(/\/+$/, "").split("/").pop() || path;
export const named = (partition) => (partition === "" ? "(the table itself)" : partition);

/** A choice of one of a few, such as what a drawing measures. */
export function choice(label, options, chosen, choose) {
  const buttons = Object.entries(options).map(([key, text]) =>
    h("button", { type: "button", "aria-pressed": String(key === chosen), onclick: () => {
      for (const each of buttons) each.setAttribute("aria-pressed", String(each === buttons[Object.keys(options).indexOf(key)]));
      choose(key);
    } }, text));
  return h("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}

/**
 * Makes a table.
 *
 * A column is `{label, cell, number, long}`; the text of a `long` one is broken to lines; `cell` returns a text or an element for a row.
 */
export function table(caption, columns, rows) {
  const kind = (column) => ({ class: column.number ? "number" : column.long ? "long" : null });
  const head = h("tr", {}, columns.map((column) => h("th", { scope: "col", ...kind(column) }, column.label)));
  const body = rows.map((row) => h("tr", {}, columns.map((column) => h("td", kind(column), column.cell(row)))));
  return h("table", {}, h("caption", {}, caption), h("thead", {}, head), h("tbody", {}, body));
}
