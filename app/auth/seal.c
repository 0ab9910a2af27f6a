#include "auth/seal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"

/* What is encoded: nonce, tag, ciphertext. The nonce is random: 2^32 values under one key stay far below its birthday bound. */
enum {
	KEY_BYTES = 32,
	NONCE_BYTES = 12,
	TAG_BYTES = 16,
	HEAD_BYTES = NONCE_BYTES + TAG_BYTES,
	SECRET_MAX = 1 << 20,
	FILE_MAX = 16 * 1024,
	RING_MAX = 2 * SEAL_KEYS_MAX, /* those of the file, and those it no longer has */
};

#define OLD_FORM "1:"
#define FORM     "2:"

struct key {
	char id[SEAL_ID];
	bool in_file;
	off_t at; /* of its line in the file */
	unsigned char bytes[KEY_BYTES];
};
struct keys { /* oldest first */
	int n;
	struct key key[RING_MAX];
};
struct ring {
	pthread_mutex_t lock;
	struct keys keys;
	struct stat seen; /* of the file when it was read */
	char path[];
};
struct seal_key {
	struct ring *ring;
};

/* ---- the file */

static void auto_keysp(struct keys *k)
{
	secret_wipe(k, sizeof *k);
}
static void auto_keyp(struct key *k)
{
	secret_wipe(k, sizeof *k);
}
static void auto_textp(struct buf *b)
{
	if (b->p != NULL)
		secret_wipe(b->p, b->cap);
	buf_free(b);
}

static int add(struct keys *to, const unsigned char bytes[KEY_BYTES], off_t at, struct err *e)
{
	static const char label[] = "gatehouse key id";
	unsigned char in[sizeof label + KEY_BYTES];
	char hex[SHA256_HEX];
	if (to->n == SEAL_KEYS_MAX)
		return err_set(
		    e, ERR_INTERNAL, "The file of SECRET_KEY_FILE holds more than %d keys.", SEAL_KEYS_MAX);
	struct key *k = &to->key[to->n++];
	*k = (struct key){ .in_file = true, .at = at };
	memcpy(k->bytes, bytes, KEY_BYTES);
	memcpy(in, label, sizeof label);
	memcpy(in + sizeof label, bytes, KEY_BYTES);
	sha256_hex(in, sizeof in, hex);
	secret_wipe(in, sizeof in);
	(void)snprintf(k->id, sizeof k->id, "%.8s", hex);
	for (int i = 0; i < to->n - 1; i++)
		if (strcmp(to->key[i].id, k->id) == 0)
			return err_set(e, ERR_INTERNAL, "The file of SECRET_KEY_FILE holds a key twice.");
	return 0;
}

static int bad_file(struct err *e)
{
	return err_set(
	    e, ERR_INTERNAL, "The file of SECRET_KEY_FILE must hold 32 bytes, or lines of 64 hex digits.");
}

static int parse_lines(const struct buf *text, struct keys *to, struct err *e)
{
	struct str rest = { text->p, text->n }, line;
	while (str_cut(&rest, '\n', &line)) {
		unsigned char bytes[KEY_BYTES];
		char hex[2 * KEY_BYTES + 1];
		if (line.n == 0 || line.p[0] == '#')
			continue;
		bool good = line.n == 2 * KEY_BYTES;
		(void)snprintf(hex, sizeof hex, "%.*s", good ? (int)line.n : 0, line.p);
		good = good && hex_decode(hex, bytes, sizeof bytes) == KEY_BYTES;
		int rc = good ? add(to, bytes, line.p - text->p, e) : bad_file(e);
		secret_wipe(bytes, sizeof bytes);
		secret_wipe(hex, sizeof hex);
		if (rc != 0)
			return -1;
	}
	return to->n > 0 ? 0 : bad_file(e);
}

static int read_file(const char *path, struct keys *to, struct stat *st, struct err *e)
{
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0 || fstat(fd, st) != 0)
		return err_set(e, ERR_INTERNAL, "The file of SECRET_KEY_FILE cannot be read: %s.",
		    strerrordesc_np(errno));
	if (!S_ISREG(st->st_mode) || (st->st_mode & 077) != 0)
		return err_set(e, ERR_INTERNAL,
		    "The file of SECRET_KEY_FILE must be readable by its owner only (chmod 600).");
	struct buf text AUTO(auto_textp) = BUF(FILE_MAX);
	char *room = buf_room(&text, FILE_MAX - 1); /* all at once: growing would leave unwiped copies */
	ssize_t n = room == NULL ? -1 : read(fd, room, FILE_MAX - 1);
	if (n <= 0 || n == FILE_MAX - 1)
		return bad_file(e);
	buf_grew(&text, (size_t)n);
	if (n == KEY_BYTES)
		return add(to, (const unsigned char *)text.p, 0, e);
	return parse_lines(&text, to, e);
}

