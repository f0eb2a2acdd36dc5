// Who may see and do what: tokens, hosts, origins.

const { assert, call, check, inspect, shoot, task, visit, visitWith } = require("./support.js");

async function access(browser) {
  const { url, read } = task.shop;
  const context = await browser.newContext();
  const page = await visit(context, `${url}/`);
  await page.getByText("asks for a token").waitFor();
  await shoot(page, "token");
  await inspect(page, "token form");
  await page.getByLabel("Token").fill("guessed");
  await page.keyboard.press("Enter");
  await page.getByText("does not know this token").waitFor();
  await page.getByLabel("Token").fill(read);
  await page.keyboard.press("Enter");
  await page.getByText("● ready").waitFor();
  await page.getByRole("heading", { name: "Last changes" }).waitFor();
  const kept = await page.evaluate(() => [localStorage.length, document.cookie, location.href]);
  assert.deepEqual([kept[0], kept[1]], [0, ""], "the token is in this tab only");
  assert.ok(!kept[2].includes(read));

  // A token that may read gets no actions.
  for (const place of ["", "changes", "rules/per-user", "subject", "audit"]) {
    await page.goto(`${url}/#/${place}`);
    await page.locator("main h1").first().waitFor({ state: "attached" });
    if (place === "subject") {
      await page.getByLabel("Attributes of a request").fill("action=search user=jane");
      await page.keyboard.press("Enter");
      await page.getByText("A request like this would be").waitFor();
    }
    if (place === "changes") await page.getByText("You may read.").waitFor();
    assert.equal(
      await page
        .locator("main")
        .getByRole("button", { name: /^(Add|End|Change|Deny|Let pass|Reset)/ })
        .count(),
      0,
      place,
    );
  }
  await page.getByRole("button", { name: "Forget token" }).click();
  await page.getByText("asks for a token").waitFor();
  await context.close();

  const headers = { authorization: `Bearer ${read}` };
  assert.equal((await call(url, { at: `/v1/history?token=${read}` })).status, 401);
  assert.equal((await call(url, { at: `/v1/history?token=${read}`, headers })).status, 400, "a token in a query is refused");
  const body = { when: { user: "u" }, reason: "no" };
  assert.equal((await call(url, { method: "POST", at: "/v1/deny", headers, body })).status, 403, "the server refuses it too");
  // Pages of other sites, and names that point here, get nothing.
  for (const at of ["/", "/dashboard/app.js", "/v1/history", "/v1/events", "/v1/overrides", "/v1/whoami", "/v1/fleet"]) {
    assert.equal((await call(url, { at, headers: { ...headers, host: "shop.example" } })).status, 421, at);
    assert.equal((await call(url, { at, headers: { ...headers, origin: "https://shop.example" } })).status, 403, at);
    assert.equal((await call(url, { at, headers: { ...headers, "sec-fetch-site": "cross-site" } })).status, 403, at);
  }
  await framed(browser);
}

/** A page of another origin can neither show the dashboard in a frame nor read it. */
async function framed(browser) {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.route("https://attacker.example/**", (route) =>
    route.fulfill({ contentType: "text/html", body: `<iframe src="${task.open}/"></iframe>` }),
  );
  await page.goto("https://attacker.example/");
  await page.waitForTimeout(300);
  const frame = page.frames().find((one) => one.url().startsWith(task.open));
  const shown = frame
    ? await frame
        .locator("#top")
        .count()
        .catch(() => 0)
    : 0;
  assert.equal(shown, 0, "it is not shown in a frame");
  const answer = await page.evaluate(
    (url) =>
      fetch(`${url}/v1/whoami`).then(
        () => "read",
        () => "refused",
      ),
    task.open,
  );
  assert.equal(answer, "refused");
  assert.equal(await check(task.open, { action: "none" }), 200);
  await context.close();
}

module.exports = { access };
