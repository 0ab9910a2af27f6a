# gatehouse: `make help` lists every target. The README's two commands are `make run` and `make test`.
MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.SECONDARY:
.DEFAULT_GOAL := all

B      ?= build
MODE   ?= release
V      ?= 0
Q       = $(if $(filter 1,$(V)),,@)
O      := $(B)/$(MODE)

PKGS   := jansson libpq libcurl openssl libseccomp
CSTD   := -std=gnu17 -D_GNU_SOURCE -Iapp -I. -I$(B)/gen
WARN   := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition \
          -Wpointer-arith -Wwrite-strings -Wcast-qual -Wformat=2 -Wformat-signedness -Wundef -Wvla -Wnull-dereference \
          -Wimplicit-fallthrough -Wswitch -Wconversion -Wno-missing-field-initializers
GCCW   := -Wlogical-op -Wduplicated-cond -Wduplicated-branches -Wjump-misses-init
HARD   := -fstack-protector-strong -fstack-clash-protection -fcf-protection -D_FORTIFY_SOURCE=2 -fPIE
OPT.release := -O2 -g $(HARD)
# The sanitizer build also compiles the named crash points in (base/crash.h); the flow tests run it.
OPT.asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -DGH_CRASH_POINTS
OPT.analyze := -O2 -g -fanalyzer
LD.release  := -pie -Wl,-z,relro,-z,now,-z,noexecstack
CFLAGS  = $(CSTD) $(WARN) $(if $(findstring gcc,$(CC)),$(GCCW),$(if $(filter cc,$(CC)),$(GCCW))) $(OPT.$(MODE)) $(shell pkg-config --cflags $(PKGS))
LDFLAGS = $(OPT.$(MODE)) $(LD.$(MODE))
LDLIBS  = $(shell pkg-config --libs $(PKGS)) -lfcgi -lpthread

SQL     := $(patsubst sql/query/%.sql,%,$(wildcard sql/query/*.sql))
GEN_H   := $(SQL:%=$(B)/gen/sql/%.h)
GEN_O   := $(SQL:%=$(O)/gen/sql_%.o) $(O)/gen/migrations.o
# Everything but the main()s and the static pid-1 agent.
LIB_SRC := $(filter-out app/main/% app/box/%,$(wildcard app/*/*.c app/*/*/*.c)) $(wildcard handlers/*.c) $(wildcard app/box/proto*.c)
LIB_OBJ := $(LIB_SRC:%.c=$(O)/%.o) $(GEN_O)
LIB     := $(O)/libgatehouse.a
# app/main/api.c is gatehouse-api; only the operator's command is called as the product.
MAINS   := $(patsubst app/main/%.c,%,$(wildcard app/main/*.c))
BINS    := $(patsubst $(O)/gatehouse-gatehouse,$(O)/gatehouse,$(MAINS:%=$(O)/gatehouse-%))
# What several unit tests share (tests/pgtest.c); an archive, so that only what a test uses is linked into it.
TLIB    := $(O)/libtest.a
UNIT    := $(patsubst tests/unit/%.c,%,$(wildcard tests/unit/test_*.c))

all: $(LIB) $(BINS) ## build every binary

$(B)/gen/sql/%.h: sql/query/%.sql sql/embed.awk
	$(Q)mkdir -p $(@D) && awk -v mode=h -v module=$* -f sql/embed.awk $< > $@
$(B)/gen/sql/%.c: sql/query/%.sql sql/embed.awk
	$(Q)mkdir -p $(@D) && awk -v mode=c -v module=$* -f sql/embed.awk $< > $@
$(O)/gen/sql_%.o: $(B)/gen/sql/%.c $(B)/gen/sql/%.h
	$(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) -c $< -o $@

# The migrations, in the order of their numbers.
$(B)/gen/migrations.c: $(sort $(wildcard sql/schema/*.sql)) sql/embed.awk
	$(Q)mkdir -p $(@D) && awk -v mode=schema -f sql/embed.awk $(filter %.sql,$^) > $@
$(O)/gen/migrations.o: $(B)/gen/migrations.c app/io/migrate.h
	$(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) -c $< -o $@

$(O)/%.o: %.c Makefile | $(GEN_H)
	$(Q)mkdir -p $(@D)
	$(Q)echo "  CC    $<"
	$(Q)$(CC) $(CFLAGS) -MMD -MP -c $< -o $@

$(LIB): $(LIB_OBJ)
	$(Q)rm -f $@ && ar rcs $@ $^

define link
	$(Q)echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) $< $(LIB) $(LDLIBS) -o $@
endef
$(O)/gatehouse-%: $(O)/app/main/%.o $(LIB) ; $(link)
$(O)/gatehouse: $(O)/app/main/gatehouse.o $(LIB) ; $(link)

# A unit test may define fakes of its subject's neighbours: they are found before the archive's members.
$(O)/tests/test_%: $(O)/tests/unit/test_%.o $(TLIB) $(LIB)
	$(Q)mkdir -p $(@D) && echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) $< $(TLIB) $(LIB) $(LDLIBS) -lcmocka -o $@

$(TLIB): $(patsubst %.c,$(O)/%.o,$(wildcard tests/*.c))
	$(Q)rm -f $@ && ar rcs $@ $^

unit: $(UNIT:%=$(O)/tests/%) ## run the unit tests
	$(Q)for t in $^; do $$t || exit 1; done

clean: ; $(Q)rm -rf $(B) ## remove build output
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 14
.PHONY: all unit clean help
-include $(shell find $(O) -name '*.d' 2>/dev/null)
