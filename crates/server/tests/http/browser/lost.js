// A server that does not answer any more, and one that is killed and comes back.

const { spawn } = require("node:child_process");
const { assert, call, inspect, shoot, task, until, visit } = require("./support.js");

async function lost(browser) {
  const { binary, args, url } = task.lost;
  const serve = () => spawn(binary, args, { stdio: "ignore" });
  const isUp = () =>
    call(url, { at: "/healthz" }).then(
      ({ status }) => status === 200,
      () => false,
    );
  let server = serve();
  try {
    await until("the server is up", isUp);
    const context = await browser.newContext();
    const page = await visit(context, `${url}/`);
    const [banner, ready] = [page.getByText("No news from the server"), page.getByText("● ready")];
    const isGrey = () => page.evaluate(() => document.body.classList.contains("lost"));
    await ready.waitFor();
    assert.equal(await isGrey(), false);
    const [before] = await page.locator(".tile .big").allInnerTexts();

    // It hangs: the connection stays, and no event comes.
    server.kill("SIGSTOP");
    await banner.waitFor();
    assert.match(await page.locator("#banner").innerText(), /The numbers are \d+ s old\./);
    assert.ok(await isGrey(), "old numbers are grey");
    assert.deepEqual((await page.locator(".tile .big").allInnerTexts())[0], before, "they stay, and do not become 0");
    server.kill("SIGCONT");
    await banner.waitFor({ state: "detached" });
    assert.equal(await isGrey(), false);

    server.kill("SIGKILL");
    await banner.waitFor();
    await shoot(page, "lost");
    await inspect(page, "a lost server");
    server = serve();
    await banner.waitFor({ state: "detached" });
    assert.equal(await isGrey(), false);
    await context.close();
  } finally {
    server.kill("SIGKILL");
  }
}

module.exports = { lost };
