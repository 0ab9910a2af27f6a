#include "sandbox/driver/bundle.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/js.h"
#include "base/str.h"
#include "io/file.h"

enum { RECORD_MAX = 4096, WORDS_LINES = 20, LOG_MAX = 1 << 20 };
/* One lock of a byte per range of ids, held while a sandboxd lives. */
#define UID_LOCKS "/run/gatehouse.uids"

int bundle_path(char out[BUNDLE_PATH], struct err *e, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(out, BUNDLE_PATH, fmt, ap);
	va_end(ap);
	return n < BUNDLE_PATH ? 0 : err_set(e, ERR_INTERNAL, "A path of the sandbox directory is too long.");
}

int bundle_put(const char *path, const void *p, size_t n, mode_t mode, struct err *e)
{
	auto_fd int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0 || fd_write_all(fd, p, n) != 0)
		return err_set(
		    e, ERR_UNAVAILABLE, "A file of a sandbox could not be written: %s.", strerror(errno));
	return 0;
}

/* ---- the record */

int bundle_record_write(const char *bundle, const struct bundle_record *r, struct err *e)
{
	char path[BUNDLE_PATH], hex[2 * PROTO_NONCE + 1];
	auto_buf struct buf text = BUF(RECORD_MAX);
	hex_encode(r->nonce, sizeof r->nonce, hex);
	json_t *volumes = json_array();
	for (int i = 0; i < r->n_volumes; i++)
		js_push(volumes, json_string(r->volumes[i]));
	auto_json json_t *j = js_pack("{s:b,s:I,s:s,s:o}", "kernel", r->kernel, "uidBase",
	    (json_int_t)r->uid_base, "nonce", hex, "volumes", volumes);
	if (bundle_path(path, e, "%s/record", bundle) != 0 || js_dump_buf(&text, j) != 0)
		return -1;
	return bundle_put(path, text.p, text.n, 0600, e);
}

int bundle_record_read(const char *bundle, struct bundle_record *r, struct err *e)
{
	char path[BUNDLE_PATH];
	auto_buf struct buf text = BUF(RECORD_MAX);
	if (bundle_path(path, e, "%s/record", bundle) != 0 || file_read(path, &text, e) != 0)
		return -1;
	auto_json json_t *j = js_parse(buf_c(&text), text.n, e);
	const char *hex = js_str_or(j, "nonce", "");
	if (j == NULL || hex_decode(hex, r->nonce, sizeof r->nonce) != sizeof r->nonce)
		return err_replace(e, ERR_NOT_FOUND, "The record of a sandbox is not whole.");
	r->kernel = js_bool(j, "kernel", false);
	r->uid_base = (uid_t)js_int(j, "uidBase", 0);
	const json_t *volumes = js_get(j, "volumes");
	r->n_volumes = 0;
	for (size_t i = 0; i < json_array_size(volumes) && i < DRIVER_VOLUMES_MAX; i++)
		(void)snprintf(r->volumes[r->n_volumes++], VOLUME_NAME_MAX, "%s",
		    json_string_value(json_array_get(volumes, i)));
	return 0;
}

/* ---- the box's configuration */

static uint32_t length(const char *const *list)
{
	uint32_t n = 0;
	while (list[n] != NULL)
		n++;
	return n;
}

int bundle_box_fd(const struct driver_spec *s, const struct bundle_box *b,
    const unsigned char nonce[PROTO_NONCE], struct err *e)
{
	static const char *const none[] = { NULL };
	const char *const *ro_roots = s->ro_roots == NULL ? none : s->ro_roots;
	struct proto_config c = { .socket_path = b->socket,
		.class = s->class,
		.workdir = b->workdir,
		.check_path = "",
		.check_text = "",
		.lease_ms = (uint64_t)s->lease_ms,
		.idle_ms = (uint64_t)s->idle_ms,
		.n_roots = length(b->roots),
		.roots = b->roots,
		.n_ro_roots = length(ro_roots),
		.ro_roots = ro_roots,
		.n_env = length(b->env),
		.env = b->env };
	memcpy(c.nonce, nonce, sizeof c.nonce);
	auto_free unsigned char *text = xcalloc(1, PROTO_CONFIG_MAX);
	struct proto_out out = { .p = text, .cap = PROTO_CONFIG_MAX };
	proto_config_put(&out, &c);
	if (out.bad)
		return err_field(e, ERR_BAD_REQUEST, "env", "The environment of the lease is too large.");
	auto_fd int fd = memfd_create("box", MFD_CLOEXEC);
	if (fd < 0 || fd_write_all(fd, text, out.n) != 0 || lseek(fd, 0, SEEK_SET) != 0)
		return err_set(e, ERR_UNAVAILABLE, "The host has no memory left for a sandbox.");
	return steal_fd(&fd);
}

