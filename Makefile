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

PKGS   := jansson libpq libcurl openssl libseccomp libcares zlib
CSTD   := -std=gnu17 -D_GNU_SOURCE -Iapp -I. -I$(B)/gen
WARN   := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition \
          -Wpointer-arith -Wwrite-strings -Wcast-qual -Wformat=2 -Wundef -Wvla -Wnull-dereference \
          -Wimplicit-fallthrough -Wswitch -Wconversion -Wno-missing-field-initializers
GCCW   := -Wformat-signedness -Wlogical-op -Wduplicated-cond -Wduplicated-branches -Wjump-misses-init
HARD   := -fstack-protector-strong -fstack-clash-protection -fcf-protection -D_FORTIFY_SOURCE=2 -fPIE
OPT.release := -O2 -g $(HARD)
# The sanitizer build also compiles the named crash points in (base/crash.h); the flow tests run it.
OPT.asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -DGH_CRASH_POINTS
# libFuzzer's build: line counts of what it reached, too. What clang thinks of the sources is the gate `clang`.
OPT.fuzz    := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer \
               -fprofile-instr-generate -fcoverage-mapping -w
OPT.cov     := -O0 -g --coverage -fprofile-update=atomic
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
LIB_SRC := $(filter-out app/main/% app/box/%,$(wildcard app/*/*.c app/*/*/*.c)) $(wildcard handlers/*.c) $(wildcard app/box/proto*.c) app/box/tar.c app/box/watch_dirs.c
LIB_OBJ := $(LIB_SRC:%.c=$(O)/%.o) $(GEN_O)
LIB     := $(O)/libgatehouse.a
# app/main/api.c is gatehouse-api; only the operator's command is called as the product.
CLI_SRC := $(wildcard app/main/cli_*.c)
MAINS   := $(patsubst app/main/%.c,%,$(filter-out $(CLI_SRC),$(wildcard app/main/*.c)))
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
	$(Q)$(CC) $(LDFLAGS) $(filter %.o,$^) $(LIB) $(LDLIBS) -o $@
endef
$(O)/gatehouse-%: $(O)/app/main/%.o $(LIB) ; $(link)
$(O)/gatehouse: $(O)/app/main/gatehouse.o $(CLI_SRC:%.c=$(O)/%.o) $(LIB) ; $(link)

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

# Fuzz targets (tests/fuzz): one program, told its target by the environment; their seeds are replayed by a unit test.
FUZZLIB := $(O)/libfuzz.a
$(FUZZLIB): $(patsubst %.c,$(O)/%.o,$(filter-out tests/fuzz/main.c,$(wildcard tests/fuzz/*.c)))
	$(Q)rm -f $@ && ar rcs $@ $^
$(O)/tests/test_fuzz: $(O)/tests/unit/test_fuzz.o $(FUZZLIB) $(TLIB) $(LIB)
	$(Q)mkdir -p $(@D) && echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) $< $(FUZZLIB) $(TLIB) $(LIB) $(LDLIBS) -lcmocka -o $@
$(O)/fuzz: $(O)/tests/fuzz/main.o $(FUZZLIB) $(TLIB) $(LIB)
	$(Q)echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -fsanitize=fuzzer $< $(FUZZLIB) $(TLIB) $(LIB) $(LDLIBS) -lcmocka -o $@

# Flow tests are tests/flow/flow_*.c, one program each; the other files there are what they share.
FLOW    := $(patsubst tests/flow/%.c,$(O)/tests/%,$(wildcard tests/flow/flow_*.c))
FLIB    := $(O)/libflow.a
$(FLIB): $(patsubst %.c,$(O)/%.o,$(filter-out tests/flow/flow_%,$(wildcard tests/flow/*.c)))
	$(Q)rm -f $@ && ar rcs $@ $^
$(O)/tests/flow_%: $(O)/tests/flow/flow_%.o $(FLIB) $(TLIB) $(LIB)
	$(Q)mkdir -p $(@D) && echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) $< $(FLIB) $(TLIB) $(LIB) $(LDLIBS) -lcmocka -o $@

# Benches are tests/bench/bench_*.c, one program each, of the release build; the other files there are the harness.
BENCHES := $(patsubst tests/bench/bench_%.c,%,$(wildcard tests/bench/bench_*.c))
BENCH   ?= $(BENCHES)
BLIB    := $(O)/libbench.a
$(BLIB): $(patsubst %.c,$(O)/%.o,$(filter-out tests/bench/bench_%,$(wildcard tests/bench/*.c)))
	$(Q)rm -f $@ && ar rcs $@ $^
$(O)/bench/bench_%: $(O)/tests/bench/bench_%.o $(BLIB) $(FLIB) $(TLIB) $(LIB)
	$(Q)mkdir -p $(@D) && echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) $< $(BLIB) $(FLIB) $(TLIB) $(LIB) $(LDLIBS) -lcmocka -o $@

# ---- tests: each program's closing lines, and everything it said when it fails
# These run the real box.
$(filter $(O)/tests/test_box%,$(UNIT:%=$(O)/tests/%)): $(BOX)
# These run the real proxy.
$(filter $(O)/tests/test_egress%,$(UNIT:%=$(O)/tests/%)): $(O)/gatehouse-egress

unit: $(UNIT:%=$(O)/tests/%) ## run the unit tests
	$(Q)tests/run.sh 900 $^
asan: ## the unit tests under the address and undefined-behaviour sanitizers
	$(Q)$(MAKE) MODE=asan unit
# The default runtime is the first that works (crun, runc); sandboxes are tested on the other one, too.
FLOW_RUNTIMES ?= runc
flow: all ## the whole stack, from the sanitizer build (flow_exec: what is installed)
	$(Q)$(MAKE) MODE=asan all flow-run
# What takes longest begins first, so that nothing is waited for alone at the end.
LONGEST := $(addprefix $(O)/tests/,flow_clock flow_crash flow_bad_database flow_bad_upgrade flow_sandbox_crash flow_egress_clients \
           flow_charge flow_chaos flow_bulk flow_stream flow_model_clients test_box_kill test_oidc)
longest_first = $(filter $(LONGEST),$(1)) $(filter-out $(LONGEST),$(1))
ON_RUNTIMES = $(foreach r,$(FLOW_RUNTIMES),$(if $(shell command -v $(r)),SANDBOX_OCI_RUNTIME=$(r) $(filter %/flow_sandbox %/flow_sandbox_run,$(FLOW))))
flow-run: $(FLOW)
	$(Q)$(if $^,tests/run.sh 1800 $(call longest_first,$^) $(ON_RUNTIMES))
test-run: $(UNIT:%=$(O)/tests/%) $(FLOW)
	$(Q)tests/run.sh 1800 $(call longest_first,$^) $(ON_RUNTIMES)
# What the clients' packages are fetched from is slow and the gates need no network, so both at once; who needs a package that could
# not be fetched says so.
test: ## install what is missing, build, check, and run every test
	$(Q)tests/stack/install.sh test
	$(Q)$(MAKE) all
	$(Q)for c in openapi openai anthropic e2b; do tests/clients/install.sh $$c; done >$(B)/clients.log 2>&1 </dev/null & \
		$(MAKE) check; status=$$?; wait; exit $$status
	$(Q)$(MAKE) clients
	$(Q)$(MAKE) MODE=asan all test-run
run: ## the main job for real, on a stack in var/ that is left running
	$(Q)tests/stack/demo.sh
stop: ## end what `make run` left running
	$(Q)[ ! -e var ] || tests/stack/stack.sh down var
clean-run: stop ## end it and remove its state
	$(Q)[ ! -e var ] || rm -rf "$$(readlink -f var)" var
clients: ## third-party programs judge us
	$(Q)tests/clients/openapi/check.sh tests/golden/openapi.json
# A seed decides who is killed, in which order and when, and what the fuzz targets are given.
RUNS       ?= 50
SEED       ?= $(shell date +%s)
HEAVY_RUNS ?= 1000
chaos: ## coding runs while every process is killed: SEED=n RUNS=n
	$(Q)$(MAKE) MODE=asan all $(B)/asan/tests/flow_chaos
	$(Q)CHAOS_SEED=$(SEED) CHAOS_RUNS=$(RUNS) $(B)/asan/tests/flow_chaos
test-heavy: ## the deep analyzer, the release build's unit tests, the long forms of tests: more seeds, more data
	$(Q)tests/stack/install.sh heavy
	$(Q)$(MAKE) tidy-deep
	$(Q)$(MAKE) unit
	$(Q)$(MAKE) fuzz SECONDS=5
	$(Q)$(MAKE) heavy-flow
	$(Q)$(MAKE) chaos RUNS=$(HEAVY_RUNS)
# Programs that have a long form read GATEHOUSE_HEAVY.
LONG    := $(sort $(patsubst %.c,%,$(notdir $(shell grep -l GATEHOUSE_HEAVY tests/unit/*.c tests/flow/flow_*.c))))
heavy-flow: ## tests in their long forms
	$(Q)tests/stack/install.sh heavy
	$(Q)$(MAKE) MODE=asan all heavy-run
heavy-run: $(LONG:%=$(O)/tests/%)
	$(Q)GATEHOUSE_HEAVY=1 tests/run.sh 2400 $(call longest_first,$^)
bench: ## measure, side by side (BENCH=name: only that one); tests/bench/README.md
	$(Q)tests/stack/install.sh bench
	$(Q)$(MAKE) --no-print-directory all $(BENCH:%=$(O)/bench/bench_%)
	$(Q)tests/bench/bench.sh $(BENCH)
fuzz: ## libFuzzer over every reader of outside bytes: make fuzz SECONDS=60 [TARGET=head] [SEED=n]
	$(Q)$(MAKE) MODE=fuzz CC=clang $(B)/fuzz/fuzz
	$(Q)tests/fuzz/fuzz.sh $(B)/fuzz/fuzz $(or $(SECONDS),10) $(SEED) $(TARGET)
coverage: ## lines that the unit tests and the whole stack run, a folder (FILES=1: a file); tests/README.md says what is not
	$(Q)find $(B)/cov -name '*.gcda' -delete 2>/dev/null || true
	$(Q)$(MAKE) MODE=cov all coverage-run
# Processes of several users count into the same files. A test that fails is no matter of this.
COVER   := forge page sandbox sandbox_driver sandbox_run sandbox_commands unisolated run egress
coverage-run: $(BINS) $(BOX) $(UNIT:%=$(O)/tests/%) $(COVER:%=$(O)/tests/flow_%)
	$(Q)find $(O) -name '*.gcno' | sed 's/gcno$$/gcda/' | xargs -I% install -m 666 /dev/null %
	$(Q)tests/run.sh 300 $(UNIT:%=$(O)/tests/%) || true
	$(Q)STACK_BIN=$(O) tests/run.sh 900 $(COVER:%=$(O)/tests/flow_%) || true
	$(Q)tests/coverage.sh $(O) $(FILES)
golden: $(UNIT:%=$(O)/tests/%) ## rewrite generated documents (systemd/gatehouse.conf, tests/golden); review the diff
	$(Q)GATEHOUSE_GOLDEN=1 tests/run.sh 300 $^

# ---- gates. Slow ones keep a stamp for each source, which is made anew when the file or a header of it changes.
SRC     := $(wildcard app/*/*.c app/*/*/*.c handlers/*.c)
TESTS   := $(wildcard tests/*.c tests/*/*.c)
CFILES  := $(SRC) $(TESTS) $(wildcard app/*/*.h app/*/*/*.h handlers/*.h tests/*.h tests/*/*.h)
# cppcheck reads no system header by itself, and cannot guess these macros.
# Jansson's json_is_* accept NULL; cppcheck takes that for a hint that the value may be NULL.
MACRO_H := $(firstword $(wildcard /usr/include/*/sys/queue.h /usr/include/sys/queue.h)) /usr/include/jansson.h
GATES   := cppcheck format-check layers lengths ids deploy analyze tidy clang

check: ## all gates
	$(Q)$(MAKE) --output-sync=target --keep-going $(GATES)
objects: $(SRC:%.c=$(O)/%.o)
analyze: ## gcc -fanalyzer
	$(Q)$(MAKE) MODE=analyze objects
# clang-tidy in two halves: its path-sensitive analyzer takes twenty times as long as everything else of it, so it is of test-heavy.
define TIDY
	$(Q)mkdir -p $(@D) && echo "  TIDY  $<"
	$(Q)clang-tidy --quiet --checks='$(1)' $< -- $(CSTD) $(PKG_C) 2>&1 | \
		grep -vE '^[0-9]+ warnings? (generated|treated)|^Suppressed' ; test $${PIPESTATUS[0]} = 0
	$(Q)touch $@
endef
tidy: $(SRC:%.c=$(B)/tidy/%.ok) ## clang-tidy: bugs, function size, complexity
$(B)/tidy/%.ok: %.c .clang-tidy $(B)/release/%.o
	$(call TIDY,-clang-analyzer-*)
tidy-deep: $(SRC:%.c=$(B)/tidy-deep/%.ok) ## and its path-sensitive analyzer
$(B)/tidy-deep/%.ok: %.c .clang-tidy $(B)/release/%.o
	$(call TIDY,)
clang: $(SRC:%.c=$(B)/clang/%.ok) $(TESTS:%.c=$(B)/clang/%.ok) ## clang compiles everything without a warning
$(B)/clang/%.ok: %.c Makefile | $(GEN_H)
	$(Q)mkdir -p $(@D) && clang -fsyntax-only -MMD -MP -MT $@ -MF $(@:.ok=.d) $(CSTD) $(WARN) $(CLANGW) $(PKG_C) $< && touch $@
cppcheck: ## cppcheck
	$(Q)mkdir -p $(B)/cppcheck && cppcheck --quiet --cppcheck-build-dir=$(B)/cppcheck --enable=warning,performance,portability \
		--inline-suppr --suppress=nullPointerRedundantCheck --suppress=ctunullpointer --error-exitcode=1 $(MACRO_H:%=--include=%) -Iapp -I. app handlers
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
	install -D -m 644 -t $(LIBEXEC) systemd/egress-role.sql
	install -D -m 644 systemd/gatehouse.sysusers $(DESTDIR)/usr/lib/sysusers.d/gatehouse.conf
	install -D -m 644 systemd/gatehouse.tmpfiles $(DESTDIR)/usr/lib/tmpfiles.d/gatehouse.conf
	install -D -m 644 -t $(DESTDIR)/etc/nginx nginx/gatehouse.conf nginx/gatehouse-kept.conf nginx/gatehouse-e2b.conf
	install -D -m 644 -t $(DESTDIR)/etc/nginx/conf.d nginx/gatehouse-internal.conf nginx/gatehouse-upstream.conf
	[ -e $(DESTDIR)/etc/gatehouse/gatehouse.conf ] || install -D -m 640 systemd/gatehouse.conf $(DESTDIR)/etc/gatehouse/gatehouse.conf
	[ -n "$(DESTDIR)" ] || { systemd-sysusers && systemd-tmpfiles --create && chgrp gatehouse /etc/gatehouse/gatehouse.conf && \
		{ [ -e /etc/gatehouse/secret.key ] || (umask 077 && openssl rand -hex 32 >/etc/gatehouse/secret.key && chown gatehouse /etc/gatehouse/secret.key); }; }

clean: ; $(Q)rm -rf $(B) ## remove build output
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 16
.PHONY: all run chaos stop clean-run install unit asan flow flow-run test-run test clients test-heavy heavy-flow heavy-run bench fuzz coverage coverage-run golden check objects analyze tidy tidy-deep clang cppcheck format format-check \
	layers lengths ids deploy clean help FORCE
-include $(shell find $(B) -name '*.d' 2>/dev/null)
