/* One row of counters per op, found by its address; only atomics, as every worker and stream counts here. */
#include "op/metrics.h"

#include <stdatomic.h>

#include "base/mem.h"

enum { CLASSES = 5, BOUNDS = 7 };

static const struct {
	int64_t us;
	const char *text; /* seconds */
} bounds[BOUNDS] = { { 5000, "0.005" }, { 25000, "0.025" }, { 100000, "0.1" }, { 500000, "0.5" },
	{ 2500000, "2.5" }, { 10000000, "10" }, { INT64_MAX, "+Inf" } };

struct row {
	const struct op *op; /* NULL in the last row: what found none */
	atomic_llong by_class[CLASSES];
	atomic_llong by_time[BOUNDS];
	atomic_llong total_us;
};
struct metrics {
	size_t n;
	struct row rows[];
};

static struct row *row_of(struct metrics *m, const struct op *op)
{
	struct row *r = m->rows;
	while (r->op != NULL && r->op != op)
		r++;
	return r;
}

struct metrics *metrics_new(const struct op *const *tables)
{
	size_t n = 1;
	for (const struct op *const *t = tables; *t != NULL; t++)
		for (const struct op *o = *t; o->id != NULL; o++)
			n++;
	struct metrics *m = xcalloc(1, sizeof *m + n * sizeof m->rows[0]);
	for (const struct op *const *t = tables; *t != NULL; t++)
		for (const struct op *o = *t; o->id != NULL; o++)
			m->rows[m->n++].op = o;
	m->n++;
	return m;
}

void metrics_free(struct metrics *m)
{
	free(m);
}

void metrics_count(struct metrics *m, const struct op *op, int status, int64_t duration_us)
{
	struct row *r = row_of(m, op);
	int kind = status / 100 - 1;
	if (kind >= 0 && kind < CLASSES)
		atomic_fetch_add(&r->by_class[kind], 1);
	int i = 0;
	while (duration_us > bounds[i].us)
		i++;
	atomic_fetch_add(&r->by_time[i], 1);
	atomic_fetch_add(&r->total_us, duration_us);
}

static const char *name_of(const struct row *r)
{
	return r->op == NULL ? "none" : r->op->id;
}

static void print_times(const struct row *r, struct buf *out)
{
	long long sum = 0;
	for (int i = 0; i < BOUNDS; i++)
		sum += atomic_load(&r->by_time[i]);
	if (sum == 0 || r->op == NULL || (r->op->flags & (OP_STREAM | OP_LONG)) != 0)
		return;
	sum = 0;
	for (int i = 0; i < BOUNDS; i++) {
		sum += atomic_load(&r->by_time[i]);
		(void)buf_fmt(out, "gatehouse_request_seconds_bucket{op=\"%s\",le=\"%s\"} %lld\n", name_of(r),
		    bounds[i].text, sum);
	}
	(void)buf_fmt(out, "gatehouse_request_seconds_sum{op=\"%s\"} %.6f\n", name_of(r),
	    (double)atomic_load(&r->total_us) / 1e6);
	(void)buf_fmt(out, "gatehouse_request_seconds_count{op=\"%s\"} %lld\n", name_of(r), sum);
}

void metrics_print(const struct metrics *m, struct buf *out)
{
	(void)buf_str(out, "# TYPE gatehouse_requests_total counter\n");
	for (size_t i = 0; i < m->n; i++)
		for (int kind = 0; kind < CLASSES; kind++) {
			long long n = atomic_load(&m->rows[i].by_class[kind]);
			if (n > 0)
				(void)buf_fmt(out,
				    "gatehouse_requests_total{op=\"%s\",class=\"%dxx\"} %lld\n",
				    name_of(&m->rows[i]), kind + 1, n);
		}
	(void)buf_str(out, "# TYPE gatehouse_request_seconds histogram\n");
	for (size_t i = 0; i < m->n; i++)
		print_times(&m->rows[i], out);
}
