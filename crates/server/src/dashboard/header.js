// The lines at the top: the server and its state, who uses the dashboard, the pages and the ranges.

import { forgetToken, hasToken, setToken } from "./api.js";
import { el, replace } from "./dom.js";
import { duration } from "./format.js";
import { name } from "./session.js";
import { badge, button } from "./widgets.js";

const top = document.getElementById("top");

/** Draws the lines at the top. */
export function header({ at, pages, ranges, server, paused, onPause, onToken, askToken }) {
  const hash = (path, range) => `#/${path}${range === "15m" ? "" : `?range=${range}`}`;
  const link = ({ path, title }) =>
    el("a", { href: hash(path, at.range), "aria-current": path === at.path ? "page" : null }, title);
  const here = `${at.path}${at.name ? `/${encodeURIComponent(at.name)}` : ""}`;
  const range = (one) => el("a", { href: `#/${here}?range=${one}`, "aria-current": one === at.range ? "true" : null }, one);
  const pause = el(
    "button",
    { type: "button", class: "quiet", "aria-pressed": String(paused), onclick: onPause },
    paused ? "Resume" : "Pause",
  );
  const token = hasToken()
    ? button(
        "Forget token",
        () => {
          forgetToken();
          onToken();
        },
        "quiet",
      )
    : button("Use a token", askToken, "quiet");
  replace(
    top,
    el(
      "div",
      { class: "line" },
      el(
        "a",
        { href: "#/", class: "name" },
        el("img", { src: "/dashboard/icon.svg", alt: "", width: 22, height: 22 }),
        "Tollgate",
      ),
      el("span", { class: "state", id: "state" }, serverState(server)),
      el("span", { class: "who" }, name() ? el("span", { class: "soft" }, name()) : null, pause, token),
    ),
    el(
      "div",
      { class: "line tabs" },
      el("nav", { "aria-label": "Pages" }, pages.map(link)),
      ranges.length > 0 ? el("nav", { "aria-label": "Range", class: "ranges" }, ranges.map(range)) : null,
    ),
  );
}

/** Shows the link of the page in a narrow window, where the pages scroll sideways. */
export function showCurrent() {
  top.querySelector('[aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "center" });
}

/** The state of the server in a few words. Never by colour alone. */
export function serverState(server) {
  if (server === null) return "";
  const { store, rules } = server;
  const age = duration(Date.now() - Date.parse(rules.loaded_at));
  const file = rules.name.split("/").pop();
  return [
    el("strong", {}, server.name),
    badge(server.ready ? "good" : "bad", server.ready ? "● ready" : "○ not ready"),
    badge(store.up ? "good" : "bad", `${store.kind} ${store.up ? "up" : "down"}`),
    el("span", { class: "soft" }, "rules ", el("code", {}, rules.fingerprint.slice(0, 6)), ` (${file}, ${age})`),
    rules.refused ? badge("bad", "newer file invalid") : null,
  ];
}

/** Asks for a token. `error` is why, if the server refused a call. */
export function tokenForm(error, start) {
  const input = el("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const submit = (event) => {
    event.preventDefault();
    setToken(input.value.trim());
    start();
  };
  const why =
    error === null
      ? [
          "With the scope ",
          el("code", {}, "change"),
          " you can add and end live changes; ",
          el("code", {}, "read"),
          " lets you look.",
        ]
      : error.status === 403
        ? ["This token does not permit reading. Enter one with the scope ", el("code", {}, "read"), "."]
        : hasToken()
          ? "The server does not know this token. Enter another one."
          : ["This server asks for a token with the scope ", el("code", {}, "read"), "."];
  return el(
    "form",
    { onsubmit: submit, class: "card token" },
    el("h1", {}, "Token"),
    el("p", {}, why),
    el("label", { for: "token" }, "Token"),
    el("div", { class: "row" }, input, el("button", { type: "submit", class: "primary" }, "Continue")),
    el("p", { class: "soft small" }, "It stays in this tab, and is forgotten after 30 idle minutes. Make one with:"),
    el("pre", { tabindex: "0" }, el("code", {}, "tollgate token --name dashboard --scopes read,change")),
  );
}
