# embed.awk - turn sql/query/MODULE.sql into C. A statement starts at "-- name: NAME" (comment lines after it say why) and
# runs to the next one. Usage: awk -v mode=h|c -v module=NAME -f embed.awk MODULE.sql
function flush_stmt(   n, i, max, rest) {
  if (name == "") return
  if (mode == "h") { printf "extern const struct pg_stmt q_%s;\n", name; return }
  max = 0; rest = text
  while (match(rest, /\$[0-9]+/)) {
    n = substr(rest, RSTART + 1, RLENGTH - 1) + 0
    if (n > max) max = n
    rest = substr(rest, RSTART + RLENGTH)
  }
  gsub(/\\/, "\\\\", text); gsub(/"/, "\\\"", text); gsub(/\n/, "\\n\"\n    \"", text)
  printf "const struct pg_stmt q_%s = { \"%s\",\n    \"%s\", %d };\n", name, name, text, max
}
BEGIN {
  if (mode == "h") printf "/* made from sql/query/%s.sql */\n#pragma once\n#include \"io/pg.h\"\n", module
  else printf "/* made from sql/query/%s.sql */\n#include \"sql/%s.h\"\n", module, module
}
/^-- name: / { flush_stmt(); name = $3; text = ""; next }
/^--/ { next }
name != "" && NF { text = text (text == "" ? "" : "\n") $0 }
END { flush_stmt() }
