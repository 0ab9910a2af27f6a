/* What libFuzzer calls: the target that $FUZZ_TARGET names. Without one the seeds of $FUZZ_SEEDS are written to $FUZZ_DIR. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "fuzz.h"
#include "io/file.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static const struct fuzz_target *target;

struct where {
	const char *dir;
	int n;
};

static void put(void *arg, const uint8_t *p, size_t n)
{
	struct where *w = arg;
	char path[512];
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "%s/seed%d", w->dir, w->n++);
	if (file_write(path, p, n, 0644, &e) != 0) {
		(void)fprintf(stderr, "%s: %s\n", path, e.msg);
		exit(1);
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	target = fuzz_find(getenv("FUZZ_TARGET"));
	const char *dir = getenv("FUZZ_SEEDS_TO");
	if (target == NULL) {
		for (const struct fuzz_target *t = fuzz_targets; t->name != NULL; t++)
			(void)printf("%s %s\n", t->name, t->subject);
		exit(0);
	}
	if (dir != NULL) {
		(void)fuzz_seeds(target, put, &(struct where){ .dir = dir });
		exit(0);
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	target->run(p, n);
	return 0;
}
