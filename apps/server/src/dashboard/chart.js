// Charts. Each is drawn on a canvas, which nobody can read aloud, so a sentence and a table say the same.

import uPlot from "./uplot.js";
import { element, row, table, write } from "./dom.js";
import { number, time } from "./format.js";

const HEIGHT = 180;
const ROWS = 15;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * A chart of lines over time. `lines` are names with functions that read a column from the history;
 * `sentence` says what it shows.
 */
export function chart(title, unit, lines, sentence) {
  const said = element("p");
  const canvas = element("div", { class: "canvas", "aria-hidden": "true" });
  const { region, body } = table(`${title}, the latest values`, ["Time", ...lines.map(([name]) => `${name} (${unit})`)]);
  const details = element("details", {}, element("summary", {}, "As a table"), region);
  const whole = element("section", { class: "chart" }, element("h2", {}, title), said, canvas, details);
  let plot = null;
  let last = null;

  const options = (width) => ({
    width,
    height: HEIGHT,
    cursor: { y: false },
    legend: { live: false },
    scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    axes: [
      { stroke: colour("--ink"), grid: { stroke: colour("--line") }, ticks: { stroke: colour("--line") } },
      {
        stroke: colour("--ink"),
        grid: { stroke: colour("--line") },
        ticks: { stroke: colour("--line") },
        size: 64,
        values: (_, values) => values.map((value) => `${number(value)} ${unit}`),
      },
    ],
    series: [
      {},
      ...lines.map(([name], at) => ({ label: name, stroke: colour(`--line-${at + 1}`), width: 2, dash: at ? [4 + 4 * at, 4] : [] })),
    ],
  });

  const draw = () => {
    if (!last || !canvas.clientWidth) return;
    const data = [last.at_s, ...lines.map(([, read]) => read(last))];
    if (plot) plot.setData(data);
    else plot = new uPlot(options(canvas.clientWidth), data, canvas);
  };
  const fill = () => {
    if (!details.open || !last) return;
    const { at_s } = last;
    const from = Math.max(0, at_s.length - ROWS);
    const rows = at_s.slice(from).map((at, step) => row(time(at * 1000), ...lines.map(([, read]) => number(read(last)[from + step]))));
    body.replaceChildren(...rows.reverse());
  };
  details.addEventListener("toggle", fill);
  new ResizeObserver(() => {
    if (plot && canvas.clientWidth) plot.setSize({ width: canvas.clientWidth, height: HEIGHT });
  }).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    plot?.destroy();
    plot = null;
    draw();
  });

  whole.update = (history) => {
    last = history;
    write(said, sentence(history));
    draw();
    fill();
  };
  return whole;
}
