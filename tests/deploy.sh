#!/bin/bash
# deploy.sh - what an operator installs is checked as an operator would: systemd-analyze verify, nginx -t with the include
# in a server of somebody else's, the include's length (OP-4), the recorded exposure of the units (SEC-2), and that sandboxd's capabilities are explained one by one.
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
  # SEC-2: the figures that systemd/README.md records are upper bounds, and every unit has one.
  for unit in systemd/*.service; do
    name=$(basename "$unit")
    most=$(sed -nE "s/^\| \`$name\` \| ([0-9.]+) \|.*/\1/p" systemd/README.md)
    is=$(cd systemd && systemd-analyze security --offline=true --no-pager "$name" | sed -nE 's/.*exposure level for .*: ([0-9.]+) .*/\1/p')
    [ -n "$most" ] || say "systemd/README.md records no figure for $name"
    [ -n "$is" ] && awk "BEGIN { exit !($is <= ${most:-0}) }" || say "$name: exposure $is, recorded is at most $most"
  done
else
  say "systemd-analyze is not installed"
fi

for cap in $(sed -n 's/^CapabilityBoundingSet=//p' systemd/gatehouse-sandboxd.service); do
  grep -q "^#.*\b$cap\b" systemd/gatehouse-sandboxd.service || say "$cap has no reason in gatehouse-sandboxd.service"
done
[ -z "$(sed -n 's/^CapabilityBoundingSet=//p' systemd/gatehouse-{api,runner,egress}.service)" ] ||
  say "only sandboxd may have capabilities"

# SEC-2: what was built has the hardening set. (Static: the box, which has no dynamic linker to bind now.)
for b in build/release/gatehouse{,-api,-runner,-sandboxd,-egress,-box}; do
  [ -x "$b" ] || continue
  elf=$(readelf -hWld "$b")
  grep -q 'Type: *DYN' <<<"$elf" || say "$b is not position-independent"
  grep -q GNU_RELRO <<<"$elf" || say "$b has no RELRO"
  grep -qE 'GNU_STACK .* RW +0x' <<<"$elf" || say "$b has an executable stack"
  case $b in *-box) continue ;; esac
  grep -qE 'BIND_NOW|Flags: NOW' <<<"$elf" || say "$b does not bind at start (full RELRO)"
  symbols=$(nm -D "$b")
  grep -q __stack_chk_fail <<<"$symbols" || say "$b has no stack protector"
  grep -qE '__[a-z]+_chk' <<<"$symbols" || say "$b is not fortified"
done

lines=$(wc -l <nginx/gatehouse.conf)
[ "$lines" -le 40 ] || say "nginx/gatehouse.conf has $lines lines; 40 is the limit"
cp /etc/nginx/fastcgi_params nginx/*.conf "$work/"
check_nginx() { # as it is in $work
  out=$(/usr/sbin/nginx -t -q -e stderr -p "$work" -c "$work/nginx.conf" 2>&1 | grep -v 'the "user" directive' || true)
  [ -z "$out" ] || say "nginx -t: $out"
}
cat >"$work/nginx.conf" <<EOT
pid $work/nginx.pid;
events {}
http {
  client_body_temp_path $work/b; fastcgi_temp_path $work/f; proxy_temp_path $work/p; uwsgi_temp_path $work/u; scgi_temp_path $work/s;
  # Somebody else's server sets what it likes: nothing of it may collide with the include.
  server { listen 127.0.0.1:65001; root /var/www; location / { return 200 mine; } ssl_protocols TLSv1.2; server_tokens on;
    client_max_body_size 1m; client_body_timeout 5s; client_header_timeout 5s; send_timeout 5s; keepalive_timeout 5s;
    large_client_header_buffers 4 8k; add_header Strict-Transport-Security "max-age=60" always; error_page 502 /mine;
    include gatehouse.conf; }
  server { listen 127.0.0.1:65002; root /var/www; server_tokens on; client_max_body_size 1m; include gatehouse-e2b.conf; }
  include gatehouse-internal.conf;
  include gatehouse-upstream.conf;
}
EOT
sed -i "s#/run/gatehouse/internal/door.sock#$work/door.sock#" "$work/gatehouse-internal.conf"
check_nginx
sed -i /gatehouse-upstream/d "$work/nginx.conf"
/usr/sbin/nginx -t -q -e /dev/null -p "$work" -c "$work/nginx.conf" 2>/dev/null && say "gatehouse-kept.conf without its upstream is not noticed"
# OP-4: the include alone is all that nginx needs.
rm "$work/gatehouse-kept.conf"
check_nginx
exit $bad
