# gatehouse: `make help` lists every target. The README's two commands are `make run` and `make test`.
MAKEFLAGS += --no-builtin-rules
SHELL := /bin/bash
.DELETE_ON_ERROR:
.SECONDARY:
.DEFAULT_GOAL := all
# As many jobs as there are processors; the makes below share them.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif

B      ?= build
MODE   ?= release
V      ?= 0
Q       = $(if $(filter 1,$(V)),,@)
O      := $(B)/$(MODE)

PKGS   := jansson libpq libcurl openssl libseccomp
CSTD   := -std=gnu17 -D_GNU_SOURCE -Iapp -I. -I$(B)/gen
WARN   := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition \
          -Wpointer-arith -Wwrite-strings -Wcast-qual -Wformat=2 -Wundef -Wvla -Wnull-dereference \
          -Wimplicit-fallthrough -Wswitch -Wconversion -Wno-missing-field-initializers
GCCW   := -Wformat-signedness -Wlogical-op -Wduplicated-cond -Wduplicated-branches -Wjump-misses-init
HARD   := -fstack-protector-strong -fstack-clash-protection -fcf-protection -D_FORTIFY_SOURCE=2 -fPIE
OPT.release := -O2 -g $(HARD)
# The sanitizer build also compiles the named crash points in (base/crash.h); the flow tests run it.
OPT.asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -DGH_CRASH_POINTS
OPT.analyze := -O2 -g -fanalyzer
LD.release  := -pie -Wl,-z,relro,-z,now,-z,noexecstack
# clang does not count a cleanup attribute as a use; gcc finds the really unused ones.
CLANGW := -Wno-unused-variable
GCCW_ON = $(if $(findstring clang,$(CC)),$(CLANGW),$(if $(findstring gcc,$(CC))$(filter cc,$(CC)),$(GCCW)))
CFLAGS  = $(CSTD) $(WARN) $(GCCW_ON) $(OPT.$(MODE)) $(PKG_C)
LDFLAGS = $(OPT.$(MODE)) $(LD.$(MODE))
LDLIBS  = $(PKG_L) -lfcgi -lpthread
PKG_C  := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_L  := $(shell pkg-config --libs $(PKGS) 2>/dev/null)

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

