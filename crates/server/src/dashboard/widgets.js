// Parts that several pages use.

import { el } from "./dom.js";

/** A table. `columns` are `[heading, isNumber]`; `rows` are lists of cells. */
export function table(caption, columns, rows) {
  const cell = (content, number) => el("td", { class: columns[number][1] ? "number" : null }, content);
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {},
      el("caption", { class: "hidden" }, caption),
      el("thead", {}, el("tr", {}, columns.map(([heading, isNumber]) =>
        el("th", { scope: "col", class: isNumber ? "number" : null }, heading)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map(cell))))));
}

/** A section with a heading. */
export function section(heading, ...content) {
  return el("section", {}, el("h2", {}, heading), content);
}

/** What a page says when there is nothing to show, and what to do. */
export function empty(text, command) {
  return el("div", { class: "empty" }, el("p", {}, text), command ? el("pre", {}, el("code", {}, command)) : null);
}

/** A tile with one number. */
export function tile(label, value, note) {
  return el("div", { class: "tile" },
    el("div", { class: "soft" }, label), el("div", { class: "big" }, value), el("div", { class: "soft small" }, note ?? "\u00a0"));
}

/** A link to a rule. */
export function ruleLink(rule) {
  return rule === "(other)" ? rule : el("a", { href: `#/rules/${encodeURIComponent(rule)}` }, rule);
}

/** An error as a person can act on it. */
export function failure(error) {
  return el("div", { class: "failure", role: "alert" }, el("p", {}, error.message));
}
