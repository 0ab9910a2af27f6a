# embed.awk - SQL files into C.
# mode=h, mode=c: sql/query/MODULE.sql; a statement starts at "-- name: NAME" (comment lines after it say why) and runs to
#   the next one. Usage: awk -v mode=h|c -v module=NAME -f embed.awk MODULE.sql
# mode=schema: every file of sql/schema, byte for byte (its SHA-256 is recorded), as one table for io/migrate.
#   Usage: awk -v mode=schema -f embed.awk 0001_a.sql 0002_b.sql …
function c_string(s) {
  gsub(/\\/, "&&", s); gsub(/"/, "\\\"", s); gsub(/\n/, "\\n\"\n    \"", s)
  return "\"" s "\""
}
function flush_stmt(   n, max, rest) {
  if (name == "") return
  if (mode == "h") { printf "extern const struct pg_stmt q_%s;\n", name; return }
  max = 0; rest = text
  while (match(rest, /\$[0-9]+/)) {
    n = substr(rest, RSTART + 1, RLENGTH - 1) + 0
    if (n > max) max = n
    rest = substr(rest, RSTART + RLENGTH)
  }
  printf "const struct pg_stmt q_%s = { \"%s\",\n    %s, %d };\n", name, name, c_string(text), max
}
function flush_file() {
  if (file != "") printf "  { \"%s\",\n    %s },\n", file, c_string(text)
}
BEGIN {
  if (mode == "h") printf "/* made from sql/query/%s.sql */\n#pragma once\n#include \"io/pg.h\"\n", module
  else if (mode == "c") printf "/* made from sql/query/%s.sql */\n#include \"sql/%s.h\"\n", module, module
  else printf "/* made from sql/schema */\n#include \"io/migrate.h\"\nconst struct migration migrations[] = {\n"
}
mode == "schema" && FNR == 1 { flush_file(); file = FILENAME; sub(/.*\//, "", file); sub(/\.sql$/, "", file); text = "" }
mode == "schema" { text = text $0 "\n"; next }
/^-- name: / { flush_stmt(); name = $3; text = ""; next }
/^--/ { next }
name != "" && NF { text = text (text == "" ? "" : "\n") $0 }
END {
  if (mode == "schema") { flush_file(); print "  { 0 } };" }
  else flush_stmt()
}