# The agent inside every sandbox: static, without sanitizers in any mode, and of the base layer only what needs no library.
BOX     := $(O)/gatehouse-box
BOX_SRC := $(wildcard app/box/*.c) $(addprefix app/base/,err.c clock.c str.c)
BOX_OBJ := $(BOX_SRC:%.c=$(O)/static/%.o)

all: $(LIB) $(BINS) $(BOX) ## build every binary

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

# Which objects the archive holds, so that it is made anew when a source goes away.
$(O)/lib.list: FORCE
	$(Q)mkdir -p $(@D) && echo $(LIB_OBJ) | cmp -s - $@ || echo $(LIB_OBJ) >$@
$(LIB): $(LIB_OBJ) $(O)/lib.list
	$(Q)rm -f $@ && ar rcs $@ $(LIB_OBJ)

define link
	$(Q)echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) $< $(LIB) $(LDLIBS) -o $@
endef
$(O)/gatehouse-%: $(O)/app/main/%.o $(LIB) ; $(link)
$(O)/gatehouse: $(O)/app/main/gatehouse.o $(LIB) ; $(link)

$(O)/static/%.o: %.c Makefile
	$(Q)mkdir -p $(@D)
	$(Q)echo "  CC    $< (static)"
	$(Q)$(CC) $(CSTD) $(WARN) $(GCCW_ON) $(OPT.release) -MMD -MP -c $< -o $@

$(BOX): $(BOX_OBJ)
	$(Q)echo "  LD    $@"
	$(Q)$(CC) $(OPT.release) -static-pie $^ -o $@

# A unit test may define fakes of its subject's neighbours: they are found before the archive's members.
$(O)/tests/test_%: $(O)/tests/unit/test_%.o $(TLIB) $(LIB)
	$(Q)mkdir -p $(@D) && echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) $< $(TLIB) $(LIB) $(LDLIBS) -lcmocka -o $@

$(TLIB): $(patsubst %.c,$(O)/%.o,$(wildcard tests/*.c))
	$(Q)rm -f $@ && ar rcs $@ $^

# Flow tests are tests/flow/flow_*.c, one program each; the other files there are what they share.
FLOW    := $(patsubst tests/flow/%.c,$(O)/tests/%,$(wildcard tests/flow/flow_*.c))
FLIB    := $(O)/libflow.a
$(FLIB): $(patsubst %.c,$(O)/%.o,$(filter-out tests/flow/flow_%,$(wildcard tests/flow/*.c)))
	$(Q)rm -f $@ && ar rcs $@ $^
$(O)/tests/flow_%: $(O)/tests/flow/flow_%.o $(FLIB) $(TLIB) $(LIB)
	$(Q)mkdir -p $(@D) && echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) $< $(FLIB) $(TLIB) $(LIB) $(LDLIBS) -lcmocka -o $@

# ---- tests: each program's closing lines, and everything it said when it fails
# These run the real box.
$(filter $(O)/tests/test_box%,$(UNIT:%=$(O)/tests/%)): $(BOX)

unit: $(UNIT:%=$(O)/tests/%) ## run the unit tests
	$(Q)tests/run.sh 300 $^
asan: ## the unit tests under the address and undefined-behaviour sanitizers
	$(Q)$(MAKE) MODE=asan unit
flow: ## the whole stack, from the sanitizer build
	$(Q)$(MAKE) MODE=asan all flow-run
flow-run: $(FLOW)
	$(Q)$(if $^,tests/run.sh 900 $^)
test: ## install what is missing, build, check, and run every test
	$(Q)tests/stack/install.sh test
	$(Q)$(MAKE) all
	$(Q)$(MAKE) check
	$(Q)$(MAKE) unit
	$(Q)$(MAKE) clients
	$(Q)$(MAKE) asan
	$(Q)$(MAKE) flow
run: ## the main job for real, on a stack in var/ that is left running
	$(Q)tests/stack/install.sh run
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/stack/demo.sh
stop: ## end what `make run` left running
	$(Q)[ ! -e var ] || tests/stack/stack.sh down var
clean-run: stop ## end it and remove its state
	$(Q)[ ! -e var ] || rm -rf "$$(readlink -f var)" var
clients: ## third-party programs judge us
	$(Q)tests/clients/openapi/check.sh tests/golden/openapi.json
test-heavy: ## the long forms of tests: more seeds, more data (GATEHOUSE_HEAVY=1)
	$(Q)GATEHOUSE_HEAVY=1 $(MAKE) flow
golden: $(UNIT:%=$(O)/tests/%) ## rewrite generated documents (systemd/gatehouse.conf, tests/golden); review the diff
	$(Q)GATEHOUSE_GOLDEN=1 tests/run.sh 300 $^

# ---- gates. Slow ones keep a stamp for each source, which is made anew when the file or a header of it changes.
SRC     := $(wildcard app/*/*.c app/*/*/*.c handlers/*.c)
TESTS   := $(wildcard tests/*.c tests/*/*.c)
CFILES  := $(SRC) $(TESTS) $(wildcard app/*/*.h app/*/*/*.h handlers/*.h tests/*.h tests/*/*.h)
# cppcheck reads no system header by itself, and cannot guess these macros.
# Jansson's json_is_* accept NULL; cppcheck takes that for a hint that the value may be NULL.
MACRO_H := $(firstword $(wildcard /usr/include/*/sys/queue.h /usr/include/sys/queue.h)) /usr/include/jansson.h
GATES   := format-check layers lengths ids deploy analyze tidy clang cppcheck

check: ## all gates
	$(Q)$(MAKE) --output-sync=target --keep-going $(GATES)
objects: $(SRC:%.c=$(O)/%.o)
analyze: ## gcc -fanalyzer
	$(Q)$(MAKE) MODE=analyze objects
tidy: $(SRC:%.c=$(B)/tidy/%.ok) ## clang-tidy: bugs, function size, complexity
$(B)/tidy/%.ok: %.c .clang-tidy $(B)/release/%.o
	$(Q)mkdir -p $(@D) && echo "  TIDY  $<"
	$(Q)clang-tidy --quiet $< -- $(CSTD) $(PKG_C) 2>&1 | grep -vE '^[0-9]+ warnings? (generated|treated)|^Suppressed' ; \
		test $${PIPESTATUS[0]} = 0
	$(Q)touch $@
clang: $(SRC:%.c=$(B)/clang/%.ok) $(TESTS:%.c=$(B)/clang/%.ok) ## clang compiles everything without a warning
$(B)/clang/%.ok: %.c $(B)/release/%.o
	$(Q)mkdir -p $(@D) && clang -fsyntax-only $(CSTD) $(WARN) $(CLANGW) $(PKG_C) $< && touch $@
cppcheck: ## cppcheck
	$(Q)mkdir -p $(B)/cppcheck && cppcheck --quiet --cppcheck-build-dir=$(B)/cppcheck --enable=warning,performance,portability \
		--inline-suppr --suppress=nullPointerRedundantCheck --suppress=ctunullpointer --error-exitcode=1 $(MACRO_H:%=--include=%) -Iapp app handlers
format: ## clang-format every source in place
	$(Q)clang-format -i $(CFILES)
format-check: ; $(Q)clang-format --dry-run -Werror $(CFILES)
layers lengths ids deploy: ; $(Q)tests/$@.sh

# ---- installing on a host (DESTDIR for packages); a configuration that is there is kept
LIBEXEC := $(DESTDIR)/usr/lib/gatehouse
install: all ## binaries, units, nginx includes and the annotated configuration
	install -D -t $(LIBEXEC) $(BINS) $(BOX)
	install -d $(DESTDIR)/usr/bin && ln -sf ../lib/gatehouse/gatehouse $(DESTDIR)/usr/bin/gatehouse
	install -D -m 644 -t $(DESTDIR)/usr/lib/systemd/system systemd/*.service
	install -D -m 644 systemd/gatehouse.sysusers $(DESTDIR)/usr/lib/sysusers.d/gatehouse.conf
	install -D -m 644 systemd/gatehouse.tmpfiles $(DESTDIR)/usr/lib/tmpfiles.d/gatehouse.conf
	install -D -m 644 nginx/gatehouse.conf $(DESTDIR)/etc/nginx/gatehouse.conf
	install -D -m 644 nginx/gatehouse-internal.conf $(DESTDIR)/etc/nginx/conf.d/gatehouse-internal.conf
	[ -e $(DESTDIR)/etc/gatehouse/gatehouse.conf ] || install -D -m 640 systemd/gatehouse.conf $(DESTDIR)/etc/gatehouse/gatehouse.conf
	[ -n "$(DESTDIR)" ] || { systemd-sysusers && systemd-tmpfiles --create && chgrp gatehouse /etc/gatehouse/gatehouse.conf && \
		{ [ -e /etc/gatehouse/secret.key ] || (umask 077 && openssl rand -hex 32 >/etc/gatehouse/secret.key && chown gatehouse /etc/gatehouse/secret.key); }; }

clean: ; $(Q)rm -rf $(B) ## remove build output
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 16
.PHONY: all run stop clean-run install unit asan flow flow-run test clients test-heavy golden check objects analyze tidy clang cppcheck format format-check \
	layers lengths ids deploy clean help FORCE
-include $(shell find $(B) -name '*.d' 2>/dev/null)