/* ---- pid and log */

pid_t bundle_pid(const char *bundle)
{
	char path[BUNDLE_PATH];
	struct err ignored = { 0 };
	auto_buf struct buf text = BUF(32);
	long long pid = 0;
	if (bundle_path(path, &ignored, "%s/pid", bundle) != 0 || file_read(path, &text, &ignored) != 0)
		return 0;
	text.p[strcspn(buf_c(&text), "\n")] = '\0';
	return str_int(text.p, 1, 1 << 30, &pid) ? (pid_t)pid : 0;
}

/* The last BUNDLE_WORDS_MAX of the log; the number of bytes, 0 for none. */
static size_t log_tail(const char *file, char out[BUNDLE_WORDS_MAX])
{
	auto_fd int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) != 0)
		return 0;
	ssize_t n = pread(
	    fd, out, BUNDLE_WORDS_MAX, st.st_size > BUNDLE_WORDS_MAX ? st.st_size - BUNDLE_WORDS_MAX : 0);
	return n < 0 ? 0 : (size_t)n;
}

void bundle_words(const char *bundle, const char *hide, struct buf *out)
{
	char file[BUNDLE_PATH], tail[BUNDLE_WORDS_MAX];
	struct err ignored = { 0 };
	size_t n = 0, from, lines = 0, hide_n = strlen(hide);
	if (bundle_path(file, &ignored, "%s/log", bundle) == 0)
		n = log_tail(file, tail);
	while (n > 0 && isspace((unsigned char)tail[n - 1]))
		n--;
	if (n == 0) {
		(void)buf_str(out, "no output");
		return;
	}
	for (from = n; from > 0; from--)
		if (tail[from - 1] == '\n' && ++lines == WORDS_LINES)
			break;
	for (size_t i = from; i < n; i++) {
		if (n - i >= hide_n && memcmp(tail + i, hide, hide_n) == 0) {
			(void)buf_str(out, "…");
			i += hide_n - 1;
		} else {
			(void)buf_chr(
			    out, tail[i] == '\n' || isprint((unsigned char)tail[i]) ? tail[i] : '?');
		}
	}
}

void bundle_trim(const char *bundle)
{
	char log[BUNDLE_PATH];
	struct err ignored = { 0 };
	struct stat st;
	if (bundle_path(log, &ignored, "%s/log", bundle) == 0 && lstat(log, &st) == 0 && st.st_size > LOG_MAX)
		(void)!truncate(log, 0);
}

void bundle_each(const char *path, void (*fn)(void *arg, const char *id), void *arg)
{
	DIR *dir = opendir(path);
	for (struct dirent *i; dir != NULL && (i = readdir(dir)) != NULL;)
		if (i->d_name[0] != '.')
			fn(arg, i->d_name);
	if (dir != NULL)
		(void)closedir(dir);
}

static void count(void *arg, const char *id)
{
	(void)id;
	++*(int *)arg;
}

int bundle_alone(const char *dir, const char *other, struct err *e)
{
	char path[BUNDLE_PATH];
	int n = 0;
	if (bundle_path(path, e, "%s/%s", dir, other) != 0)
		return -1;
	bundle_each(path, count, &n);
	return n == 0
	    ? 0
	    : err_set(e, ERR_CONFLICT,
		  "%d sandboxes of another SANDBOX_DRIVER are left on this node: set that one and end "
		  "them with `gatehouse-sandboxd leave`.",
		  n);
}

/* ---- user ids */

int bundle_uids(long long uid_base, long long uid_count, int slots, uid_t *got, struct err *e)
{
	long long ranges = slots + 1, end = uid_base + uid_count;
	auto_fd int lock = open(UID_LOCKS, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock < 0)
		return err_set(e, ERR_UNAVAILABLE, "The lock file of user id ranges could not be opened: %s.",
		    strerror(errno));
	for (long long base = uid_base; base + ranges * BUNDLE_UID_RANGE <= end && end <= UINT32_MAX;
	     base += ranges * BUNDLE_UID_RANGE) {
		struct flock l = { .l_type = F_WRLCK,
			.l_whence = SEEK_SET,
			.l_start = base / BUNDLE_UID_RANGE,
			.l_len = ranges };
		if (fcntl(lock, F_OFD_SETLK, &l) != 0)
			continue;
		*got = (uid_t)base;
		return steal_fd(&lock);
	}
	return err_set(e, ERR_UNAVAILABLE,
	    "SANDBOX_UID_BASE and SANDBOX_UID_COUNT leave no room for %d sandboxes of %d ids each; other "
	    "sandboxds of this host may use the same ids.",
	    slots, BUNDLE_UID_RANGE);
}
