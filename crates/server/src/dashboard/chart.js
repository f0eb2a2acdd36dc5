// A chart of numbers over time as SVG, with marks for changes, and with the same numbers as a table.

import { el, svg } from "./dom.js";
import { clock, rate } from "./format.js";

const HEIGHT = 260;
const LEFT = 52;
const RIGHT = 10;
const TOP = 16;
const BOTTOM = 26;
/** Narrower than this, a chart is scaled down. */
const WIDTH_MIN = 280;
/** Rows of the table view. More points are added up. */
const ROWS_MAX = 60;
const [SPARK_WIDTH, SPARK_HEIGHT] = [120, 24];

/**
 * Creates a chart. `lines` are `{ label, look, values }` with one value per slot, `null` for a gap. The first line is
 * drawn as an area if `area`. `marks` are `{ atMs, label }`: what was changed when. `unit` formats a value. `width` is that
 * of the element that the chart is put into, so that its text keeps its size.
 */
export function chart({ title, fromMs, stepS, lines, marks = [], unit = rate, area = true, width = 900 }) {
  const plot = scales({ fromMs, stepS, lines, width: Math.max(WIDTH_MIN, width) });
  const seen = marks
    .map((mark) => ({ ...mark, slot: Math.floor((mark.atMs - fromMs) / (stepS * 1_000)) }))
    .filter((mark) => mark.slot >= 0 && mark.slot < plot.slots);
  const picture = svg("svg", {
    viewBox: `0 0 ${plot.width} ${HEIGHT}`,
    class: "chart",
    role: "img",
    "aria-label": `${title}. The table below has the numbers.`,
  });
  grid(picture, plot, unit);
  lines.forEach((line, number) => drawLine(picture, plot, line, area && number === 0));
  for (const mark of seen) {
    const x = plot.x(mark.slot);
    picture.append(
      svg("line", { class: "mark", x1: x, x2: x, y1: TOP - 4, y2: HEIGHT - BOTTOM }),
      svg("path", { class: "flag", d: `M${x - 4.5} ${TOP - 12}h9l-4.5 8z` }, svg("title", {}, mark.label)),
    );
  }
  const shown = { title, lines, marks: seen, unit, plot };
  return el("figure", { class: "figure" }, legend(title, lines, seen.length > 0), picture, hover(picture, shown), table(shown));
}

