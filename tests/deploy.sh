#!/bin/bash
# deploy.sh - what an operator installs is checked as an operator would: systemd-analyze verify, nginx -t with the include
# in a server of somebody else's, the include's length (OP-4), and that sandboxd's capabilities are explained one by one.
set -euo pipefail
cd "$(dirname "$0")/.."
bad=0
say() { echo "deploy: $*" >&2; bad=1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for unit in systemd/*.service; do
  sed 's#^ExecStart=.*#ExecStart=/bin/true#' "$unit" >"$work/$(basename "$unit")"
done
if command -v systemd-analyze >/dev/null; then
  out=$(cd "$work" && systemd-analyze verify ./*.service 2>&1 | grep -v 'postgresql.service' || true)
  [ -z "$out" ] || say "systemd-analyze verify: $out"
else
  say "systemd-analyze is not installed"
fi

for cap in $(sed -n 's/^CapabilityBoundingSet=//p' systemd/gatehouse-sandboxd.service); do
  grep -q "^#.*\b$cap\b" systemd/gatehouse-sandboxd.service || say "$cap has no reason in gatehouse-sandboxd.service"
done
[ -z "$(sed -n 's/^CapabilityBoundingSet=//p' systemd/gatehouse-api.service systemd/gatehouse-runner.service)" ] ||
  say "only sandboxd may have capabilities"

lines=$(wc -l <nginx/gatehouse.conf)
[ "$lines" -le 40 ] || say "nginx/gatehouse.conf has $lines lines; 40 is the limit"
cp /etc/nginx/fastcgi_params nginx/*.conf "$work/"
cat >"$work/nginx.conf" <<EOT
pid $work/nginx.pid;
events {}
http {
  client_body_temp_path $work/b; fastcgi_temp_path $work/f; proxy_temp_path $work/p; uwsgi_temp_path $work/u; scgi_temp_path $work/s;
  server { listen 127.0.0.1:65001; root /var/www; location / { return 200 mine; } include gatehouse.conf; }
  include gatehouse-internal.conf;
}
EOT
sed -i "s#/run/gatehouse/internal/door.sock#$work/door.sock#" "$work/gatehouse-internal.conf"
out=$(/usr/sbin/nginx -t -q -e stderr -p "$work" -c "$work/nginx.conf" 2>&1 | grep -v 'the "user" directive' || true)
[ -z "$out" ] || say "nginx -t: $out"
exit $bad
