/*
 * skew.h - a database whose clock tests can step, as a host's does (REL-6): statements of connections made from now on read
 * now() and its kin from functions of ours, which add what skew.off says. (Defaults of columns keep the real clock.)
 */
#pragma once

#define SKEW_FUNCTION(name, kind)                                                                            \
	"CREATE FUNCTION skew." name "() RETURNS timestamptz LANGUAGE sql " kind                             \
	" AS 'SELECT pg_catalog." name "() + (SELECT by FROM skew.off)';"
#define SKEW_SQL                                                                                             \
	"CREATE SCHEMA skew; GRANT USAGE ON SCHEMA skew TO PUBLIC; CREATE TABLE skew.off (by interval);"     \
	"GRANT SELECT ON skew.off TO PUBLIC; INSERT INTO skew.off VALUES ('0');" SKEW_FUNCTION(              \
	    "now", "STABLE") SKEW_FUNCTION("statement_timestamp", "STABLE") SKEW_FUNCTION("clock_timestamp", \
	    "VOLATILE") "DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, "            \
			"skew, pg_catalog', current_database()); END$$"
/* The clock is that far from the real one from now on: an SQL interval. */
#define SKEW_STEP(by) "UPDATE skew.off SET by = '" by "'"