/* ---- the ring; its lock is held */

static struct key *find(struct keys *k, const char *id, size_t n)
{
	for (int i = 0; i < k->n; i++)
		if (n == SEAL_ID - 1 && memcmp(k->key[i].id, id, n) == 0)
			return &k->key[i];
	return NULL;
}

static int read_again(struct ring *r, struct err *e)
{
	struct keys fresh AUTO(auto_keysp) = { 0 };
	struct stat st;
	if (read_file(r->path, &fresh, &st, e) != 0)
		return -1;
	struct keys all AUTO(auto_keysp) = { 0 };
	for (int i = 0; i < r->keys.n; i++) {
		struct key *old = &r->keys.key[i];
		if (find(&fresh, old->id, strlen(old->id)) != NULL)
			continue;
		if (all.n + fresh.n == RING_MAX)
			return err_set(e, ERR_INTERNAL,
			    "Too many keys that rows still need are gone from SECRET_KEY_FILE.");
		all.key[all.n] = *old;
		all.key[all.n++].in_file = false;
	}
	for (int i = 0; i < fresh.n; i++)
		all.key[all.n++] = fresh.key[i];
	r->keys = all;
	r->seen = st;
	return 0;
}

/* The file as it is now. A fault keeps the keys that are there, and is told once for each change of the file. */
static void refresh(struct ring *r)
{
	struct stat st;
	struct err e = { 0 };
	if (stat(r->path, &st) != 0)
		return;
	const struct stat *was = &r->seen;
	if (st.st_dev == was->st_dev && st.st_ino == was->st_ino && st.st_size == was->st_size &&
	    st.st_mtim.tv_sec == was->st_mtim.tv_sec && st.st_mtim.tv_nsec == was->st_mtim.tv_nsec)
		return;
	if (read_again(r, &e) == 0)
		return;
	log_error("the changed key file is not used", "why", e.msg);
	r->seen = st;
}

/* Copies, so that no lock is held while there is work. */
static void newest(struct ring *r, struct key *out)
{
	(void)pthread_mutex_lock(&r->lock);
	refresh(r);
	*out = r->keys.key[r->keys.n - 1];
	(void)pthread_mutex_unlock(&r->lock);
}

static void all_keys(struct ring *r, struct keys *out)
{
	(void)pthread_mutex_lock(&r->lock);
	*out = r->keys;
	(void)pthread_mutex_unlock(&r->lock);
}

static bool by_id(struct ring *r, const char *id, size_t n, struct key *out)
{
	(void)pthread_mutex_lock(&r->lock);
	struct key *k = find(&r->keys, id, n);
	if (k == NULL) {
		refresh(r);
		k = find(&r->keys, id, n);
	}
	if (k != NULL)
		*out = *k;
	(void)pthread_mutex_unlock(&r->lock);
	return k != NULL;
}

struct seal_key *seal_load(const char *key_file, struct err *e)
{
	size_t n = strlen(key_file) + 1;
	struct seal_key *k = xcalloc(1, sizeof *k);
	k->ring = xcalloc(1, sizeof *k->ring + n);
	memcpy(k->ring->path, key_file, n);
	(void)pthread_mutex_init(&k->ring->lock, NULL);
	if (read_again(k->ring, e) == 0)
		return k;
	seal_free(k);
	return NULL;
}

void seal_free(struct seal_key *k)
{
	if (k == NULL)
		return;
	(void)pthread_mutex_destroy(&k->ring->lock);
	secret_wipe(k->ring, sizeof *k->ring);
	free(k->ring);
	free(k);
}

int seal_reload(const struct seal_key *k, struct err *e)
{
	(void)pthread_mutex_lock(&k->ring->lock);
	int rc = read_again(k->ring, e);
	(void)pthread_mutex_unlock(&k->ring->lock);
	return rc;
}

