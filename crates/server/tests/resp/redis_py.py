import sys

import redis

for protocol in (2, 3):
    client = redis.Redis(
        port=int(sys.argv[1]), protocol=protocol, decode_responses=True, client_name="py", health_check_interval=1
    )
    key = f"py{protocol}"
    assert client.ping() and client.echo("x") == "x"
    assert client.client_getname() == "py" and client.client_id() > 0
    assert client.info()["tollgate_version"]
    assert client.execute_command("CL.THROTTLE", key, 1, 1, 60) == [0, 2, 1, -1, 60]
    told = client.execute_command("TG.CHECK", "user", key, "COST", 3)
    if protocol == 2:
        told = dict(zip(told[::2], told[1::2]))
    assert told["allowed"] == 1 and told["remaining"] == 17 and told["source"] == "store", told
    pipeline = client.pipeline(transaction=False)
    for _ in range(10_000):
        pipeline.execute_command("CL.THROTTLE", f"row{protocol}", 999, 1, 3600)
    limited = [answer[0] for answer in pipeline.execute()]
    assert limited == [0] * 1_000 + [1] * 9_000
    try:
        client.execute_command("TG.CHECK", "user")
        raise SystemExit("no error")
    except redis.ResponseError as error:
        assert "wrong number of arguments" in str(error), error
    client.close()
print("good")
