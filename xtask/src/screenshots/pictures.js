// Puts load on a server, opens its dashboard, and takes pictures. The argument is a file that describes the server.
//
// The numbers of this minute are those of the server. What was before is made up: a picture of fifteen minutes would take
// fifteen minutes.

const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");
const { chromium } = require("playwright-core");

const task = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--no-first-run",
  "--disable-background-networking",
  "--font-render-hinting=none",
];
const SIZE = { width: 1_240, height: 800 };
const LOAD_S = 40;
const agent = new http.Agent({ keepAlive: true, maxSockets: 16 });

/** Numbers from 0 to 1 that are the same in every run. */
function random(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

function call(method, at, body, headers = {}) {
  const { hostname, port } = new URL(task.url);
  const text = JSON.stringify(body);
  const fields = { "content-type": "application/json", "content-length": Buffer.byteLength(text), ...headers };
  return new Promise((resolve, reject) => {
    const request = http.request({ agent, host: hostname, port, path: at, method, headers: fields }, (response) => {
      response.resume();
      response.on("end", resolve);
    });
    request.on("error", reject);
    request.end(text);
  });
}

/** What callers of a small shop send. */
function request(next) {
  const [who, what] = [next(), next()];
  const key = `k-${Math.floor(40 * who ** 2.5)}`;
  const tenant = ["acme", "globex", "initech", "umbrella", "hooli"][Math.floor(5 * who ** 1.5)];
  const of = { api_key: key, tenant, ip: `192.0.2.${Math.floor(60 * who ** 2)}` };
  if (what < 0.62) return { attributes: { ...of, action: "search" } };
  if (what < 0.68) return { attributes: { ...of, ip: next() < 0.7 ? "198.51.100.7" : of.ip, action: "login" } };
  if (what < 0.7) return { attributes: { ...of, action: "export" } };
  if (what < 0.78) return { attributes: { ...of, action: "webhook" } };
  return { attributes: { ...of, action: "chat" }, cost: Math.ceil(60 * next()) };
}

async function load(seconds) {
  const next = random(7);
  const end = Date.now() + 1_000 * seconds;
  while (Date.now() < end) {
    const wait = new Promise((resume) => setTimeout(resume, 100));
    await Promise.all(Array.from({ length: 14 }, () => call("POST", "/v1/check", request(next))));
    await wait;
  }
}

async function changes() {
  const headers = { authorization: `Bearer ${task.token}` };
  const add = (list, body) => call("POST", `/v1/${list}`, body, headers);
  await add("overrides", { rule: "search", when: { tenant: "acme" }, scale: 2, for: "2h", reason: "launch of the spring sale" });
  await add("overrides", {
    rule: "tokens",
    when: { tenant: "globex" },
    limit: { quota: "80000/month" },
    for: "7d",
    reason: "upgrade is being billed, ticket 4711",
  });
  await add("deny", { when: { ip: "198.51.100.66" }, for: "1d", reason: "credential stuffing" });
  await add("bypass", { when: { api_key: "k-health" }, permanent: true, reason: "our own probes" });
}

/** Continues columns into the past, with a slow wave and some noise. */
function continued(values, level, seed, peak = 0) {
  const next = random(seed);
  const known = values.filter((value) => value > 0);
  const from = values.findIndex((value) => value > 0);
  if (level === null || known.length === 0) return values;
  return values.map((value, slot) => {
    if (from >= 0 && slot > from && slot < values.length - 1) return value;
    const at = slot / values.length;
    const bump = peak * Math.exp(-(((at - 0.55) / 0.06) ** 2));
    return Math.max(0, Math.round(level * (0.78 + 0.2 * Math.sin(6 * at + 1) + 0.1 * (next() - 0.5) + bump)));
  });
}

/** The history, as if the server had run for a while. */
function aged(history) {
  const mean = (values) => {
    const known = values.filter((value) => value > 0).slice(1, -1);
    return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length;
  };
  const slots = history.step_s === 1 ? 120 : history.step_s === 10 ? (history.total.allowed.length > 90 ? 360 : 90) : 1_440;
  const missing = Math.max(0, slots - history.total.allowed.length);
  const filled = (values, seed, peak) => {
    const padded = [...Array(missing).fill(0), ...values.map((value) => value ?? 0)];
    return continued(padded, mean(padded), seed, peak);
  };
  history.from_ms -= missing * history.step_s * 1_000;
  const total = history.total;
  total.refused = filled(total.refused, 5, 2.2);
  total.allowed = filled(total.allowed, 3, 0.25);
  for (const name of ["shadow_refused", "fallback", "near_limit"]) total[name] = filled(total[name], 11, 0.5);
  for (const [index, name] of ["calls", "p50_us", "p99_us", "p999_us"].entries())
    history.store[name] = filled(history.store[name], 17 + index, 0.1);
  for (const [index, rule] of history.rules.entries()) {
    const before = rule.line.reduce((sum, value) => sum + (value ?? 0), 0);
    const points = Math.min(90, slots);
    rule.line = continued(
      [...Array(Math.max(0, points - rule.line.length)).fill(0), ...rule.line.map((value) => value ?? 0)],
      mean(rule.line.map((value) => value ?? 0)),
      23 + index,
      1.4,
    );
    const factor = before === 0 ? (slots * history.step_s) / LOAD_S : rule.line.reduce((sum, value) => sum + value, 0) / before;
    for (const name of ["allowed", "refused", "shadow_refused", "near_limit"]) rule[name] = Math.round(rule[name] * factor);
    if (rule.columns)
      for (const [at, name] of Object.keys(rule.columns).entries())
        rule.columns[name] = filled(rule.columns[name], 31 + at, name === "refused" ? 1.6 : 0.2);
  }
  return history;
}

/** Rows of the trail, spread over the last minutes. */
function spread(page) {
  const now = Date.now();
  const newest = page.head.seq;
  for (const row of page.rows) {
    const at = now - [61, 190, 400, 545, 700, 3_000][Math.min(5, newest - row.seq)] * 1_000;
    row.at_us = at * 1_000;
    row.at = new Date(at).toISOString();
  }
  return page;
}

async function open(browser, options) {
  const context = await browser.newContext({ viewport: SIZE, ...options });
  const page = await context.newPage();
  const patched = (pattern, change) =>
    page.route(pattern, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: response.ok() ? change(await response.json()) : await response.json() });
    });
  await patched("**/v1/history*", aged);
  await patched("**/v1/audit*", spread);
  await page.goto(task.url);
  await page.getByLabel("Token").fill(task.token);
  await page.getByRole("button", { name: "Continue" }).click();
  await page.locator("svg.chart").waitFor();
  await page.waitForTimeout(1_500);
  return page;
}

