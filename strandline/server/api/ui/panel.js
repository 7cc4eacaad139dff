// A panel: a drawing with a table beside it, while it loads, is empty, fails, or shows its data.

import { Chart } from "./chart.js";
import { h, table } from "./dom.js";

/** Heights in pixels: of a row of the table, and of the tallest drawing that is no taller than it needs. */
const ROW = 34;
const TALLEST = { low: 272, tall: 384 };
let number = 0;

export class Panel {
  /**
   * @param {string} title
   * @param {string} about One sentence: what the drawing shows.
   * @param {object} options `columns` of the table; `caption`, read by screen readers; `empty`, the
   *   text without data; `height` of the drawing; `clicked`, called with ECharts' event; `tools`;
   *   `ages`: cells depend on the time, too.
   */
  constructor(title, about, options) {
    Object.assign(this, { options, shown: null, drawn: null });
    const id = `panel-${(number += 1)}`;
    this.state = h("div", { class: "state", role: "status" });
    this.picture = h("div", { class: "drawing", role: "img" });
    this.beside = h("div", { class: "beside", tabindex: "0", role: "region", "aria-label": `${title}: table` });
    this.more = h("div", { class: "more" });
    this.pair = h("div", { class: `pair ${options.height || "low"}${options.columns ? "" : " alone"}` }, this.picture,
      h("div", { class: "side" }, this.beside, this.more));
    this.title = h("h2", { id }, title);
    this.about = h("p", { class: "about" }, about);
    this.element = h("section", { class: "panel", "aria-labelledby": id },
      h("div", { class: "head" }, h("div", {}, this.title, this.about), h("div", { class: "tools" }, options.tools || [])),
      this.state, this.pair);
    this.chart = new Chart(this.picture, options.clicked);
    this.loading();
  }

  /** Shows that the first data is awaited; later readings leave what is drawn. */
  loading() {
    if (this.shown === null) this.#say("loading", h("span", { class: "pulse" }), "Loading");
  }

  fail(error, retry) {
    this.#say("", failure(error, retry));
  }

  /**
   * Shows data.
   *
   * @param {object} found `draw` describes the drawing, `summary` says in words what it shows, `rows`
   *   are those of the table, `more` loads further rows, `key` names what else is drawn.
   */
  show({ draw, summary, rows, more = null, key = null }) {
    const seen = JSON.stringify([summary, rows, more === null]);
    if (rows.length === 0) {
      this.shown = null;
      this.#say("empty", this.options.empty);
      return;
    }
    this.state.replaceChildren();
    this.state.className = "state";
    this.pair.hidden = false;
    this.picture.hidden = !draw;
    this.pair.classList.toggle("undrawn", !draw);
    const isSame = seen === this.shown;
    if (isSame && key === this.drawn && !this.options.ages) return;
    Object.assign(this, { shown: seen, drawn: key });
    this.picture.setAttribute("aria-label", summary);
    if (draw?.height) this.pair.style.setProperty("--height", `${Math.min(TALLEST[this.options.height] || TALLEST.low, Math.max(draw.height, ROW * (rows.length + 1)))}px`);
    if (draw) this.chart.draw(draw);
    if (isSame && !this.options.ages) return;
    const focused = this.beside.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const top = this.beside.scrollTop;
    this.beside.replaceChildren(table(this.options.caption || summary, this.options.columns, rows));
    // Not at the start: the browser would lay out the table at once, and again with what follows.
    if (top) this.beside.scrollTop = top;
    if (focused) [...this.beside.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused)?.focus();
    this.more.replaceChildren(...(more ? [h("button", { type: "button", onclick: more }, "Show more")] : []));
  }

  #say(kind, ...content) {
    this.pair.hidden = true;
    this.state.className = `state ${kind}`;
    this.state.replaceChildren(...content);
  }

  dispose() {
    this.chart.dispose();
  }
}

/** What an error says, and a button to try again. */
export function failure(error, retry) {
  const details = [error.status && `${error.status} ${error.code}`, error.requestId && `request ${error.requestId}`];
  return h("div", { class: "failed" },
    h("strong", {}, error.message),
    error.allowed ? h("p", {}, `Allowed: ${error.allowed}`) : null,
    error.hint ? h("p", {}, error.hint) : null,
    h("p", { class: "faint" }, details.filter(Boolean).join(", ")),
    retry ? h("button", { type: "button", onclick: (event) => { event.currentTarget.disabled = true; retry(); } }, "Try again") : null);
}

/** One figure in large type. */
export function figure(label, value, detail = "", tone = "") {
  return h("div", { class: `figure ${tone}` }, h("dt", {}, label), h("dd", {}, h("span", { class: value.length > 13 ? "value long" : "value" }, value), h("span", { class: "detail" }, detail)));
}
