// The store, the ledger and the other servers.

import { get } from "../api.js";
import { chart } from "../chart.js";
import { el, replace } from "../dom.js";
import { latency } from "../format.js";
import { empty, section, table } from "../widgets.js";

export async function store(page, { range }) {
  const draw = async () => {
    const [ready, history] = await Promise.all([get("/readyz"), get(`/v1/history?range=${range}`)]);
    replace(page, content(ready, history));
  };
  await draw();
  return { draw };
}

function content(ready, history) {
  const { calls, p50_us: p50, p99_us: p99, p999_us: p999 } = history.store;
  const some = (calls ?? []).some((count) => count > 0);
  const lines = some ? [
    { label: "p50", look: "allowed", values: p50 }, { label: "p99", look: "shadow", values: p99 }, { label: "p99.9", look: "refused", values: p999 },
  ] : [];
  return [
    el("h1", {}, "Store"),
    el("dl", { class: "facts" }, facts(ready).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    some ? chart({ title: "Latency of store calls", fromMs: history.from_ms, stepS: history.step_s, lines, unit: (us) => latency(us === null ? null : Math.round(us)) })
      : empty(ready.store.kind === "memory" ? "The memory store is part of this server, so its calls are not measured." : "No call of the store in this time."),
    ready.fleet ? section("Other servers", fleet(ready.fleet)) : null,
  ];
}

function facts({ store, ledger, rules }) {
  const found = [["Store", store.kind], ["State", store.up ? "up" : "down: failure policies answer"]];
  if (store.evicting !== null) found.push(["Evicts keys", store.evicting ? "yes: limits admit too much; set maxmemory-policy noeviction" : "no"]);
  if (ledger) found.push(["Ledger", ledger.up ? "up" : "down"], ["Not posted yet", String(ledger.unposted)]);
  found.push(["Rules", `${rules.fingerprint}${rules.refused ? ", and a newer file is invalid" : ""}`]);
  return found;
}

function fleet(found) {
  const rows = Object.entries(found).map(([what, value]) => [what.replaceAll("_", " "), typeof value === "object" ? JSON.stringify(value) : String(value)]);
  return table("What other servers on this store say", [["What", false], ["Value", false]], rows);
}
