// Chooses the page by the address, follows the server, and keeps the page up to date.

import { ApiError, follow, touchToken } from "./api.js";
import { el, replace } from "./dom.js";
import { duration } from "./format.js";
import { header, serverState, showCurrent, tokenForm } from "./header.js";
import { identify } from "./session.js";
import { button, failure } from "./widgets.js";
import { audit } from "./pages/audit.js";
import { changes } from "./pages/changes.js";
import { overview } from "./pages/overview.js";
import { quotas } from "./pages/quotas.js";
import { rule } from "./pages/rule.js";
import { rules } from "./pages/rules.js";
import { store } from "./pages/store.js";
import { subject } from "./pages/subject.js";

const RANGES = ["15m", "1h", "24h"];
const PAGES = [
  { path: "", title: "Overview", make: overview, ranged: true },
  { path: "rules", title: "Rules", make: rules },
  { path: "subject", title: "Subject", make: subject },
  { path: "changes", title: "Changes", make: changes },
  { path: "quotas", title: "Quotas", make: quotas },
  { path: "audit", title: "Audit", make: audit },
  { path: "store", title: "Store", make: store, ranged: true },
];
const RULE = { path: "rules", title: "Rules", make: rule, ranged: true };
/** How often a page reads the history again. */
const REDRAW_MS = 10_000;
/** The server sends an event every second. One that is silent for longer hangs. */
const SILENT_MS = 4_000;
/** What is beside a chart within the width of the page: paddings and borders. */
const BESIDE_CHART = 74;

const banner = document.getElementById("banner");
const page = document.getElementById("page");

let shown = {};
let server = null;
let heardAt = Date.now();
let lostAt = null;
let lostWhy = "";
let paused = false;
let following = null;
let isFollowing = false;
let turn = 0;
let seconds = 0;

/** `#/rules/search?range=1h` -> { path: "rules", name: "search", range: "1h", … }. */
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [first, ...rest] = path.split("/");
  const parameters = new URLSearchParams(query ?? "");
  let name = null;
  try {
    name = rest.length > 0 ? decodeURIComponent(rest.join("/")) : null;
  } catch {
    name = rest.join("/");
  }
  const range = parameters.get("range");
  return { path: first, name, range: RANGES.includes(range) ? range : "15m", width: () => page.clientWidth - BESIDE_CHART };
}

function pageOf(at) {
  if (at.path === "rules" && at.name) return RULE;
  return PAGES.find(({ path }) => path === at.path) ?? PAGES[0];
}

/** Shows the page of the address. What a page that was left still loads is dropped. */
async function show() {
  const at = place();
  const mine = (turn += 1);
  const chosen = pageOf(at);
  document.title = `${at.name ?? chosen.title} · Tollgate`;
  head();
  const made = el("div", { class: "page" });
  try {
    const next = await chosen.make(made, at);
    if (mine !== turn) return;
    shown = next;
    replace(page, made);
    showCurrent();
    next.focus?.focus();
  } catch (error) {
    if (mine === turn) problem(error);
  }
}

function problem(error) {
  shown = {};
  const isAuth = error instanceof ApiError && (error.status === 401 || error.status === 403);
  replace(page, isAuth ? tokenForm(error, start) : [failure(error), button("Try again", isFollowing ? show : start)]);
}

/** What is shown stays while the server does not answer: the banner states its age. */
function stale(error) {
  if (error.status !== 0) problem(error);
}

function head() {
  const at = place();
  header({
    at,
    pages: PAGES,
    ranges: pageOf(at).ranged ? RANGES : [],
    server,
    paused,
    onPause: () => {
      paused = !paused;
      head();
    },
    onToken: start,
    askToken: () => {
      turn += 1;
      shown = {};
      replace(page, tokenForm(null, start));
      document.getElementById("token").focus();
    },
  });
}

/** Draws the page again, and keeps the focus and what was folded out. */
async function redraw() {
  const mine = turn;
  const focused = page.contains(document.activeElement) ? document.activeElement : null;
  const open = [...page.querySelectorAll("details")].map((details) => details.open);
  await shown.draw?.();
  if (mine !== turn) return;
  page.querySelectorAll("details").forEach((details, number) => {
    details.open = open[number] ?? false;
  });
  if (focused === null || page.contains(document.activeElement)) return;
  const isSame = (one) =>
    ["id", "href", "aria-label"].every((name) => one.getAttribute(name) === focused.getAttribute(name)) &&
    one.textContent === focused.textContent;
  [...page.querySelectorAll(focused.tagName)].find(isSame)?.focus({ preventScroll: true });
}

function onEvent(event) {
  server = event.server;
  heardAt = Date.now();
  if (lostAt !== null) onState(null);
  replace(document.getElementById("state"), serverState(server));
  seconds += 1;
  if (paused || event.second === null || seconds % (shown.everyS ?? 1) !== 0) return;
  shown.onSecond?.(event.second, server);
}

function onState(error) {
  // The token is not valid any more: the stream does not come back without another one.
  if (error?.status === 401 || error?.status === 403) {
    isFollowing = false;
    turn += 1;
    problem(error);
    return;
  }
  document.body.classList.toggle("lost", error !== null);
  // A page that could not be loaded is loaded when the server is back.
  if (error === null && lostAt !== null && shown.draw === undefined) show();
  if (error === null) lostAt = null;
  else lostAt ??= heardAt;
  lostWhy = error?.status === 503 ? error.message : "No news from the server";
  showBanner();
}

function showBanner() {
  if (lostAt === null) return replace(banner);
  return replace(banner, el("p", {}, `${lostWhy}. The numbers are ${duration(Date.now() - lostAt)} old.`));
}

async function start() {
  following?.abort();
  isFollowing = false;
  following = new AbortController();
  lostAt = null;
  showBanner();
  try {
    await identify();
  } catch (error) {
    head();
    return problem(error);
  }
  heardAt = Date.now();
  isFollowing = true;
  follow("/v1/events", following.signal, onEvent, onState);
  return show();
}

addEventListener("hashchange", show);
addEventListener("pointerdown", touchToken);
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => redraw().catch(stale), 200);
});
let resizing = null;
document.addEventListener("changed", () => redraw().catch(stale));
addEventListener("keydown", (event) => {
  touchToken();
  const isTyping = event.target instanceof HTMLInputElement || document.querySelector("dialog") !== null;
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    location.hash = "#/subject";
  }
});
setInterval(() => {
  if (lostAt !== null) showBanner();
  else if (isFollowing && Date.now() - heardAt > SILENT_MS) onState(new ApiError(0, "The server is silent."));
}, 1_000);
setInterval(() => {
  if (paused || lostAt !== null || document.hidden || document.querySelector("dialog") !== null) return;
  redraw().catch(stale);
}, REDRAW_MS);
start();
