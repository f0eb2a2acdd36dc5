#!/bin/sh
# Starts a shop, Tollgate and Caddy, then sends six searches: five pass, the sixth is refused.
# Needs `tollgate`, `caddy`, `python3` and `curl` on the path.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
echo hello > "$work/search"
python3 -m http.server 8081 --bind 127.0.0.1 --directory "$work" > "$work/shop" 2>&1 & one=$!
tollgate serve --rules rules.yaml --http 127.0.0.1:8080 --resp off \
  --trusted-proxies 127.0.0.1 --proxy-header x-forwarded-for 2> "$work/tollgate" & two=$!
caddy run 2> "$work/caddy" & three=$!
trap 'kill $one $two $three || true; wait; rm -r "$work"' EXIT
trap 'exit 1' INT TERM
for place in 127.0.0.1:8080/healthz 127.0.0.1:8081/search 127.0.0.1:10000/; do
  curl --silent --output "$work/ready" --retry 20 --retry-delay 1 --retry-all-errors --fail-with-body "http://$place"
done
for number in 1 2 3 4 5 6; do
  curl --silent --output "$work/response" --write-out '%{http_code} %header{ratelimit} %header{retry-after}\n' \
    http://127.0.0.1:10000/search
done
