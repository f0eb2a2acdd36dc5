// The first page: what is happening now, and lately.

import { get, getUnless } from "../api.js";
import { chart, sparkline } from "../chart.js";
import { el, replace } from "../dom.js";
import { clock, fromNow, latency, percent, rate } from "../format.js";
import { badge, empty, ruleLink, section, share, subjectName, table } from "../widgets.js";
import { lastChanges, marksOf, recentRows } from "./changes_made.js";

const ROWS_MAX = 12;
const FINDINGS_MAX = 4;
/** Seconds in the small lines of the tiles. */
const TILE_SECONDS = 120;

/** Shows the page, and returns what to do each second and how to draw it again. */
export async function overview(page, { range, width }) {
  const tiles = el("div", { class: "tiles" });
  const body = el("div", {});
  replace(page, el("h1", { class: "hidden" }, "Overview"), tiles, body);
  const lately = await seconds();
  replace(tiles, tilesOf(lately));
  const draw = async () => {
    const [history, refused, near, audit, doctor] = await Promise.all([
      get(`/v1/history?range=${range}`),
      get("/v1/top?by=refused&limit=1000"),
      get("/v1/top?by=used&limit=8"),
      recentRows(),
      getUnless("/v1/doctor"),
    ]);
    replace(body, content({ history, refused, near, audit, doctor, range, width: width() }));
  };
  await draw();
  return {
    draw,
    onSecond: (second) => {
      lately.push(second);
      lately.splice(0, lately.length - TILE_SECONDS);
      replace(tiles, tilesOf(lately));
    },
  };
}

/** The last two minutes, second by second, as the stream sends them. */
async function seconds() {
  const { total, store, from_ms: fromMs } = await get("/v1/history?range=2m");
  const at = (columns, slot) => Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, values[slot]]));
  return (total.allowed ?? []).map((_, slot) => {
    const of = at(store, slot);
    return {
      at_ms: fromMs + slot * 1_000,
      total: at(total, slot),
      store: { p50_us: [of.p50_us], p99_us: [of.p99_us], p999_us: [of.p999_us] },
    };
  });
}

function tilesOf(lately) {
  const last = lately[lately.length - 1];
  if (!last) return [];
  const newest = (values) => values[values.length - 1] ?? null;
  const checks = ({ total }) => (total.allowed === null ? null : total.allowed + total.refused);
  const line = (value, look) => sparkline(lately.map(value), look);
  const { total, store } = last;
  const [p50, p99, p999] = [newest(store.p50_us), newest(store.p99_us), newest(store.p999_us)];
  const perSecond = (count) => `${rate(count)} per second`;
  return [
    tile("Checks per second", rate(checks(last)), "allowed and refused", line(checks, "allowed")),
    tile(
      "Refused",
      percent(total.refused, checks(last)),
      perSecond(total.refused),
      line((one) => one.total.refused, "refused"),
    ),
    tile(
      "Shadow refused",
      percent(total.shadow_refused, checks(last)),
      perSecond(total.shadow_refused),
      line((one) => one.total.shadow_refused, "shadow"),
    ),
    tile(
      "Fallback per second",
      rate(total.fallback),
      total.fallback > 0 ? "failure policies answer" : "the store answers",
      line((one) => one.total.fallback, "fallback"),
    ),
    tile(
      "Store latency",
      latency(p50),
      p50 === null ? "no call in this second" : `p99 ${latency(p99)}, p99.9 ${latency(p999)}`,
      line((one) => newest(one.store.p99_us), "neutral"),
    ),
  ];
}

function tile(label, value, note, line) {
  return el(
    "div",
    { class: "tile" },
    el("div", { class: "soft" }, label),
    el("div", { class: "big" }, value),
    line,
    el("div", { class: "soft small" }, note),
  );
}