async function main() {
  await changes();
  const loading = load(LOAD_S + 25);
  await new Promise((resume) => setTimeout(resume, LOAD_S * 1_000));
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: FLAGS });
  const shoot = (page, name) => page.screenshot({ path: path.join(task.folder, `dashboard-${name}.png`), fullPage: true });
  const page = await open(browser, { colorScheme: "light" });
  await shoot(page, "overview");
  const show = async (place, text) => {
    await page.goto(`${task.url}/#/${place}`);
    await page.getByText(text).first().waitFor();
    await page.waitForTimeout(300);
  };
  await show("rules/search", "Checks of this rule per second");
  await shoot(page, "rule");
  await show("subject", "Attributes of a request");
  await page.getByLabel("Attributes of a request").fill("action=search api_key=k-0 tenant=acme");
  await page.keyboard.press("Enter");
  await page.getByText("Rules that count it").first().waitFor();
  await shoot(page, "subject");
  await show("quotas", "Nearest to their limit");
  await shoot(page, "quotas");
  await show("audit", "Audit trail");
  await shoot(page, "audit");
  await show("store", "Latency of store calls");
  await shoot(page, "store");
  await show("changes", "Bypass list");
  await shoot(page, "changes");
  await page.getByRole("button", { name: "Add override" }).click();
  await page.getByLabel("Requests with").fill("tenant=initech");
  await page.getByLabel("Reason").fill("their launch, ticket 4712");
  await page.getByRole("button", { name: "Show the effect" }).click();
  await page.getByText("Raises what applies now.").waitFor();
  await page.screenshot({ path: path.join(task.folder, "dashboard-dialog.png") });
  await shoot(await open(browser, { colorScheme: "dark" }), "dark");
  await shoot(await open(browser, { viewport: { width: 375, height: 800 }, colorScheme: "light" }), "small");
  const report = await (await browser.newContext({ viewport: { width: 1_100, height: 1_000 } })).newPage();
  await report.goto(`file://${task.report}`);
  await report.screenshot({ path: task.reportPicture });
  await browser.close();
  await loading;
  agent.destroy();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
