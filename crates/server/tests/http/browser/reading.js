// Every page, with and without data, in light and dark, wide and narrow.

const { assert, check, HOSTILE, inspect, shoot, task, until, visit, visitWith } = require("./support.js");

const PAGES = [
  ["", "Overview"],
  ["rules", "Rules"],
  ["rules/per-user", "per-user"],
  ["subject", "Subject"],
  ["changes", "Changes"],
  ["quotas", "Quotas"],
  ["audit", "Audit trail"],
  ["store", "Store"],
];

/** A server without a database and without traffic says what to do about it. */
async function empty(browser) {
  const context = await browser.newContext({ colorScheme: "light" });
  const page = await visit(context, `${task.open}/`);
  await page.getByText("No checks in the last 15 minutes").waitFor();
  await page.getByText("curl -i http").waitFor();
  await page.getByText("Live changes and the audit trail are off").waitFor();
  await shoot(page, "empty-overview");
  await inspect(page, "empty overview");
  for (const [place, text] of [
    ["changes", "Live changes are off. Start the server with a database:"],
    ["audit", "The audit trail is off"],
    ["store", "The memory store is part of this server"],
    ["subject", "Enter the attributes that a caller sends"],
    ["quotas", "No subject has used a quota"],
    ["rules/absent", 'No rule "absent" is in force.'],
    ["rules/per-user", "This rule matched no check in the last 15 minutes."],
  ]) {
    await page.goto(`${task.open}/#/${place}`);
    await page.getByText(text).first().waitFor();
    await shoot(page, `empty-${place.replace("/", "-")}`);
    await inspect(page, `empty ${place}`);
  }
  await context.close();
}

