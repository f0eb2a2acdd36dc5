// All rules in force, as their file states them.

import { get } from "../api.js";
import { el, replace } from "../dom.js";
import { duration, written } from "../format.js";
import { empty, ruleLink, section, table } from "../widgets.js";

export async function rules(page) {
  const draw = async () => replace(page, content(await get("/v1/rules")));
  await draw();
  return { draw };
}

function content(found) {
  const age = duration(Date.now() - Date.parse(found.loaded_at));
  const head = [
    el("h1", {}, "Rules"),
    el("p", { class: "soft" }, `${found.name}, fingerprint ${found.fingerprint}, in force for ${age}, replaced ${found.version} times since the start.`),
    found.refused ? el("div", { class: "failure", role: "alert" },
      el("p", {}, "The file was changed and is invalid. The rules below stay in force."), el("pre", {}, el("code", {}, found.refused))) : null,
  ];
  if (found.rules.length === 0) return [head, empty("No rules are in force. Write a file and start the server with it:", "tollgate serve --rules rules.yaml")];
  const rows = found.rules.flatMap((rule) => [row(rule), ...rule.overrides.map(override)]);
  const columns = [["Rule", false], ["Match", false], ["Per", false], ["Limit", false], ["Mode", false], ["Written in", false]];
  return [head, section(`${found.rules.length} rules`, table("Rules in force", columns, rows))];
}

function row(rule) {
  const mode = rule.rollout === "100%" ? rule.mode : `${rule.mode}, ${rule.rollout}`;
  const name = rule.description ? [ruleLink(rule.id), el("div", { class: "soft small" }, rule.description)] : ruleLink(rule.id);
  return [name, rule.match, rule.per, el("code", {}, rule.written), mode, written(rule)];
}

function override(change) {
  const end = change.until ? `until ${change.until}` : "";
  return [el("span", { class: "soft" }, "override"), change.when, "", el("code", {}, change.written),
    [end, change.reason ? el("div", { class: "soft small" }, change.reason) : null], written(change)];
}
