// A chart of counts over time as SVG, with the same numbers as a table.

import { el, svg } from "./dom.js";
import { clock, rate } from "./format.js";

const HEIGHT = 260;
const LEFT = 46;
const RIGHT = 8;
const TOP = 10;
const BOTTOM = 24;
/** Rows of the table view. More points are added up. */
const ROWS_MAX = 60;

/**
 * Creates a chart. `lines` are `{ label, look, values }` with one value per slot, `null` for a gap. The first line is
 * drawn as an area. `unit` formats a value.
 */
export function chart({ title, fromMs, stepS, lines, unit = rate, width = 900 }) {
  const slots = lines[0]?.values.length ?? 0;
  const highest = Math.max(0, ...lines.flatMap((line) => line.values.map((value) => value ?? 0)));
  const top = niceTop(highest);
  const x = (slot) => LEFT + ((slot + 0.5) / Math.max(1, slots)) * (width - LEFT - RIGHT);
  const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const picture = svg("svg", {
    viewBox: `0 0 ${width} ${HEIGHT}`, class: "chart", role: "img", "aria-label": `${title}. The table below has the numbers.`,
  });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const value = top * share;
    picture.append(
      svg("line", { class: share === 0 ? "axis" : "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, unit(value)),
    );
  }
  for (const slot of ticks(fromMs, stepS, slots)) {
    const at = fromMs + slot * stepS * 1_000;
    picture.append(
      svg("line", { class: "grid", x1: x(slot), x2: x(slot), y1: TOP, y2: HEIGHT - BOTTOM }),
      svg("text", { class: "tick", x: x(slot), y: HEIGHT - 7, "text-anchor": "middle" }, clock(at, stepS < 10)),
    );
  }
  for (const [number, line] of lines.entries()) {
    for (const run of runs(line.values)) {
      const points = run.map(([slot, value]) => `${x(slot).toFixed(1)},${y(value).toFixed(1)}`);
      if (number === 0) {
        const [first, last] = [x(run[0][0]), x(run[run.length - 1][0])];
        picture.append(svg("polygon", {
          class: `area ${line.look}`, points: `${first},${y(0)} ${points.join(" ")} ${last},${y(0)}`,
        }));
      }
      if (points.length === 1) {
        picture.append(svg("circle", { class: `dot ${line.look}`, cx: x(run[0][0]), cy: y(run[0][1]), r: 2 }));
      }
      picture.append(svg("polyline", { class: `line ${line.look}`, points: points.join(" ") }));
    }
  }
  return el("figure", { class: "figure" },
    legend(title, lines),
    picture,
    hover(picture, { lines, x, slots, fromMs, stepS, unit, width }),
    table(title, { lines, fromMs, stepS, unit }));
}

/** A small line without axes. */
export function sparkline(values, look) {
  const [width, height] = [120, 22];
  const top = Math.max(1, ...values.map((value) => value ?? 0));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "sparkline", "aria-hidden": "true" });
  for (const run of runs(values)) {
    const points = run.map(([slot, value]) =>
      `${((slot + 0.5) / values.length * width).toFixed(1)},${(height - 2 - (value / top) * (height - 4)).toFixed(1)}`);
    if (run.length === 1) {
      const [cx, cy] = points[0].split(",");
      picture.append(svg("circle", { class: `dot ${look}`, cx, cy, r: 2 }));
    }
    picture.append(svg("polyline", { class: `line ${look}`, points: points.join(" ") }));
  }
  return picture;
}

function legend(title, lines) {
  return el("figcaption", {},
    el("strong", {}, title),
    lines.map((line) => el("span", { class: "key" }, svgSwatch(line.look), line.label)));
}

function svgSwatch(look) {
  return svg("svg", { viewBox: "0 0 18 10", class: "swatch", "aria-hidden": "true" },
    svg("line", { class: `line ${look}`, x1: 1, x2: 17, y1: 5, y2: 5 }));
}

/** Shows the values of the slot under the pointer. */
function hover(picture, { lines, x, slots, fromMs, stepS, unit, width }) {
  const text = el("p", { class: "soft hover", "aria-hidden": "true" }, "\u00a0");
  const pointer = svg("line", { class: "pointer", y1: TOP, y2: HEIGHT - BOTTOM, x1: 0, x2: 0, visibility: "hidden" });
  picture.append(pointer);
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * width;
    const slot = Math.min(slots - 1, Math.max(0, Math.floor(((at - LEFT) / (width - LEFT - RIGHT)) * slots)));
    pointer.setAttribute("visibility", "visible");
    pointer.setAttribute("x1", x(slot));
    pointer.setAttribute("x2", x(slot));
    const values = lines.map((line) => `${line.label} ${line.values[slot] === null ? "not measured" : unit(line.values[slot])}`);
    text.textContent = `${clock(fromMs + slot * stepS * 1_000, true)}: ${values.join(", ")}`;
  });
  return text;
}

/** The same numbers for people who do not look at charts. */
function table(title, { lines, fromMs, stepS, unit }) {
  const slots = lines[0]?.values.length ?? 0;
  const width = Math.max(1, Math.ceil(slots / ROWS_MAX));
  const details = el("details", {}, el("summary", {}, "Show as a table"));
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    const rows = [];
    for (let slot = 0; slot < slots; slot += width) {
      const mean = (values) => {
        const known = values.slice(slot, slot + width).filter((value) => value !== null);
        return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length;
      };
      if (lines.every((line) => mean(line.values) === null)) continue;
      rows.push(el("tr", {},
        el("th", { scope: "row" }, clock(fromMs + slot * stepS * 1_000, true)),
        lines.map((line) => el("td", { class: "number" }, unit(mean(line.values))))));
    }
    details.append(el("table", {},
      el("caption", { class: "hidden" }, title),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Time"),
        lines.map((line) => el("th", { scope: "col", class: "number" }, line.label)))),
      el("tbody", {}, rows)));
  }, { once: false });
  return details;
}

/** Splits values into runs without gaps: lists of [slot, value]. */
function runs(values) {
  const found = [];
  let run = [];
  values.forEach((value, slot) => {
    if (value === null) {
      if (run.length > 0) found.push(run);
      run = [];
    } else {
      run.push([slot, value]);
    }
  });
  if (run.length > 0) found.push(run);
  return found;
}

/** The slots that get a time: about eight, at round times. */
function ticks(fromMs, stepS, slots) {
  const wanted = (slots * stepS) / 8;
  const every = [15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 14_400, 21_600].find((round) => round >= wanted) ?? 43_200;
  const found = [];
  for (let slot = 0; slot < slots; slot += 1) {
    const at = Math.round(fromMs / 1_000) + slot * stepS;
    if (at % every < stepS) found.push(slot);
  }
  return found.filter((slot) => slot > slots * 0.03 && slot < slots * 0.97);
}

/** The smallest round number at or above the highest value. */
function niceTop(highest) {
  if (highest <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(highest));
  return [1, 2, 4, 5, 8, 10].map((step) => step * power).find((step) => step >= highest);
}