function content({ history, refused, near, audit, doctor, range, width }) {
  const { total, step_s: stepS, from_ms: fromMs, rules } = history;
  const sum = (values) => (values ?? []).reduce((all, value) => all + (value ?? 0), 0);
  const checks = sum(total.allowed) + sum(total.refused);
  const below = el("div", { class: "columns" }, changes(audit), findings(doctor));
  if (checks === 0) {
    const request = `curl -i ${location.origin}/v1/check -H 'content-type: application/json' \\\n  -d '{"attributes":{"api_key":"k-1"}}'`;
    return [
      el(
        "div",
        { class: "figure" },
        el("strong", {}, "Checks per second"),
        empty(`No checks in the last ${words(range)}. Send one:`, request),
      ),
      below,
    ];
  }
  const perSecond = (values) => values.map((value) => (value === null ? null : value / stepS));
  const lines = [
    { label: "Allowed", look: "allowed", values: perSecond(total.allowed) },
    { label: "Refused", look: "refused", values: perSecond(total.refused) },
    { label: "Fallback", look: "fallback", values: perSecond(total.fallback) },
  ];
  return [
    chart({ title: "Checks per second", fromMs, stepS, lines, marks: marksOf(audit), width }),
    section("Refused", refusals(rules, refused, range, checks)),
    section("Near their limit", nearest(near)),
    below,
  ];
}

function refusals(rules, top, range, checks) {
  const first = new Map();
  for (const subject of top.subjects) if (!first.has(subject.rule)) first.set(subject.rule, subject);
  const rows = rules
    .filter((rule) => rule.refused + rule.shadow_refused > 0)
    .sort((one, other) => other.refused - one.refused)
    .slice(0, ROWS_MAX)
    .map((rule) => [
      ruleLink(rule.rule),
      rate(rule.refused / secondsOf(range)),
      percent(rule.refused, checks),
      percent(rule.refused, rule.allowed + rule.refused),
      rate(rule.shadow_refused / secondsOf(range)),
      sparkline(rule.line, "refused"),
      first.has(rule.rule) ? subjectName(first.get(rule.rule)) : "",
    ]);
  if (rows.length === 0) return empty(`Nothing was refused in the last ${words(range)}.`);
  const columns = [
    ["Rule", false],
    ["Refused/s", true],
    ["Of all checks", true],
    ["Of its checks", true],
    ["Shadow/s", true],
    [`Last ${words(range)}`, false],
    ["Top subject", false],
  ];
  return table("Refusals by rule", columns, rows, { opens: true });
}

function nearest({ subjects, now_ms: nowMs }) {
  if (subjects.length === 0) return empty("No subject was counted lately.");
  const columns = [
    ["Rule", false],
    ["Subject", false],
    ["Used", false],
    ["Remaining", true],
    ["Resets", true],
  ];
  return table(
    "Subjects near a limit",
    columns,
    subjects.map((near) => [
      ruleLink(near.rule),
      subjectName(near),
      share(near.used_permille),
      rate(near.remaining),
      near.reset_at_ms ? el("span", { title: clock(near.reset_at_ms, true) }, fromNow(near.reset_at_ms, nowMs)) : "–",
    ]),
    { opens: true },
  );
}

function changes(audit) {
  const link = el("a", { href: "#/audit" }, "Audit trail");
  return section(
    "Last changes",
    audit === null
      ? empty(
          "Live changes and the audit trail are off. Start the server with a database:",
          "tollgate serve --rules rules.yaml --database sqlite:tollgate.db",
        )
      : lastChanges(audit),
    audit === null ? null : link,
  );
}

function findings(doctor) {
  if (doctor === null) return null;
  const of = (status) => doctor.findings.filter((finding) => finding.status === status);
  const [fail, warn] = [of("fail").length, of("warn").length];
  const worst = [...of("fail"), ...of("warn")].slice(0, FINDINGS_MAX);
  const words =
    doctor.findings.length === 0
      ? empty("The server is examined shortly after its start.")
      : worst.length === 0
        ? empty("Every check passed.")
        : el(
            "ul",
            { class: "card list" },
            worst.map(({ id, status, reason }) =>
              el("li", {}, badge(status === "fail" ? "bad" : "warn", status), el("span", {}, el("strong", {}, id), " ", reason)),
            ),
          );
  return section(
    "Findings",
    words,
    el("a", { href: "#/store" }, `${fail} failed, ${warn} ${warn === 1 ? "warning" : "warnings"}`),
  );
}

function secondsOf(range) {
  return { "2m": 120, "15m": 900, "1h": 3_600, "24h": 86_400 }[range];
}

export function words(range) {
  return { "2m": "2 minutes", "15m": "15 minutes", "1h": "hour", "24h": "24 hours" }[range];
}
