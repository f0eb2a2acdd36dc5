// The first page: what is happening now, and lately.

import { get } from "../api.js";
import { chart, sparkline } from "../chart.js";
import { el, replace } from "../dom.js";
import { latency, percent, rate } from "../format.js";
import { empty, ruleLink, section, table, tile } from "../widgets.js";

const ROWS_MAX = 12;

/** Shows the page, and returns what to do each second and how to draw it again. */
export async function overview(page, { range }) {
  const tiles = el("div", { class: "tiles" });
  const body = el("div", {});
  replace(page, el("h1", { class: "hidden" }, "Overview"), tiles, body);
  const draw = async () => {
    const history = await get(`/v1/history?range=${range}`);
    replace(body, content(history, range));
  };
  await draw();
  return { draw, onSecond: (second) => replace(tiles, tilesOf(second)) };
}

function tilesOf({ total, store }) {
  const checks = total.allowed + total.refused;
  const last = (values) => values[values.length - 1] ?? null;
  const [p50, p99, p999] = [last(store.p50_us), last(store.p99_us), last(store.p999_us)];
  return [
    tile("Checks per second", rate(checks)),
    tile("Refused", percent(total.refused, checks), `${rate(total.refused)} per second`),
    tile("Shadow refused", percent(total.shadow_refused, checks), `${rate(total.shadow_refused)} per second`),
    tile("Fallback per second", rate(total.fallback), total.fallback > 0 ? "failure policies answer" : null),
    tile("Store latency", latency(p50), p50 === null ? "no call in this second" : `p99 ${latency(p99)}, p99.9 ${latency(p999)}`),
  ];
}

function content(history, range) {
  const { total, step_s: stepS, from_ms: fromMs, rules } = history;
  const sum = (values) => (values ?? []).reduce((all, value) => all + (value ?? 0), 0);
  const checks = sum(total.allowed) + sum(total.refused);
  if (checks === 0) {
    const request = `curl -i ${location.origin}/v1/check -H 'content-type: application/json' \\\n  -d '{"attributes":{"api_key":"k-1"}}'`;
    return empty(`No checks in the last ${words(range)}. Send one:`, request);
  }
  const perSecond = (values) => values.map((value) => (value === null ? null : value / stepS));
  const lines = [
    { label: "Allowed", look: "allowed", values: perSecond(total.allowed) },
    { label: "Refused", look: "refused", values: perSecond(total.refused) },
    { label: "Fallback", look: "fallback", values: perSecond(total.fallback) },
  ];
  return [
    chart({ title: "Checks per second", fromMs, stepS, lines }),
    section("Refused", refused(rules, range, checks)),
    section("Near their limit", near(rules, range)),
  ];
}

function refused(rules, range, checks) {
  const rows = rules.filter((rule) => rule.refused + rule.shadow_refused + rule.fallback > 0)
    .sort((one, other) => other.refused - one.refused).slice(0, ROWS_MAX)
    .map((rule) => [
      ruleLink(rule.rule), rate(rule.refused / seconds(range)), percent(rule.refused, checks),
      percent(rule.refused, rule.allowed + rule.refused), percent(rule.shadow_refused, checks), sparkline(rule.line, "refused"),
    ]);
  if (rows.length === 0) return empty(`Nothing was refused in the last ${words(range)}.`);
  const columns = [["Rule", false], ["Refused per second", true], ["Of all checks", true], ["Of the rule's checks", true],
    ["Shadow refused", true], [`Last ${words(range)}`, false]];
  return table("Refusals by rule", columns, rows);
}

function near(rules, range) {
  const rows = rules.filter((rule) => rule.near_limit > 0)
    .sort((one, other) => other.near_limit - one.near_limit).slice(0, ROWS_MAX)
    .map((rule) => [ruleLink(rule.rule), rate(rule.near_limit / seconds(range)), percent(rule.near_limit, rule.allowed)]);
  if (rows.length === 0) return empty("No admission left less than a tenth of a limit.");
  const columns = [["Rule", false], ["Admissions per second with less than a tenth left", true], ["Of its admissions", true]];
  return table("Admissions near a limit", columns, rows);
}

export function seconds(range) {
  return { "2m": 120, "15m": 900, "1h": 3_600, "24h": 86_400 }[range];
}

export function words(range) {
  return { "2m": "2 minutes", "15m": "15 minutes", "1h": "hour", "24h": "24 hours" }[range];
}
