// All rules in force, as their file states them.

import { get } from "../api.js";
import { el, replace } from "../dom.js";
import { duration, instant, overrideNumbers, whole, written } from "../format.js";
import { badge, empty, ruleLink, table, title } from "../widgets.js";

export async function rules(page) {
  const draw = async () => replace(page, content(await get("/v1/rules")));
  await draw();
  return { draw };
}

function content(found) {
  const age = duration(Date.now() - Date.parse(found.loaded_at));
  const about = [
    `${found.name}, fingerprint `,
    el("code", {}, found.fingerprint),
    `, in force for ${age}, replaced ${whole(found.version)} times since the start.`,
  ];
  const head = [
    title(`${whole(found.rules.length)} ${found.rules.length === 1 ? "rule" : "rules"}`, about),
    found.refused
      ? el(
          "div",
          { class: "failure", role: "alert" },
          el("p", {}, "The file was changed and is invalid. The rules below stay in force."),
          el("pre", { tabindex: "0" }, el("code", {}, found.refused)),
        )
      : null,
  ];
  if (found.rules.length === 0)
    return [
      head,
      empty("No rules are in force. Write a file and start the server with it:", "tollgate serve --rules rules.yaml"),
    ];
  const rows = found.rules.flatMap((rule) => [row(rule), ...rule.overrides.map(override)]);
  const columns = [
    ["Rule", false],
    ["Match", false],
    ["Per", false],
    ["Limit", false],
    ["Window", true],
    ["Mode", false],
    ["Written in", false],
  ];
  return [head, table("Rules in force", columns, rows)];
}

function row(rule) {
  const look = { enforce: "good", shadow: "shadow", off: "soft" }[rule.mode] ?? "soft";
  const mode = [badge(look, rule.mode), rule.rollout === "100%" ? null : ` ${rule.rollout}`];
  const name = rule.description ? [ruleLink(rule.id), el("div", { class: "soft small" }, rule.description)] : ruleLink(rule.id);
  return [
    name,
    rule.match,
    rule.per,
    el("code", {}, rule.written),
    rule.window_ms ? duration(rule.window_ms) : "–",
    mode,
    el("span", { class: "soft" }, written(rule)),
  ];
}

function override(change) {
  const end = change.until ? `until ${instant(Date.parse(change.until))}` : "";
  return [
    el("span", { class: "soft indent" }, change.live ? "live override" : "override"),
    change.when,
    "",
    el("code", {}, overrideNumbers(change)),
    change.window_ms ? duration(change.window_ms) : "–",
    end || change.reason ? [end, change.reason ? el("div", { class: "soft small" }, change.reason) : null] : "",
    el("span", { class: "soft" }, change.live ? "live" : written(change)),
  ];
}
