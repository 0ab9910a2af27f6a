/* push_path.c - which paths may be written (declared in push.h). */
#include <string.h>
#include <strings.h>

#include "base/limits.h"
#include "base/str.h"
#include "forge/push.h"

enum { COMPONENT_MAX = 255 };

/* Code points that HFS+ ignores when it compares names: U+200C..200F, 202A..202E, 206A..206F, FEFF. Bytes to skip, or 0. */
static size_t hfs_ignored(const unsigned char *p, size_t n)
{
	if (n < 3)
		return 0;
	if (p[0] == 0xe2 && p[1] == 0x80 &&
	    ((p[2] >= 0x8c && p[2] <= 0x8f) || (p[2] >= 0xaa && p[2] <= 0xae)))
		return 3;
	if (p[0] == 0xe2 && p[1] == 0x81 && p[2] >= 0xaa && p[2] <= 0xaf)
		return 3;
	return p[0] == 0xef && p[1] == 0xbb && p[2] == 0xbf ? 3 : 0;
}

/* Does some file system take this component for .git? */
static bool is_dot_git(const char *s, size_t n)
{
	char plain[16];
	size_t k = 0;
	for (size_t i = 0; i < n;) {
		size_t skip = hfs_ignored((const unsigned char *)s + i, n - i);
		i += skip;
		if (skip > 0)
			continue;
		/* NTFS: an alternate stream of .git is .git. */
		if (s[i] == ':')
			break;
		if (k == sizeof plain - 1)
			return false;
		plain[k++] = s[i++];
	}
	/* NTFS drops dots and spaces at the end. */
	while (k > 0 && (plain[k - 1] == ' ' || plain[k - 1] == '.'))
		k--;
	plain[k] = 0;
	return strcasecmp(plain, ".git") == 0 || strcasecmp(plain, "git~1") == 0;
}

static const char *component_fault(const char *s, size_t n)
{
	if (n == 0)
		return "must be relative, without empty parts";
	if (n > COMPONENT_MAX)
		return "has a part longer than 255 bytes";
	if ((n == 1 && s[0] == '.') || (n == 2 && memcmp(s, "..", 2) == 0))
		return "must not have '.' or '..' parts";
	return is_dot_git(s, n) ? "must not have a .git part" : NULL;
}

static const char *path_fault(const char *s)
{
	if (s[0] == 0)
		return "is empty";
	if (strlen(s) > LIMIT_PATH_BYTES)
		return "is longer than 4096 bytes";
	for (const char *p = s; *p != 0; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f || *p == '\\')
			return "must not hold control characters or backslashes";
	int depth = 0;
	for (const char *p = s;; p++) {
		size_t n = strcspn(p, "/");
		const char *fault = component_fault(p, n);
		if (fault != NULL || p[n] == 0)
			return fault;
		if (++depth >= PUSH_DEPTH_MAX)
			return "has more than 64 parts";
		p += n;
	}
}

int push_path_check(const char *path, struct err *e)
{
	const char *fault = path_fault(path);
	if (fault == NULL)
		return 0;
	return err_field(e, ERR_BAD_REQUEST, "files.path", "The path \"%.200s\" %s.", path, fault);
}
