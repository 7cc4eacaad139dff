// Drawings by ECharts: one look for all, in the colours of the style sheet, light or dark.

/** A megabyte: the page asks for its data while the library is loaded. */
const library = import("./vendor/echarts-6.1.0.esm.min.js");
let echarts = null;

const scheme = matchMedia("(prefers-color-scheme: dark)");

/** Returns the colours of the style sheet as they are now. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    text: of("text"), faint: of("faint"), line: of("line"), ground: of("ground"), card: of("card"),
    good: of("good"), warn: of("warn"), bad: of("bad"), quiet: of("quiet"),
    series: [1, 2, 3, 4, 5, 6, 7].map((number) => of(`series-${number}`)), font: style.fontFamily,
  };
}

/** Keeps ECharts from reading marks of its rich text in a name. */
export const plain = (text) => String(text).replaceAll("{", "{\u200b");
/** Shortens a text to a label. */
export const cut = (text, length = 28) => (text.length > length ? `…${text.slice(1 - length)}` : text);

/** Lines of a tooltip, below the name that they are about. */
export const lines = (name, ...more) => [cut(plain(name), 60), ...more].join("\n");

export function axis(kind, c, more = {}) {
  const grid = { splitLine: { show: kind !== "category", lineStyle: { color: c.line } } };
  return {
    type: kind, axisLine: { show: kind === "category", lineStyle: { color: c.line } }, axisTick: { show: false },
    ...grid, ...more, axisLabel: { color: c.faint, fontSize: 12, hideOverlap: true, ...more.axisLabel },
  };
}

/** One drawing in its box; `describe` returns ECharts' option for the colours. */
export class Chart {
  constructor(box, clicked) {
    this.box = box;
    this.chart = null;
    this.describe = null;
    this.clicked = clicked;
    this.redraw = () => this.draw(this.describe);
    this.sizes = new ResizeObserver(() => this.#fit());
    scheme.addEventListener("change", this.redraw);
  }

  draw(describe) {
    if (!describe) return;
    this.describe = describe;
    if (echarts === null) this.#wait();
    else this.#draw(describe);
  }

  /** Draws once the library is there, if nothing else is to be drawn by then. */
  async #wait() {
    const { describe } = this;
    this.box.setAttribute("aria-busy", "true");
    try {
      echarts = await library;
    } catch (error) {
      this.box.textContent = `Nothing can be drawn; the table has the figures. Reload the page to try again. (${error.message})`;
      return;
    } finally {
      this.box.removeAttribute("aria-busy");
    }
    if (this.describe === describe) this.#draw(describe);
  }

  /** Follows the size of the box, which an observer reports once at the start, too. */
  #fit() {
    const { clientWidth: width, clientHeight: height } = this.box;
    if (this.chart && (width !== this.chart.getWidth() || height !== this.chart.getHeight())) this.chart.resize();
  }

  #draw(describe) {
    if (this.chart === null) {
      this.chart = echarts.init(this.box);
      this.sizes.observe(this.box);
      if (this.clicked) this.chart.on("click", this.clicked);
    }
    const c = colours();
    const option = describe(c, this.box.clientWidth < 480, this.box.clientHeight);
    this.chart.setOption({
      animation: false, color: c.series, backgroundColor: "transparent",
      textStyle: { fontFamily: c.font, color: c.text, fontSize: 12 },
      grid: { left: 8, right: 16, top: 12, bottom: 4, containLabel: true, outerBoundsMode: "same" },
      ...option,
      legend: option.legend && {
        icon: "roundRect", itemWidth: 10, itemHeight: 10, left: 0, top: 0, type: "scroll",
        textStyle: { color: c.faint, fontSize: 12 }, pageTextStyle: { color: c.faint }, ...option.legend,
      },
      tooltip: {
        renderMode: "richText", confine: true, backgroundColor: c.card, borderColor: c.line, borderWidth: 1,
        padding: [8, 12], textStyle: { color: c.text, fontSize: 12, fontFamily: c.font, lineHeight: 18 },
        ...option.tooltip,
      },
    }, { notMerge: true });
  }

  dispose() {
    scheme.removeEventListener("change", this.redraw);
    this.sizes.disconnect();
    this.chart?.dispose();
    this.chart = this.describe = null;
  }
}

/**
 * Horizontal bars, as many as fit: names, their values (or several series, stacked), and how a value reads.
 */
export function bars(names, series, reads) {
  const [top, isOne] = [series.length > 1 ? 36 : 4, series.length === 1];
  const describe = (c, small, height) => {
    const many = Math.min(names.length, Math.max(1, Math.floor((height - top) / 19)));
    return {
      // Few bars lie as close together as many do.
      grid: { left: 8, right: 56, top, height: Math.min(height - top - 4, 34 * many), containLabel: true },
      legend: isOne ? undefined : {},
      xAxis: axis("value", c, { axisLabel: { show: false }, splitLine: { show: false } }),
      yAxis: axis("category", c, {
        data: names.slice(0, many), inverse: true, axisLine: { show: false },
        axisLabel: { color: c.text, formatter: (name) => cut(plain(name), small ? 18 : 34), hideOverlap: false, interval: 0 },
      }),
      tooltip: { formatter: (mark) => lines(mark.name, isOne ? reads(mark.value) : `${mark.seriesName}: ${reads(mark.value)}`) },
      series: series.map((each, at) => ({
        type: "bar", name: each.name, data: each.values.slice(0, many), stack: "all", barMaxWidth: 18, barMinHeight: 2,
        itemStyle: { color: each.colour?.(c) || c.series[at], borderRadius: isOne ? 3 : 0 },
        label: { show: isOne, position: "right", color: c.faint, formatter: (mark) => reads(mark.value) },
      })),
    };
  };
  return Object.assign(describe, { height: top + 8 + 34 * names.length });
}
