// Uses the dashboard as a person does, in a real browser. Arguments: a file with { open, guarded, token, pid, folder }.

const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const { chromium } = require("playwright-core");
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
const { open, guarded, token, pid, folder } = JSON.parse(fs.readFileSync(process.argv[1], "utf8"));

/** Opens a page whose errors and violations of the policy are collected. */
async function visit(context, url) {
  const page = await context.newPage();
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(`error: ${error.message}`));
  page.on("console", (message) => {
    // A refused request is part of the test of tokens and of the server that is gone.
    if (message.type() === "error" && !message.text().includes("Failed to load resource")) page.problems.push(message.text());
  });
  await page.addInitScript(() => addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective}`)));
  await page.goto(url);
  return page;
}

async function shoot(page, name) {
  if (folder) await page.screenshot({ path: path.join(folder, `${name}.png`), fullPage: true });
}

/** Fails on what axe finds, on a page that scrolls sideways, and on problems so far. */
async function inspect(page, name) {
  // Through the protocol of the browser: the policy of the page forbids to run text.
  const session = await page.context().newCDPSession(page);
  const run = await session.send("Runtime.evaluate", {
    expression: `${axe}; axe.run(document, { resultTypes: ["violations"] }).then((found) => JSON.stringify(found.violations.map((one) => one.id + ": " + one.nodes.map((node) => node.html + " " + node.failureSummary).join(" | "))))`,
    awaitPromise: true, returnByValue: true,
  });
  assert.deepEqual(JSON.parse(run.result.value), [], `${name}: accessibility`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(wide <= 0, `${name}: the page scrolls sideways by ${wide} px`);
  assert.deepEqual(page.problems, [], name);
}

async function check(attributes) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ attributes }) };
  return (await fetch(`${open}/v1/check`, options)).status;
}

async function everyPage(browser) {
  const context = await browser.newContext({ colorScheme: "light" });
  const page = await visit(context, `${open}/`);
  await page.getByText("No checks in the last 15 minutes").waitFor();
  await shoot(page, "empty");
  await inspect(page, "empty overview");

  const statuses = [];
  for (let number = 0; number < 12; number += 1) statuses.push(await check({ action: "search", user: "jane" }));
  assert.equal(statuses.filter((status) => status === 429).length, 7, `${statuses}`);
  await page.waitForFunction(async () => (await (await fetch("/v1/history?range=2m")).json()).rules.some((rule) => rule.refused === 7));
  await page.reload();
  const row = page.getByRole("row").filter({ has: page.getByRole("link", { name: "per-user" }) }).first();
  await row.waitFor();
  assert.match(await row.innerText(), /58\.3%/, "7 of 12 were refused");
  await page.getByText("Show as a table").click();
  await page.locator("figure tbody tr").first().waitFor();
  await shoot(page, "overview");
  await inspect(page, "overview");

  await page.getByRole("link", { name: "Rules" }).click();
  await page.getByRole("heading", { name: "Rules", exact: true }).waitFor();
  await page.getByText("<img src=x onerror=alert(1)>").first().waitFor();
  assert.equal(await page.locator("main img, main script").count(), 0, "text of rules is never markup");
  await shoot(page, "rules");
  await inspect(page, "rules");

  await page.getByRole("link", { name: "per-user" }).first().click();
  await page.getByRole("heading", { name: "per-user" }).waitFor();
  await page.getByText("Checks of this rule per second").waitFor();
  await shoot(page, "rule");
  await inspect(page, "rule");

  // Keyboard only: the subject page opens with a slash, and its form is sent with the enter key.
  await page.keyboard.press("/");
  await page.getByRole("heading", { name: "Subject" }).waitFor();
  await page.keyboard.type("action=search user=jane");
  await page.keyboard.press("Enter");
  await page.getByText("A request like this would be refused.").waitFor();
  assert.ok(!page.url().includes("jane"), "values are not in the address");
  await shoot(page, "subject");
  await inspect(page, "subject");

  await page.getByRole("link", { name: "Store" }).click();
  await page.getByText("The memory store is part of this server").waitFor();
  await shoot(page, "store");
  await inspect(page, "store");
  await context.close();
}

async function darkAndSmall(browser) {
  for (const [name, options] of [["dark", { colorScheme: "dark" }], ["small", { viewport: { width: 375, height: 800 } }]]) {
    const context = await browser.newContext(options);
    for (const place of ["", "rules", "rules/per-user", "subject", "store"]) {
      const page = await visit(context, `${open}/#/${place}`);
      await page.getByText("● ready").waitFor();
      await page.locator("main h1, main .tile").first().waitFor({ state: "attached" });
      await inspect(page, `${name} ${place}`);
      if (place === "" || place === "rules") await shoot(page, `${name}-${place || "overview"}`);
      await page.close();
    }
    await context.close();
  }
}

async function tokens(browser) {
  const context = await browser.newContext();
  const page = await visit(context, `${guarded}/`);
  await page.getByText("asks for a token").waitFor();
  await inspect(page, "token form");
  await page.getByLabel("Token").fill("guessed");
  await page.keyboard.press("Enter");
  await page.getByText("does not know this token").waitFor();
  await page.getByLabel("Token").fill(token);
  await page.keyboard.press("Enter");
  await page.getByText("● ready").waitFor();
  await page.getByText("No checks in the last 15 minutes").waitFor();
  const kept = await page.evaluate(() => [localStorage.length, document.cookie, location.href]);
  assert.deepEqual([kept[0], kept[1]], [0, ""], "the token is in this tab only");
  assert.ok(!kept[2].includes(token));
  await page.getByRole("button", { name: "Forget token" }).click();
  await page.getByText("asks for a token").waitFor();
  assert.equal((await fetch(`${guarded}/v1/history?token=${token}`)).status, 401);
  const queried = await fetch(`${guarded}/v1/history?token=${token}`, { headers: { authorization: `Bearer ${token}` } });
  assert.equal(queried.status, 400, "a token in a query is refused");
  await context.close();
}

async function lostServer(browser) {
  const context = await browser.newContext();
  const page = await visit(context, `${open}/`);
  await page.getByText("● ready").waitFor();
  process.kill(pid, "SIGKILL");
  await page.getByText("No news from the server").waitFor();
  assert.ok(await page.evaluate(() => document.body.classList.contains("lost")), "old numbers are grey");
  await shoot(page, "lost");
  await context.close();
}

async function main() {
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: FLAGS });
  try {
    await everyPage(browser);
    await darkAndSmall(browser);
    await tokens(browser);
    await lostServer(browser);
  } finally {
    await browser.close();
  }
  console.log("good");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