int seal_list(const struct seal_key *k, struct seal_info out[2 * SEAL_KEYS_MAX])
{
	struct keys all AUTO(auto_keysp) = { 0 };
	all_keys(k->ring, &all);
	for (int i = 0; i < all.n; i++) {
		out[i] = (struct seal_info){ .in_file = all.key[i].in_file, .newest = i == all.n - 1 };
		memcpy(out[i].id, all.key[i].id, sizeof out[i].id);
	}
	return all.n;
}

void seal_forget(const struct seal_key *k, const char *id)
{
	struct ring *r = k->ring;
	(void)pthread_mutex_lock(&r->lock);
	struct key *gone = find(&r->keys, id, strlen(id));
	if (gone != NULL && !gone->in_file) {
		struct key *last = &r->keys.key[--r->keys.n];
		memmove(gone, gone + 1, (size_t)(last - gone) * sizeof *gone);
		secret_wipe(last, sizeof *last);
	}
	(void)pthread_mutex_unlock(&r->lock);
}

int seal_drop(const struct seal_key *k, const char *id, struct err *e)
{
	/* As long as the digits it overwrites, so that one write within the file is all there is to it. */
	static const char over[2 * KEY_BYTES + 1] =
	    "# a key that was removed ---------------------------------------";
	struct ring *r = k->ring;
	struct key gone AUTO(auto_keyp) = { 0 };
	if (seal_reload(k, e) != 0)
		return -1;
	if (!by_id(r, id, strlen(id), &gone) || !gone.in_file)
		return err_set(e, ERR_NOT_FOUND, "The file of SECRET_KEY_FILE holds no key %s.", id);
	struct seal_info info[RING_MAX];
	int n = seal_list(k, info);
	if (strcmp(info[n - 1].id, id) == 0)
		return err_set(e, ERR_CONFLICT, "The newest key seals and cannot be removed.");
	auto_fd int fd = open(r->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0 || pwrite(fd, over, sizeof over - 1, gone.at) != sizeof over - 1 || fsync(fd) != 0)
		return err_set(e, ERR_INTERNAL, "The file of SECRET_KEY_FILE cannot be written: %s.",
		    strerrordesc_np(errno));
	return seal_reload(k, e);
}

void seal_prefix(const struct seal_key *k, char out[SEAL_ID + 3])
{
	struct key key AUTO(auto_keyp) = { 0 };
	newest(k->ring, &key);
	(void)snprintf(out, SEAL_ID + 3, FORM "%s:", key.id);
}

/* ---- fingerprints */

static void hmac(const void *key, const void *p, size_t n, unsigned char out[SHA256_BYTES])
{
	unsigned len = SHA256_BYTES;
	if (HMAC(EVP_sha256(), key, KEY_BYTES, p, n, out, &len) == NULL || len != SHA256_BYTES)
		abort(); /* no memory, or an OpenSSL without SHA-256 */
}

/* The key that seals is never used for anything else: each purpose has one derived from it. */
static void mac_with(const struct key *k, const char *what, const void *p, size_t n, char out[SEAL_MAC])
{
	unsigned char label[SHA256_BYTES], derived[SHA256_BYTES], mac[SHA256_BYTES];
	char hex[SHA256_HEX];
	auto_buf struct buf named = BUF(200);
	(void)buf_fmt(&named, "gatehouse fingerprint of %s", what);
	sha256(named.p, named.n, label);
	hmac(k->bytes, label, sizeof label, derived);
	hmac(derived, p, n, mac);
	secret_wipe(derived, sizeof derived);
	hex_encode(mac, sizeof mac, hex);
	(void)snprintf(out, SEAL_MAC, "%s%.*s", k->id, SEAL_MAC - SEAL_ID, hex);
}

void seal_mac(const struct seal_key *k, const char *what, const void *p, size_t n, char out[SEAL_MAC])
{
	struct key key AUTO(auto_keyp) = { 0 };
	newest(k->ring, &key);
	mac_with(&key, what, p, n, out);
}

enum seal_mac_verdict seal_mac_is(
    const struct seal_key *k, const char *what, const void *p, size_t n, const char *text)
{
	struct key key AUTO(auto_keyp) = { 0 };
	char mine[SEAL_MAC];
	if (strlen(text) != SEAL_MAC - 1 || !by_id(k->ring, text, SEAL_ID - 1, &key))
		return SEAL_MAC_LOST;
	mac_with(&key, what, p, n, mine);
	return CRYPTO_memcmp(mine, text, SEAL_MAC) == 0 ? SEAL_MAC_SAME : SEAL_MAC_OTHER;
}