async function everyPage(browser) {
  const { url, read } = task.shop;
  const context = await browser.newContext({ colorScheme: "light" });
  const page = await visitWith(context, `${url}/`, read);
  const statuses = [];
  for (let number = 0; number < 12; number += 1) statuses.push(await check(url, { action: "search", user: "jane" }));
  assert.equal(statuses.filter((status) => status === 429).length, 7, `${statuses}`);
  for (let number = 0; number < 98; number += 1) await check(url, { action: "batch", user: HOSTILE });
  const row = page
    .getByRole("table", { name: "Refusals by rule" })
    .getByRole("row")
    .filter({ has: page.getByRole("link", { name: "per-user" }) });
  await until("the refusals are on the page", async () => {
    await page.reload();
    await page.getByRole("heading", { name: "Refused" }).or(page.getByText("No checks in the last")).first().waitFor();
    return (await row.count()) === 1;
  });
  // Of 110 checks, 7 of 12 of this rule were refused.
  assert.match(await row.innerText(), /58\.3%/);
  assert.match(await row.innerText(), /AA|[0-9A-Za-z_-]{6}/, "its top subject");
  await page.getByRole("table", { name: "Subjects near a limit" }).getByText("98%").waitFor();
  await page.getByText("Show as a table").click();
  await page.locator("figure tbody tr").first().waitFor();
  // The server's start is a mark on the chart, and the page survives that it is drawn again.
  await page.locator("figure path.flag").first().waitFor();
  await shoot(page, "overview");
  await inspect(page, "overview");
  await page.setViewportSize({ width: 1_000, height: 800 });
  await page.waitForFunction(() => document.querySelector("svg.chart").viewBox.baseVal.width < 950);
  assert.ok(await page.locator("figure details[open] tbody tr").first().isVisible(), "what was folded out stays so");
  await page.setViewportSize({ width: 1_280, height: 800 });

  await page.getByRole("link", { name: "24h" }).click();
  await page.getByText("Last 24 hours").waitFor();
  assert.match(page.url(), /range=24h/);
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByRole("button", { name: "Resume" }).click();

  // A row opens its rule, wherever it is clicked.
  // The table is drawn again every second, so that the cell of one look may be gone at the next.
  const cell = row.getByText("58.3%");
  let box = null;
  for (let look = 0; box === null && look < 50; look++) box = await cell.boundingBox();
  const { x, y } = box;
  await page.mouse.click(x + 5, y + 5);
  await page.getByRole("heading", { name: "per-user" }).waitFor();
  await page.getByRole("link", { name: "Rules" }).click();
  await page.getByText("<img src=x onerror=alert(1)>").first().waitFor();
  await shoot(page, "rules");
  await inspect(page, "rules");

  await page.getByRole("link", { name: "per-user" }).first().click();
  await page.getByRole("heading", { name: "per-user" }).waitFor();
  await page.getByText("Checks of this rule per second").waitFor();
  await page.getByRole("table", { name: "Subjects refused most" }).waitFor();
  await shoot(page, "rule");
  await inspect(page, "rule");

  // Keyboard only: the subject page opens with a slash, and its form is sent with the enter key.
  await page.keyboard.press("/");
  await page.getByRole("heading", { name: "Subject", exact: true }).waitFor();
  await page.waitForFunction(() => document.activeElement?.id === "attributes");
  await page.keyboard.type("action=search user=jane");
  await page.keyboard.press("Enter");
  await page.getByText("A request like this would be refused.").waitFor();
  await page.getByRole("table", { name: "Recent refusals" }).waitFor();
  assert.ok(!page.url().includes("jane"), "values are not in the address");
  await shoot(page, "subject");
  await inspect(page, "subject");
  const refused = await fetch(`${url}/v1/check`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: '{"attributes":{"action":"search","user":"jane"}}',
  });
  await page.locator("#attributes").fill((await refused.json()).ref);
  await page.keyboard.press("Enter");
  await page.getByText("What the client received, and why.").waitFor();
  await inspect(page, "reference");

  await page.getByRole("link", { name: "Quotas" }).click();
  await page.getByText("98%").first().waitFor();
  await page.getByLabel("Attributes of a request").fill(`action=batch user="${HOSTILE.replaceAll('"', "")}"`);
  await page.keyboard.press("Enter");
  await page.getByRole("table", { name: "Usage" }).waitFor();
  // The ledger names the account by the attribute that the rule allows.
  await until("the ledger has posted it", async () => {
    await page.reload();
    await page.getByRole("heading", { name: "Nearest to their limit" }).waitFor();
    return (await page.getByRole("table", { name: "Balances in the ledger" }).getByText(HOSTILE).count()) === 1;
  });
  await shoot(page, "quotas");
  await inspect(page, "quotas");

  await page.getByRole("link", { name: "Audit" }).click();
  await page.getByText("started").first().waitFor();
  await inspect(page, "audit");

  await page.getByRole("link", { name: "Store" }).click();
  await page.getByText("Latency of store calls").waitFor();
  await page.getByText("this server").waitFor();
  await until("the doctor has examined the server", async () => {
    await page.reload();
    await page.getByRole("heading", { name: "Servers on this store" }).waitFor();
    return (await page.getByRole("table", { name: "Keys by rule" }).count()) === 1;
  });
  await page.getByRole("table", { name: "Findings of the doctor" }).getByText("pass").first().waitFor();
  await page.getByRole("table", { name: "Memory of the store" }).getByText("noeviction").waitFor();
  await page.getByRole("heading", { name: "Hot keys" }).waitFor();
  await shoot(page, "store");
  await inspect(page, "store");
  await context.close();
}

async function lookAndSize(browser) {
  const { url, change } = task.shop;
  for (const [name, options] of [
    ["dark", { colorScheme: "dark" }],
    ["small", { viewport: { width: 375, height: 800 }, hasTouch: true }],
  ]) {
    const context = await browser.newContext(options);
    const page = await visitWith(context, `${url}/`, change);
    for (const [place, heading] of PAGES) {
      await page.goto(`${url}/#/${place}`);
      await page.waitForFunction(
        ([heading]) =>
          document.querySelector("main h1")?.textContent.includes(heading) ||
          (heading === "Rules" && /rules$/.test(document.querySelector("main h1")?.textContent)),
        [heading],
      );
      await shoot(page, `${name}-${(place || "overview").replace("/", "-")}`);
      await inspect(page, `${name} ${place}`);
    }
    if (name === "small") {
      const [first, second] = await page.evaluate(() => {
        location.hash = "#/";
        return new Promise((resolve) =>
          setTimeout(
            () =>
              resolve(
                [...document.querySelectorAll(".columns > section")].map((section) => section.getBoundingClientRect().left),
              ),
            1_000,
          ),
        );
      });
      assert.ok(second === undefined || first === second, "one column");
    }
    await page.goto(`${url}/#/changes`);
    await page.getByRole("button", { name: "Add override" }).click();
    await page.getByRole("dialog").waitFor();
    await shoot(page, `${name}-dialog`);
    await inspect(page, `${name} dialog`);
    await context.close();
  }
}

module.exports = { empty, everyPage, lookAndSize };
