#include "auth/seal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/str.h"

/* What is encoded: nonce, tag, ciphertext. The nonce is random: 2^32 values under one key stay far below its birthday bound. */
enum {
	KEY_BYTES = 32,
	NONCE_BYTES = 12,
	TAG_BYTES = 16,
	HEAD_BYTES = NONCE_BYTES + TAG_BYTES,
	SECRET_MAX = 1 << 20
};

#define VERSION "1:"

struct seal_key {
	unsigned char bytes[KEY_BYTES];
};

/* 32 bytes as they are, or 64 hex digits with or without a newline. */
static bool key_from(char *text, size_t n, unsigned char key[KEY_BYTES])
{
	if (n == KEY_BYTES) {
		memcpy(key, text, KEY_BYTES);
		return true;
	}
	if (n == 2 * KEY_BYTES + 1 && text[n - 1] == '\n')
		n--;
	text[n] = 0;
	return n == 2 * KEY_BYTES && strlen(text) == n && hex_decode(text, key, KEY_BYTES) == KEY_BYTES;
}

struct seal_key *seal_load(const char *key_file, struct err *e)
{
	char text[2 * KEY_BYTES + 3];
	struct stat st;
	auto_fd int fd = open(key_file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) != 0) {
		err_set(e, ERR_INTERNAL, "The file of SECRET_KEY_FILE cannot be read: %s.",
		    strerrordesc_np(errno));
		return NULL;
	}
	if (!S_ISREG(st.st_mode) || (st.st_mode & 077) != 0) {
		err_set(e, ERR_INTERNAL,
		    "The file of SECRET_KEY_FILE must be readable by its owner only (chmod 600).");
		return NULL;
	}
	ssize_t n = read(fd, text, sizeof text - 1);
	struct seal_key *k = xcalloc(1, sizeof *k);
	bool good = n > 0 && key_from(text, (size_t)n, k->bytes);
	secret_wipe(text, sizeof text);
	if (good)
		return k;
	seal_free(k);
	err_set(e, ERR_INTERNAL, "The file of SECRET_KEY_FILE must hold 32 bytes or 64 hex digits.");
	return NULL;
}

void seal_free(struct seal_key *k)
{
	if (k == NULL)
		return;
	secret_wipe(k, sizeof *k);
	free(k);
}

static void auto_cipherp(EVP_CIPHER_CTX **c)
{
	EVP_CIPHER_CTX_free(*c);
}

char *seal(struct mem *m, const struct seal_key *k, const char *what, const struct secret *s)
{
	size_t n = secret_len(s);
	assert(n <= SECRET_MAX);
	unsigned char *raw = mem_alloc(m, HEAD_BYTES + n);
	char *text = mem_alloc(m, sizeof VERSION + B64_SIZE(HEAD_BYTES + n));
	AUTO(auto_cipherp) EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
	int done;
	random_bytes(raw, NONCE_BYTES);
	bool ok = c != NULL && EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), NULL, k->bytes, raw) == 1 &&
	    EVP_EncryptUpdate(c, NULL, &done, (const unsigned char *)what, (int)strlen(what)) == 1 &&
	    EVP_EncryptUpdate(c, raw + HEAD_BYTES, &done, (const unsigned char *)secret_use(s), (int)n) ==
		1 &&
	    EVP_EncryptFinal_ex(c, raw + HEAD_BYTES + n, &done) == 1 &&
	    EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, TAG_BYTES, raw + NONCE_BYTES) == 1;
	if (!ok)
		abort(); /* no memory, or an OpenSSL without AES */
	memcpy(text, VERSION, strlen(VERSION));
	(void)b64_encode(raw, HEAD_BYTES + n, text + strlen(VERSION));
	return text;
}

/* The ciphertext in place becomes the plain text; false when anything about it is not as it was sealed. */
static bool decrypt(const struct seal_key *k, const char *what, unsigned char *raw, size_t n)
{
	AUTO(auto_cipherp) EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
	int done;
	return c != NULL && EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), NULL, k->bytes, raw) == 1 &&
	    EVP_DecryptUpdate(c, NULL, &done, (const unsigned char *)what, (int)strlen(what)) == 1 &&
	    EVP_DecryptUpdate(c, raw + HEAD_BYTES, &done, raw + HEAD_BYTES, (int)(n - HEAD_BYTES)) == 1 &&
	    EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, TAG_BYTES, raw + NONCE_BYTES) == 1 &&
	    EVP_DecryptFinal_ex(c, raw + n, &done) == 1;
}

struct secret *seal_open(const struct seal_key *k, const char *what, const char *text, struct err *e)
{
	static const char msg[] =
	    "A stored credential cannot be opened: it was sealed with another key or for something else.";
	size_t len = strlen(text);
	if (!str_starts(text, VERSION) || len > 2 * SECRET_MAX) {
		err_set(e, ERR_INTERNAL, msg);
		return NULL;
	}
	text += strlen(VERSION);
	len -= strlen(VERSION);
	/* One block more: EVP_DecryptFinal_ex is given a place to write, though GCM writes nothing there. */
	auto_free unsigned char *raw = xcalloc(1, len + EVP_MAX_BLOCK_LENGTH);
	ssize_t n = b64_decode(text, len, raw);
	struct secret *s = NULL;
	if (n >= HEAD_BYTES && decrypt(k, what, raw, (size_t)n))
		s = secret_new(raw + HEAD_BYTES, (size_t)n - HEAD_BYTES);
	else
		err_set(e, ERR_INTERNAL, msg);
	secret_wipe(raw, len);
	return s;
}