/* ---- sealing */

static void auto_cipherp(EVP_CIPHER_CTX **c)
{
	EVP_CIPHER_CTX_free(*c);
}

char *seal(struct mem *m, const struct seal_key *k, const char *what, const struct secret *s)
{
	size_t n = secret_len(s);
	assert(n <= SECRET_MAX);
	struct key key AUTO(auto_keyp) = { 0 };
	newest(k->ring, &key);
	unsigned char *raw = mem_alloc(m, HEAD_BYTES + n);
	char *text = mem_alloc(m, SEAL_ID + 3 + B64_SIZE(HEAD_BYTES + n));
	AUTO(auto_cipherp) EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
	int done;
	random_bytes(raw, NONCE_BYTES);
	bool ok = c != NULL && EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), NULL, key.bytes, raw) == 1 &&
	    EVP_EncryptUpdate(c, NULL, &done, (const unsigned char *)what, (int)strlen(what)) == 1 &&
	    EVP_EncryptUpdate(c, raw + HEAD_BYTES, &done, (const unsigned char *)secret_use(s), (int)n) ==
		1 &&
	    EVP_EncryptFinal_ex(c, raw + HEAD_BYTES + n, &done) == 1 &&
	    EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, TAG_BYTES, raw + NONCE_BYTES) == 1;
	if (!ok)
		abort(); /* no memory, or an OpenSSL without AES */
	int head = snprintf(text, SEAL_ID + 3, FORM "%s:", key.id);
	(void)b64_encode(raw, HEAD_BYTES + n, text + head);
	return text;
}

/* The ciphertext in place becomes the plain text; false when anything about it is not as it was sealed. */
static bool decrypt(const struct key *k, const char *what, unsigned char *raw, size_t n)
{
	AUTO(auto_cipherp) EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
	int done;
	return c != NULL && EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), NULL, k->bytes, raw) == 1 &&
	    EVP_DecryptUpdate(c, NULL, &done, (const unsigned char *)what, (int)strlen(what)) == 1 &&
	    EVP_DecryptUpdate(c, raw + HEAD_BYTES, &done, raw + HEAD_BYTES, (int)(n - HEAD_BYTES)) == 1 &&
	    EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, TAG_BYTES, raw + NONCE_BYTES) == 1 &&
	    EVP_DecryptFinal_ex(c, raw + n, &done) == 1;
}

static struct secret *open_with(const struct key *k, const char *what, const char *b64)
{
	size_t len = strlen(b64);
	/* One block more: EVP_DecryptFinal_ex is given a place to write, though GCM writes nothing there. */
	auto_free unsigned char *raw = xcalloc(1, len + EVP_MAX_BLOCK_LENGTH);
	ssize_t n = b64_decode(b64, len, raw);
	struct secret *s = NULL;
	if (n >= HEAD_BYTES && decrypt(k, what, raw, (size_t)n))
		s = secret_new(raw + HEAD_BYTES, (size_t)n - HEAD_BYTES);
	secret_wipe(raw, len);
	return s;
}

/* The old form does not say which key it was. */
static struct secret *open_old(struct ring *r, const char *what, const char *b64)
{
	struct keys all AUTO(auto_keysp) = { 0 };
	struct secret *s = NULL;
	all_keys(r, &all);
	for (int i = 0; i < all.n && s == NULL; i++)
		s = open_with(&all.key[i], what, b64);
	return s;
}

struct secret *seal_open(const struct seal_key *k, const char *what, const char *text, struct err *e)
{
	struct secret *s = NULL;
	struct key key AUTO(auto_keyp) = { 0 };
	if (strlen(text) <= 2 * SECRET_MAX && str_starts(text, OLD_FORM)) {
		s = open_old(k->ring, what, text + strlen(OLD_FORM));
	} else if (strlen(text) <= 2 * SECRET_MAX && str_starts(text, FORM)) {
		const char *id = text + strlen(FORM), *end = strchr(id, ':');
		if (end != NULL && by_id(k->ring, id, (size_t)(end - id), &key))
			s = open_with(&key, what, end + 1);
	}
	if (s == NULL)
		err_set(e, ERR_INTERNAL,
		    "A stored credential cannot be opened: it was sealed with another key or for something "
		    "else.");
	return s;
}
