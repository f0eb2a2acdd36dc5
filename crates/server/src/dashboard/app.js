// Chooses the page by the address, follows the server, and shows the line at the top.

import { ApiError, follow, forgetToken, hasToken, setToken, touchToken } from "./api.js";
import { el, replace } from "./dom.js";
import { duration } from "./format.js";
import { failure } from "./widgets.js";
import { overview } from "./pages/overview.js";
import { rule } from "./pages/rule.js";
import { rules } from "./pages/rules.js";
import { store } from "./pages/store.js";
import { subject } from "./pages/subject.js";

const RANGES = ["15m", "1h", "24h"];
const PAGES = [["", "Overview", overview], ["rules", "Rules", rules], ["subject", "Subject", subject], ["store", "Store", store]];
/** How often a page reads the history again. */
const REDRAW_MS = 10_000;

const top = document.getElementById("top");
const banner = document.getElementById("banner");
const page = document.getElementById("page");

let shown = {};
let server = null;
let lostAt = null;
let paused = false;
let following = null;
let drawing = 0;

/** `#/rules/search?range=1h` -> { path: "rules", name: "search", range: "1h" }. */
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [first, ...rest] = path.split("/");
  const range = new URLSearchParams(query ?? "").get("range");
  let name = null;
  try {
    name = rest.length > 0 ? decodeURIComponent(rest.join("/")) : null;
  } catch {
    name = rest.join("/");
  }
  return { path: first, name, range: RANGES.includes(range) ? range : "15m" };
}

async function show() {
  const at = place();
  const turn = (drawing += 1);
  const [, title, make] = PAGES.find(([path]) => path === at.path) ?? PAGES[0];
  document.title = `${at.name ?? title} · Tollgate`;
  head(at);
  try {
    const made = await (at.path === "rules" && at.name ? rule : make)(page, at);
    if (turn === drawing) shown = made;
  } catch (error) {
    if (turn === drawing) problem(error);
  }
}

function problem(error) {
  shown = {};
  if (error instanceof ApiError && (error.status === 401 || error.status === 403)) replace(page, tokenForm(error));
  else replace(page, failure(error), el("button", { type: "button", onclick: show }, "Try again"));
}

function tokenForm(error) {
  const input = el("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const submit = (event) => {
    event.preventDefault();
    setToken(input.value.trim());
    start();
  };
  const why = error.status === 403 ? "This token does not permit reading. Enter one with the scope `read`."
    : hasToken() ? "The server does not know this token. Enter another one." : "This server asks for a token with the scope `read`.";
  return el("form", { onsubmit: submit, class: "ask" },
    el("h1", {}, "Token"), el("p", {}, why),
    el("label", { for: "token" }, "Token"), el("div", { class: "row" }, input, el("button", { type: "submit" }, "Continue")),
    el("p", { class: "soft small" }, "It stays in this tab, and is forgotten after 30 idle minutes. Make one with: tollgate token"));
}

function head(at) {
  const link = ([path, title]) => el("a", { href: `#/${path}?range=${at.range}`, "aria-current": path === at.path ? "page" : null }, title);
  const range = (name) => el("a", { href: `#/${at.path}${at.name ? `/${encodeURIComponent(at.name)}` : ""}?range=${name}`, "aria-current": name === at.range ? "true" : null }, name);
  const pause = el("button", { type: "button", "aria-pressed": String(paused), onclick: () => { paused = !paused; head(place()); } }, paused ? "Resume" : "Pause");
  const forget = hasToken() ? el("button", { type: "button", onclick: () => { forgetToken(); start(); } }, "Forget token") : null;
  replace(top,
    el("a", { href: "#/", class: "name" }, "Tollgate"),
    el("span", { class: "state", id: "state" }, state()),
    el("nav", { "aria-label": "Pages" }, PAGES.map(link)),
    el("nav", { "aria-label": "Range", class: "ranges" }, RANGES.map(range)),
    pause, forget);
}

/** The state of the server in a few words. Never by colour alone. */
function state() {
  if (server === null) return "";
  const { store, rules } = server;
  return [
    el("span", { class: server.ready ? "good" : "bad" }, server.ready ? "● ready" : "○ not ready"), " ",
    el("span", { class: store.up ? "good" : "bad" }, `${store.kind} ${store.up ? "up" : "down"}`), " ",
    el("span", { class: rules.refused ? "bad" : "soft" }, `rules ${rules.fingerprint.slice(0, 6)}${rules.refused ? " (newer file invalid)" : ""}`),
  ];
}

function onEvent(event) {
  server = event.server;
  replace(document.getElementById("state"), state());
  if (!paused && event.second !== null) shown.onSecond?.(event.second);
}

function onState(error) {
  document.body.classList.toggle("lost", error !== null);
  if (error === null) lostAt = null;
  else lostAt ??= Date.now();
  showBanner(error);
}

function showBanner(error) {
  if (lostAt === null) return replace(banner);
  const age = duration(Date.now() - lostAt);
  const why = error?.status === 503 ? error.message : "No news from the server";
  return replace(banner, el("p", {}, `${why}. The numbers are ${age} old.`));
}

function start() {
  following?.abort();
  following = new AbortController();
  follow("/v1/events", following.signal, onEvent, onState);
  show();
}

addEventListener("hashchange", show);
addEventListener("pointerdown", touchToken);
addEventListener("keydown", (event) => {
  touchToken();
  const isTyping = event.target instanceof HTMLInputElement;
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    location.hash = `#/subject?range=${place().range}`;
  }
});
setInterval(() => {
  if (lostAt !== null) showBanner(null);
  if (paused || lostAt !== null || document.hidden || page.contains(document.activeElement)) return;
  shown.draw?.().catch(problem);
}, REDRAW_MS);
start();
