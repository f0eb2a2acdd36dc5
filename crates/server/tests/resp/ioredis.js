const assert = require("assert");
const Redis = require("ioredis");

const client = new Redis({ port: Number(process.argv[1]), connectionName: "js", maxRetriesPerRequest: 0 });

async function main() {
  assert.equal(await client.ping(), "PONG");
  assert.equal(await client.client("GETNAME"), "js");
  assert.deepEqual(await client.call("CL.THROTTLE", "js", 1, 1, 60), [0, 2, 1, -1, 60]);
  const told = await client.call("TG.CHECK", "user", "js");
  assert.deepEqual(told.slice(0, 8), ["allowed", 1, "rule", "requests-per-client", "limit", 20, "remaining", 19]);
  const row = await Promise.all(Array.from({ length: 5_000 }, () => client.call("CL.THROTTLE", "row", 999, 1, 3600)));
  assert.deepEqual(row.map((answer) => answer[0]), Array.from({ length: 5_000 }, (_, n) => (n < 1_000 ? 0 : 1)));
  await assert.rejects(client.call("TG.CHECK", "user"), /wrong number of arguments/);
  await client.quit();
  console.log("good");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
