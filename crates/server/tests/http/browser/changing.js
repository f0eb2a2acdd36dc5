// Live changes: adding, changing and ending them, what each would do, and what happens when two operators do it at once.

const { assert, call, check, HOSTILE, inspect, LONG, shoot, task, until, visitWith } = require("./support.js");

async function limitOf(url, attributes) {
  return (await call(url, { method: "POST", at: "/v1/peek", body: { attributes } })).json.limit;
}

async function changing(browser) {
  const { url, change } = task.shop;
  const context = await browser.newContext();
  const page = await visitWith(context, `${url}/#/changes`, change);
  await page.getByText("No live override.").waitFor();
  const reason = `${HOSTILE} launch`;

  // An override, with the keyboard only.
  await page.getByRole("button", { name: "Add override" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await page.getByLabel("Rule", { exact: true }).focus();
  await page.keyboard.type("per-user");
  await page.keyboard.press("Tab");
  await page.keyboard.type("user=acme");
  for (const text of [null, null, "3"]) {
    await page.keyboard.press("Tab");
    if (text) await page.keyboard.type(text);
  }
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.insertText(reason);
  await page.keyboard.press("Enter");
  await page.getByText("Raises what applies now.").waitFor();
  assert.equal(await limitOf(url, { action: "search", user: "acme" }), 5, "a trial changes nothing");
  await shoot(page, "dialog-override");
  await inspect(page, "the effect of an override");
  await page.keyboard.press("Enter");
  const table = page.getByRole("table", { name: "Overrides", exact: true });
  await table.getByText("user=acme").waitFor();
  await table.getByText(HOSTILE).waitFor();
  assert.equal(await limitOf(url, { action: "search", user: "acme" }), 15);
  assert.ok(await page.evaluate(() => document.querySelector("dialog") === null), "the dialog is gone");

  // One that gives less needs a second word. What is edited after a trial is tried again.
  await page.getByRole("button", { name: "Add override" }).click();
  await page.getByLabel("Rule", { exact: true }).selectOption("per-user");
  await page.getByLabel("Requests with").fill(`user="${LONG}"`);
  await page.getByLabel("Numbers of the rule").selectOption("limit");
  await page.getByLabel("Factor or limit").fill("sliding-log: 2/h");
  await page.getByLabel("Reason").fill(LONG.slice(0, 300));
  await page.getByRole("button", { name: "Show the effect" }).click();
  await page.getByText("Some requests would get less than now.").waitFor();
  await inspect(page, "an override that gives less");
  await page.getByLabel("This is meant").click();
  await page.getByText("Lowers what applies now.").waitFor();
  await page.getByLabel("Factor or limit").fill("sliding-log: 0/h");
  assert.equal(await page.getByText("Lowers what applies now.").count(), 0);
  await page.getByRole("button", { name: "Show the effect" }).click();
  await page.getByRole("alert").waitFor();
  await page.getByLabel("Factor or limit").fill("sliding-log: 2/h");
  await page.getByRole("button", { name: "Show the effect" }).click();
  await page.getByLabel("This is meant").click();
  await page.getByRole("dialog").getByRole("button", { name: "Add override" }).click();
  await table.getByText("sliding-log: 2/h").waitFor();
  assert.equal(await limitOf(url, { action: "search", user: LONG }), 2);

  // Escape closes a dialog and changes nothing; the focus is back on its button.
  const denying = page.getByRole("button", { name: "Add deny entry" });
  await denying.focus();
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => document.querySelector("dialog") === null);
  assert.equal(await denying.evaluate((button) => document.activeElement === button), true);

  for (const [add, list, attributes, status] of [
    ["Add deny entry", "Deny list", { action: "search", user: "rude" }, 403],
    ["Add bypass entry", "Bypass list", { action: "search", user: "jane" }, 200],
  ]) {
    await page.getByRole("button", { name: add }).click();
    await page.getByLabel("Requests with").fill(`user=${attributes.user}`);
    await page.getByLabel("Reason").fill("ticket 4711");
    await page.getByRole("button", { name: "Show the effect" }).click();
    await page.getByText("The server accepts it.").waitFor();
    await page.getByRole("dialog").getByRole("button", { name: add }).click();
    await page.getByRole("table", { name: list }).getByText(`user=${attributes.user}`).waitFor();
    assert.equal(await check(url, attributes), status);
  }
  // Without a condition, an entry is refused unless it is meant for all.
  await page.getByRole("button", { name: "Add bypass entry" }).click();
  await page.getByLabel("Reason").fill("everything");
  await page.getByRole("button", { name: "Show the effect" }).click();
  await page.getByText("missing `when`").waitFor();
  await page.keyboard.press("Escape");
  await shoot(page, "changes");
  await inspect(page, "changes");
  await fromOtherPages(page, url);
  await context.close();
}

/** A subject is denied from the page of a rule, reset from its own page, and let in again from the overview. */
async function fromOtherPages(page, url) {
  for (let number = 0; number < 8; number += 1) await check(url, { action: "search", user: "greedy" });
  await page.goto(`${url}/#/rules/per-user`);
  const denying = page.getByRole("table", { name: "Subjects refused most" }).getByRole("button", { name: /^Deny/ }).first();
  await denying.click();
  await page.getByLabel("Reason").fill("from the page of the rule");
  await page.getByRole("button", { name: "Show the effect" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Add deny entry" }).click();
  await page.waitForFunction(() => document.querySelector("dialog") === null);

  await page.goto(`${url}/#/subject`);
  await page.getByLabel("Attributes of a request").fill("action=export user=late");
  await check(url, { action: "export", user: "late" });
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Reset consumption" }).click();
  await page.getByRole("dialog").getByText("at-once").waitFor();
  await page.getByLabel("Reason").fill("ticket 4712");
  await page.getByRole("dialog").getByRole("button", { name: "Reset" }).click();
  await page.waitForFunction(() => document.querySelector("dialog") === null);

  await page.goto(`${url}/#/`);
  const last = page.getByRole("table", { name: "Last changes" });
  const row = last.getByRole("row").filter({ hasText: "from the page of the rule" });
  await row.getByRole("button", { name: /^End/ }).click();
  await page.getByLabel("Reason").fill("they behave now");
  await inspect(page, "ending a change");
  await page.getByRole("dialog").getByRole("button", { name: "End" }).click();
  await last.getByText("they behave now").waitFor();

  await page.goto(`${url}/#/audit`);
  await page.getByText("they behave now", { exact: true }).waitFor();
  await page.getByText("added an override").first().waitFor();
  await page.locator("main details").first().click();
  await page.locator("main details pre").first().waitFor();
  await shoot(page, "audit");
  await inspect(page, "audit");
}

/** Somebody else changes an override while a dialog is open, and the trail follows what other operators do. */
async function otherwiseChanged(browser) {
  const { url, change } = task.shop;
  const headers = { authorization: `Bearer ${change}` };
  const context = await browser.newContext();
  const page = await visitWith(context, `${url}/#/changes`, change);
  const body = { rule: "per-user", when: { user: "two" }, scale: 2, for: "1h", reason: "first" };
  const added = await call(url, { method: "POST", at: "/v1/overrides", headers, body });
  // The page follows the server, without being loaded again.
  const row = page.getByRole("table", { name: "Overrides", exact: true }).getByRole("row").filter({ hasText: "user=two" });
  await row.waitFor();

  await row.getByRole("button", { name: /^Change/ }).click();
  await page.getByLabel("Reason").fill("mine");
  const patch = (reason, version) =>
    call(url, {
      method: "PATCH",
      at: added.headers.location,
      headers: { ...headers, "if-match": `"${version}"` },
      body: { scale: 4, reason },
    });
  assert.equal((await patch("theirs", 1)).status, 200);
  await page.getByRole("button", { name: "Show the effect" }).click();
  await page.getByText("Another operator changed it in the meantime").waitFor();
  await shoot(page, "changed-meanwhile");
  await inspect(page, "changed meanwhile");
  await page.getByRole("button", { name: "Show it as it is now" }).click();
  await row.getByText("theirs").waitFor();

  await row.getByRole("button", { name: /^Change/ }).click();
  await page.getByLabel("Factor or limit").fill("5");
  await page.getByLabel("Reason").fill("mine, now that I have seen it");
  await page.getByRole("button", { name: "Show the effect" }).click();
  await page.getByRole("button", { name: "Save" }).click();
  await row.getByText("× 5").waitFor();
  assert.equal(await limitOf(url, { action: "search", user: "two" }), 25);

  await row.getByRole("button", { name: /^End/ }).click();
  assert.equal((await patch("theirs again", 3)).status, 200);
  await page.getByLabel("Reason").fill("over");
  await page.getByRole("dialog").getByRole("button", { name: "End" }).click();
  await page.getByText("Another operator changed it in the meantime").waitFor();
  await page.getByRole("button", { name: "Show it as it is now" }).click();
  await row.getByText("theirs again").waitFor();
  await row.getByRole("button", { name: /^End/ }).click();
  await page.getByLabel("Reason").fill("over");
  await page.getByRole("dialog").getByRole("button", { name: "End" }).click();
  await until("the override has ended", async () => (await limitOf(url, { action: "search", user: "two" })) === 5);
  await row.waitFor({ state: "detached" });

  await page.goto(`${url}/#/audit`);
  await page.getByText("ended an override").first().waitFor();
  await call(url, {
    method: "POST",
    at: "/v1/bypass",
    headers,
    body: { when: { user: "seen" }, for: "1h", reason: "while you look" },
  });
  await page.getByText("while you look", { exact: true }).waitFor();
  await context.close();
}

module.exports = { changing, otherwiseChanged };