/** A small line without axes. */
export function sparkline(values, look) {
  const top = Math.max(1, ...values.map((value) => value ?? 0));
  const x = (slot) => ((slot + 0.5) / values.length) * SPARK_WIDTH;
  const y = (value) => SPARK_HEIGHT - 2 - (value / top) * (SPARK_HEIGHT - 4);
  const picture = svg("svg", {
    viewBox: `0 0 ${SPARK_WIDTH} ${SPARK_HEIGHT}`,
    class: "sparkline",
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  for (const run of runs(values)) {
    if (run.length === 1) run.push([run[0][0] + 0.5, run[0][1]]);
    const points = run.map(([slot, value]) => `${x(slot).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
    picture.append(svg("polyline", { class: `line ${look}`, points }));
  }
  return picture;
}

/** Where slots and values are drawn. */
function scales({ fromMs, stepS, lines, width }) {
  const slots = lines[0]?.values.length ?? 0;
  const top = niceTop(Math.max(0, ...lines.flatMap((line) => line.values.map((value) => value ?? 0))));
  const [right, bottom] = [width - RIGHT, HEIGHT - BOTTOM];
  const x = (slot) => LEFT + ((slot + 0.5) / Math.max(1, slots)) * (right - LEFT);
  const y = (value) => TOP + (1 - value / top) * (bottom - TOP);
  const at = (slot) => fromMs + slot * stepS * 1_000;
  return { width, slots, top, right, bottom, x, y, at, fromMs, stepS };
}

function grid(picture, { width, top, right, bottom, x, y, at, slots, stepS, fromMs }, unit) {
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const value = top * share;
    picture.append(
      svg("line", { class: share === 0 ? "axis" : "grid", x1: LEFT, x2: right, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, unit(value)),
    );
  }
  for (const slot of ticks(fromMs, stepS, slots, Math.max(3, Math.floor(width / 110)))) {
    picture.append(
      svg("line", { class: "axis", x1: x(slot), x2: x(slot), y1: bottom, y2: bottom + 4 }),
      svg("text", { class: "tick", x: x(slot), y: HEIGHT - 7, "text-anchor": "middle" }, clock(at(slot), stepS < 10)),
    );
  }
}

function drawLine(picture, { x, y }, { look, values }, isArea) {
  for (const run of runs(values)) {
    const points = run.map(([slot, value]) => `${x(slot).toFixed(1)},${y(value).toFixed(1)}`);
    const [first, last] = [x(run[0][0]).toFixed(1), x(run[run.length - 1][0]).toFixed(1)];
    if (isArea) {
      picture.append(svg("polygon", { class: `area ${look}`, points: `${first},${y(0)} ${points.join(" ")} ${last},${y(0)}` }));
    }
    if (run.length === 1) picture.append(svg("circle", { class: `dot ${look}`, cx: first, cy: y(run[0][1]), r: 2 }));
    picture.append(svg("polyline", { class: `line ${look}`, points: points.join(" ") }));
  }
}

function legend(title, lines, hasMarks) {
  const swatch = (shape) => svg("svg", { viewBox: "0 0 18 10", class: "swatch", "aria-hidden": "true" }, shape);
  const key = (label, shape) => el("span", { class: "key" }, swatch(shape), label);
  return el(
    "figcaption",
    {},
    el("strong", {}, title),
    lines.map((line) => key(line.label, svg("line", { class: `line ${line.look}`, x1: 1, x2: 17, y1: 5, y2: 5 }))),
    hasMarks ? key("Change", svg("path", { class: "flag", d: "M4.500 1h9l-4.500 8z" })) : null,
  );
}

/** Shows the values and the changes of the slot under the pointer. */
function hover(picture, { lines, marks, unit, plot }) {
  const { x, slots, right, width, at } = plot;
  const text = el("p", { class: "soft hover", "aria-hidden": "true" }, "\u00a0");
  const pointer = svg("line", { class: "pointer", y1: TOP, y2: HEIGHT - BOTTOM, x1: 0, x2: 0, visibility: "hidden" });
  picture.append(pointer);
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const across = ((event.clientX - box.left) / box.width) * width;
    const slot = Math.min(slots - 1, Math.max(0, Math.floor(((across - LEFT) / (right - LEFT)) * slots)));
    pointer.setAttribute("visibility", "visible");
    pointer.setAttribute("x1", x(slot));
    pointer.setAttribute("x2", x(slot));
    const values = lines.map((line) => `${line.label} ${line.values[slot] === null ? "not measured" : unit(line.values[slot])}`);
    const changes = marks.filter((mark) => mark.slot === slot).map((mark) => mark.label);
    text.textContent = `${clock(at(slot), true)}  ${[...values, ...changes].join("  ·  ")}`;
  });
  picture.addEventListener("pointerleave", () => {
    pointer.setAttribute("visibility", "hidden");
    text.textContent = "\u00a0";
  });
  return text;
}

/** The same numbers for people who do not look at charts. */
function table({ title, lines, marks, unit, plot }) {
  const { slots, at } = plot;
  const width = Math.max(1, Math.ceil(slots / ROWS_MAX));
  const details = el("details", {}, el("summary", {}, "Show as a table"));
  const mean = (values) => {
    const known = values.filter((value) => value !== null);
    return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length;
  };
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    const rows = [];
    for (let slot = 0; slot < slots; slot += width) {
      const means = lines.map((line) => mean(line.values.slice(slot, slot + width)));
      const changes = marks.filter((mark) => mark.slot >= slot && mark.slot < slot + width).map((mark) => mark.label);
      if (means.every((value) => value === null) && changes.length === 0) continue;
      rows.push(
        el(
          "tr",
          {},
          el("th", { scope: "row" }, clock(at(slot), true)),
          means.map((value) => el("td", { class: "number" }, unit(value))),
          marks.length > 0 ? el("td", {}, changes.join("; ")) : null,
        ),
      );
    }
    details.append(
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title} as a table` },
        el(
          "table",
          {},
          el("caption", { class: "hidden" }, title),
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              el("th", { scope: "col" }, "Time"),
              lines.map((line) => el("th", { scope: "col", class: "number" }, line.label)),
              marks.length > 0 ? el("th", { scope: "col" }, "Changes") : null,
            ),
          ),
          el("tbody", {}, rows),
        ),
      ),
    );
  });
  return details;
}

/** Splits values into runs without gaps: lists of [slot, value]. */
function runs(values) {
  const found = [];
  let run = [];
  values.forEach((value, slot) => {
    if (value !== null) run.push([slot, value]);
    if (run.length > 0 && (value === null || slot === values.length - 1)) {
      found.push(run);
      run = [];
    }
  });
  return found;
}

/** The slots that get a time: about `wanted`, at round times. */
function ticks(fromMs, stepS, slots, wanted) {
  const least = (slots * stepS) / wanted;
  const round =
    [15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 14_400, 21_600].find((every) => every >= least) ?? 43_200;
  // At round times of the zone of the browser.
  const zoneS = new Date(fromMs).getTimezoneOffset() * 60;
  const found = [];
  for (let slot = 0; slot < slots; slot += 1) {
    const at = Math.round(fromMs / 1_000) + slot * stepS - zoneS;
    if (at % round < stepS) found.push(slot);
  }
  return found.filter((slot) => slot > slots * 0.03 && slot < slots * 0.97);
}

/** The smallest round number at or above the highest value. */
function niceTop(highest) {
  if (highest <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(highest));
  return [1, 2, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= highest);
}
