// The store: its state, what the doctor finds, its keys, and the servers that share it.

import { get, getUnless } from "../api.js";
import { chart } from "../chart.js";
import { el, replace } from "../dom.js";
import { bytes, duration, fromNow, instant, latency, whole } from "../format.js";
import { badge, empty, facts, ruleLink, section, share, table, title } from "../widgets.js";

const LOOKS = { fail: "bad", warn: "warn", skip: "soft", pass: "good" };

export async function store(page, { range, width }) {
  const draw = async () => {
    const [ready, history, fleet, doctor] = await Promise.all([
      get("/readyz"),
      get(`/v1/history?range=${range}`),
      get("/v1/fleet"),
      getUnless("/v1/doctor"),
    ]);
    replace(page, title("Store"), content({ ready, history, fleet, doctor, width: width() }));
  };
  await draw();
  return { draw };
}

function content({ ready, history, fleet, doctor, width }) {
  return [
    facts(state(ready)),
    latencies(ready, history, width),
    doctor ? findings(doctor) : null,
    memory(doctor?.memory ?? []),
    doctor?.keys ? keys(doctor.keys) : null,
    hotKeys(doctor?.hot_keys),
    servers(fleet),
  ];
}

function state({ store, ledger, live_changes: changes, rules }) {
  const found = [
    ["Store", store.kind],
    ["State", store.up ? badge("good", "up") : [badge("bad", "down"), " failure policies answer"]],
  ];
  if (store.evicting !== null) {
    found.push([
      "Evicts keys",
      store.evicting ? [badge("bad", "yes"), " limits admit too much; set maxmemory-policy noeviction"] : "no",
    ]);
  }
  if (ledger)
    found.push([
      "Ledger",
      [badge(ledger.up ? "good" : "bad", ledger.up ? "up" : "down"), ` ${whole(ledger.unposted)} entries not posted yet`],
    ]);
  if (changes)
    found.push([
      "Live changes",
      [badge(changes.up ? "good" : "bad", changes.up ? "up" : "down"), ` version ${changes.version}, from the ${changes.from}`],
    ]);
  found.push([
    "Rules",
    [el("code", {}, rules.fingerprint), rules.refused ? [" ", badge("bad", "a newer file is invalid")] : null],
  ]);
  return found;
}

function latencies(ready, history, width) {
  const { calls, p50_us: p50, p99_us: p99, p999_us: p999 } = history.store;
  if (!(calls ?? []).some((count) => count > 0)) {
    return empty(
      ready.store.kind === "memory"
        ? "The memory store is part of this server, so its calls are not measured."
        : "No call of the store in this time.",
    );
  }
  const lines = [
    { label: "p50", look: "allowed", values: p50 },
    { label: "p99", look: "shadow", values: p99 },
    { label: "p99.9", look: "refused", values: p999 },
  ];
  return chart({
    title: "Latency of store calls",
    fromMs: history.from_ms,
    stepS: history.step_s,
    lines,
    unit: latency,
    area: false,
    width,
  });
}

function findings({ findings: found, at_ms: atMs }) {
  if (found.length === 0) return section("Doctor", empty("The server is examined shortly after its start."));
  const order = Object.keys(LOOKS);
  const rows = [...found]
    .sort((one, other) => order.indexOf(one.status) - order.indexOf(other.status))
    .map(({ id, status, reason, fix }) => [
      badge(LOOKS[status] ?? "soft", status),
      el("code", {}, id),
      [reason, fix ? el("div", { class: "soft small" }, `Fix: ${fix}`) : null],
    ]);
  const columns = [
    ["Result", false],
    ["Check", false],
    ["Reason", false],
  ];
  return section(
    "Doctor",
    table("Findings of the doctor", columns, rows),
    atMs ? el("span", { class: "soft" }, `examined ${fromNow(atMs)}`) : null,
  );
}

/** The servers of the store that hold keys. */
function memory(servers) {
  if (servers.length === 0) return null;
  const columns = [
    ["Server of the store", false],
    ["Used", false],
    ["Of maxmemory", true],
    ["Policy", false],
    ["Keys", true],
    ["Evicted", true],
  ];
  return section(
    "Memory",
    table(
      "Memory of the store",
      columns,
      servers.map((one) => [
        el("code", {}, one.address),
        one.max_bytes && one.used_bytes !== null
          ? share(Math.round((1_000 * one.used_bytes) / one.max_bytes))
          : bytes(one.used_bytes),
        one.max_bytes ? bytes(one.max_bytes) : "no limit",
        el("code", {}, one.policy ?? "unknown"),
        whole(one.keys),
        whole(one.evicted_keys),
      ]),
    ),
  );
}

/** The keys that are used most, from samples or from the counters of the store. */
function hotKeys(found) {
  if (!found) return null;
  const columns = [
    ["Key", false],
    ["Rule", false],
    ["Writes/s", true],
    ["Frequency", true],
  ];
  return section(
    "Hot keys",
    found.length === 0
      ? empty("No key stood out in the last scan.")
      : table(
          "Hot keys",
          columns,
          found.map((one) => [
            el("code", {}, one.key),
            one.rule ? ruleLink(one.rule) : "–",
            whole(one.per_second),
            whole(one.frequency),
          ]),
        ),
    el("span", { class: "soft" }, "estimated from samples"),
  );
}

/** Keys of the namespace, as the last scan saw them. */
function keys(scan) {
  const seen = `${whole(scan.keys)}${scan.sample ? ` in a sample of ${whole(scan.scanned)} of about ${whole(scan.total)}` : ""}`;
  const about = [
    ["Keys", seen],
    ["Memory", bytes(scan.bytes)],
    ["Without an expiry", whole(scan.without_ttl)],
    ["Oversized", whole(scan.oversized)],
  ];
  const columns = [
    ["Rule", false],
    ["Keys", true],
    ["Memory", true],
  ];
  // A name that starts with @ is what belongs to no single rule.
  const rows = scan.by_rule.map((one) => [
    one.rule.startsWith("@") ? one.rule.slice(1) : ruleLink(one.rule),
    whole(one.keys),
    bytes(one.bytes),
  ]);
  return section(
    "Keys of the namespace",
    [facts(about), rows.length === 0 ? null : table("Keys by rule", columns, rows)],
    el("span", { class: "soft" }, `scanned ${fromNow(scan.at_ms)} by ${scan.server}`),
  );
}

function servers({ servers: found, unheard }) {
  if (found === null) return null;
  const columns = [
    ["Server", false],
    ["Version", false],
    ["Rules", false],
    ["Hash key", false],
    ["Joined", true],
    ["Heard", true],
  ];
  const rows = found.map((one) => [
    [el("code", {}, one.id.slice(0, 8)), one.self ? [" ", badge("soft", "this server")] : null],
    one.version ?? "–",
    one.rules ? el("code", {}, one.rules) : "joining",
    el("code", {}, one.hash_keys.join(" ")),
    el("span", { title: instant(one.joined_ms) }, fromNow(one.joined_ms)),
    duration(Date.now() - one.announced_ms),
  ]);
  const note = unheard ? badge("warn", "the store did not answer the last time") : null;
  return section(
    "Servers on this store",
    rows.length === 0 ? empty("No server has announced itself yet.") : table("Servers on this store", columns, rows),
    note,
  );
}
