/* flow_egress_clients.c - ordinary clients in a sandbox, unmodified, through the boundary (EGR-10): the table of app/egress/README.md.
 * Each fetches something that it has to verify; each is refused a host that is not on the list. GATEHOUSE_HEAVY=1: go and java, too. */
#include "../t.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../dnsserver.h"
#include "base/clock.h"
#include "base/js.h"
#include "base/str.h"
#include "io/proc.h"
#include "sbx.h"

static struct stack stack;
static struct stack_org acme;
static struct dnsserver *dns;
static char work[] = "/tmp/gh_egc.XXXXXX", address[32];
static struct dns_row rows[10];
static pid_t origin;
static bool gvisor;

#define NAMES 7
static const char *const names[NAMES] = { "hello.origin.test", "git.origin.test", "pypi.origin.test",
	"npm.origin.test", "apt.origin.test", "go.origin.test", "other.origin.test" };

/* ---- the origin */

static void host(const char *const *argv)
{
	struct err e = { 0 };
	auto_proc struct proc_result r = { 0 };
	struct proc_opts o = {
		.argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1, .timeout_ms = 60000
	};
	if (proc_run(&o, &r, &e) != 0 || r.exit_code != 0)
		fail_msg("%s %s: %s %s", argv[0], argv[1], e.msg, buf_c(&r.errout));
}

static void make_files(void)
{
	char script[2000];
	(void)snprintf(script, sizeof script,
	    "cd %s && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 "
	    "-subj '/CN=test CA' "
	    "-keyout ca.key -out ca.pem && openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 "
	    "-nodes -subj "
	    "/CN=origin.test -keyout key.pem -out req.pem && printf 'subjectAltName=DNS:*.origin.test\\n' "
	    ">ext && openssl x509 "
	    "-req -in req.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile ext -out cert.pem "
	    "&& git init -q -b main "
	    "w && cd w && echo 'hello from git' >file && git add . && git -c user.name=t -c "
	    "user.email=t@origin.test commit -qm t "
	    "&& git clone -q --bare . ../repo.git && cd ../repo.git && git update-server-info",
	    work);
	const char *const argv[] = { "/bin/bash", "-ec", script, NULL };
	host(argv);
}

static void start_origin(void)
{
	int out[2];
	char word[16] = "";
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	origin = fork();
	assert_true(origin >= 0);
	if (origin == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (dup2(out[1], 1) < 0)
			_exit(126);
		(void)execlp("/usr/bin/python3", "python3", "tests/clients/egress/origin.py", address, work,
		    (char *)NULL);
		_exit(127);
	}
	(void)close(out[1]);
	struct pollfd p = { .fd = out[0], .events = POLLIN };
	assert_int_equal(poll(&p, 1, 20000), 1);
	assert_true(read(out[0], word, sizeof word - 1) > 0);
	assert_true(str_starts(word, "ready"));
	(void)close(out[0]);
}

/* ---- inside */

/* Certificates of the origin, for every client in its own way; a home for what they keep. */
static const char setup[] = "cd /mnt/data; export CA=/mnt/data/ca.pem; export SSL_CERT_FILE=$CA "
			    "CURL_CA_BUNDLE=$CA REQUESTS_CA_BUNDLE=$CA GIT_SSL_CAINFO=$CA "
			    "NODE_EXTRA_CA_CERTS=$CA PIP_CERT=$CA npm_config_cafile=$CA "
			    "npm_config_update_notifier=false PIP_DISABLE_PIP_VERSION_CHECK=1; ";

static void lease(const char *runtime, char id[40])
{
	char path[64];
	auto_buf struct buf ca = BUF(1 << 16);
	json_t *fields = js_pack("{s:{s:[ssssss]},s:{s:i}}", "network", "allowedHosts", names[0], names[1],
	    names[2], names[3], names[4], names[5], "limits", "memoryMb", 3072);
	if (runtime[0] != '\0')
		js_set_str(fields, "runtime", runtime);
	sbx_lease(&stack, acme.key, fields, id);
	(void)snprintf(path, sizeof path, "%s/ca.pem", work);
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	char line[200];
	(void)buf_str(&ca, "cat >/mnt/data/ca.pem <<'E'\n");
	while (fgets(line, sizeof line, f) != NULL)
		(void)buf_str(&ca, line);
	(void)fclose(f);
	(void)buf_str(&ca, "E\n");
	assert_int_equal(sbx_sh(&stack, acme.key, id, buf_c(&ca), NULL), 0);
}

#define GO(host)                                                                                             \
	"export GOCACHE=/mnt/data/gc GOPATH=/mnt/data/gp GOFLAGS=-p=1; cat >g.go <<'E'\npackage "            \
	"main\nimport (\"io\"; \"net/http\"; "                                                               \
	"\"os\")\nfunc main() { r, e := http.Get(\"https://" host                                            \
	"/hello\"); if e != nil { println(e.Error()); os.Exit(1) }; "                                        \
	"io.Copy(os.Stdout, r.Body) }\nE\ngo run g.go"
#define JAVA(host)                                                                                           \
	"rm -f t.p12; keytool -importcert -noprompt -alias t -file ca.pem -keystore t.p12 -storepass "       \
	"changeit -storetype PKCS12 "                                                                        \
	"2>/dev/null; cat >J.java <<'E'\npublic class J { public static void main(String[] a) throws "       \
	"Exception { "                                                                                       \
	"System.out.print(new String(new java.net.URL(\"https://" host                                       \
	"/hello\").openStream().readAllBytes())); } }\nE\n"                                                  \
	"java -Djavax.net.ssl.trustStore=t.p12 -Djavax.net.ssl.trustStorePassword=changeit J.java"

static const struct client {
	const char *name, *needs; /* a program, or a module of python3: NULL: always there */
	const char *works, *says; /* a command, and the last line of what it prints */
	const char *refused;      /* a command that must fail */
	bool heavy;
} clients[] = {
	{ "curl, https", "curl", "curl -fsS https://hello.origin.test/hello", "hello",
	    "curl -fsS https://other.origin.test/hello" },
	{ "curl, http", "curl", "curl -fsS http://hello.origin.test/hello", "hello",
	    "curl -fsS http://other.origin.test/hello" },
	{ "git", "git", "rm -rf r; git clone -q https://git.origin.test/repo.git r && cat r/file",
	    "hello from git", "git clone -q https://other.origin.test/repo.git r2" },
	{ "pip", "pip3",
	    "/usr/bin/python3 -m pip install -q --no-cache-dir --index-url https://pypi.origin.test/simple "
	    "--target p tinypkg "
	    "&& PYTHONPATH=p /usr/bin/python3 -c 'import tinypkg; print(tinypkg.hello)'",
	    "hello from pip",
	    "/usr/bin/python3 -m pip install -q --retries 0 --no-cache-dir --index-url "
	    "https://other.origin.test/simple --target "
	    "p2 tinypkg" },
	{ "npm", "npm",
	    "npm install --silent --no-audit --no-fund --registry https://npm.origin.test/ tinypkg && node "
	    "-p "
	    "'require(\"tinypkg\")'",
	    "hello from npm",
	    "npm install --silent --fetch-retries 0 --registry https://other.origin.test/ tinypkg2" },
	{ "apt", "apt-get",
	    "mkdir -p a/etc/apt/apt.conf.d a/etc/apt/preferences.d a/var/lib/apt/lists/partial "
	    "a/var/cache/apt/archives/partial "
	    "a/var/lib/dpkg; touch a/var/lib/dpkg/status; echo 'deb [trusted=yes] https://apt.origin.test/ "
	    "./' "
	    ">a/etc/apt/sources.list; A='apt-get -qq -o Dir=/mnt/data/a -o "
	    "Dir::State::status=/mnt/data/a/var/lib/dpkg/status -o "
	    "APT::Sandbox::User= -o Acquire::https::CaInfo=/mnt/data/ca.pem -o "
	    "Dir::Bin::methods=/usr/lib/apt/methods'; $A update "
	    ">&2 && $A download tinydeb >&2 && dpkg-deb -x tinydeb_1.0_all.deb x && cat "
	    "x/usr/share/tinydeb/hello",
	    "hello from apt",
	    "echo 'deb [trusted=yes] https://other.origin.test/ ./' >a/etc/apt/sources.list; apt-get -qq -o "
	    "Dir=/mnt/data/a -o "
	    "Dir::State::status=/mnt/data/a/var/lib/dpkg/status -o APT::Sandbox::User= -o "
	    "APT::Update::Error-Mode=any update" },
	{ "node fetch", "node",
	    "node -e 'fetch(\"https://hello.origin.test/hello\").then(r => r.text()).then(t => "
	    "process.stdout.write(t))'",
	    "hello", "node -e 'fetch(\"https://other.origin.test/hello\")'" },
	{ "curl, no proxy", "curl", "curl --noproxy '*' -fsS https://hello.origin.test/hello", "hello",
	    "curl --noproxy '*' -fsS https://other.origin.test/hello" },
	{ "python requests", "requests",
	    "/usr/bin/python3 -c 'import requests; "
	    "print(requests.get(\"https://hello.origin.test/hello\").text, end=\"\")'",
	    "hello",
	    "/usr/bin/python3 -c 'import requests; requests.get(\"https://other.origin.test/hello\")'" },
	{ "python urllib", NULL,
	    "/usr/bin/python3 -c 'import urllib.request as u; "
	    "print(u.urlopen(\"https://hello.origin.test/hello\").read().decode(), "
	    "end=\"\")'",
	    "hello",
	    "/usr/bin/python3 -c 'import urllib.request as u; "
	    "u.urlopen(\"https://other.origin.test/hello\")'" },
	{ "go", "go", GO("go.origin.test"), "hello", GO("other.origin.test"), .heavy = true },
	{ "java", "java", JAVA("hello.origin.test"), "hello", JAVA("other.origin.test"), .heavy = true },
};

static bool there(const char *id, const char *needs)
{
	char command[200];
	if (needs == NULL)
		return true;
	(void)snprintf(
	    command, sizeof command, "command -v %s || /usr/bin/python3 -c 'import %s'", needs, needs);
	return sbx_sh(&stack, acme.key, id, command, NULL) == 0;
}

static const char *last_line(struct buf *out)
{
	while (out->n > 0 && out->p[out->n - 1] == '\n')
		out->p[--out->n] = '\0';
	const char *nl = strrchr(buf_c(out), '\n');
	return nl == NULL ? buf_c(out) : nl + 1;
}

/* What it printed, or the test fails with all of it. */
static void works(const char *id, const struct client *k)
{
	char command[3000];
	auto_web struct web w = { 0 };
	(void)snprintf(command, sizeof command, "%s%s", setup, k->works);
	sbx_run(&stack, acme.key, id, js_pack("{s:s,s:i}", "command", command, "timeoutSec", 600), &w);
	auto_buf struct buf out = BUF(1 << 20);
	(void)buf_str(&out, js_str_or(w.json, "stdout", ""));
	if (js_int(w.json, "exitCode", -1) != 0 || strcmp(last_line(&out), k->says) != 0)
		fail_msg("%s: %ld %.3000s", k->name, w.status, w.body);
}

static void is_refused(const char *id, const struct client *k)
{
	char command[3000];
	auto_web struct web w = { 0 };
	(void)snprintf(command, sizeof command, "%s%s", setup, k->refused);
	sbx_run(&stack, acme.key, id, js_pack("{s:s,s:i}", "command", command, "timeoutSec", 600), &w);
	if (js_int(w.json, "exitCode", 0) == 0)
		fail_msg("%s was not refused: %.3000s", k->name, w.body);
	auto_buf struct buf said = BUF(1 << 20);
	(void)buf_str(&said, js_str_or(w.json, "stderr", ""));
	print_message("%-16s refused: %.160s\n", k->name, last_line(&said));
}

static void every_client_of(const char *runtime)
{
	char id[40];
	lease(runtime, id);
	for (size_t i = 0; i < sizeof clients / sizeof clients[0]; i++) {
		const struct client *k = &clients[i];
		if (k->heavy && getenv("GATEHOUSE_HEAVY") == NULL)
			continue;
		if (!there(id, k->needs)) {
			print_message("%-16s is not installed on this host\n", k->name);
			continue;
		}
		works(id, k);
		is_refused(id, k);
		print_message("%-16s works\n", k->name);
	}
	sbx_end(&stack, acme.key, id);
}

static void ordinary_clients_work_through_the_boundary(void **s)
{
	(void)s;
	every_client_of("");
}

static void ordinary_clients_work_in_gvisor(void **s)
{
	(void)s;
	if (!gvisor)
		skip();
	every_client_of("gvisor");
}

static void await_token(const char *id, const char *want)
{
	for (int64_t until = clock_ms() + 60000;; (void)poll(NULL, 0, 50)) {
		auto_buf struct buf out = BUF(4096);
		(void)sbx_sh(&stack, acme.key, id, "curl -sS http://hello.origin.test/token", &out);
		if (strcmp(last_line(&out), want) == 0)
			return;
		if (clock_ms() > until)
			fail_msg("%s", buf_c(&out));
	}
}

/* EGR-8, from the op to the origin: the sandbox asks in plain HTTP and never has the value. */
static void a_bound_credential_reaches_the_origin_and_not_the_sandbox(void **s)
{
	(void)s;
	char id[40], path[100];
	auto_web struct web bound = { 0 }, listed = { 0 }, removed = { 0 };
	auto_buf struct buf tunnel = BUF(4096), inside = BUF(1 << 16);
	lease("", id);
	await_token(id, "none");
	web_json(&stack, "POST", "/v1/egress/credentials", acme.key,
	    js_pack("{s:s,s:s,s:s,s:s}", "name", "t", "host", "hello.origin.test", "header", "X-Token",
		"value", "tok-hunter2"),
	    &bound);
	assert_int_equal(bound.status, 201);
	await_token(id, "tok-hunter2");
	/* A tunnel cannot be given it, and says so. */
	(void)sbx_sh(&stack, acme.key, id,
	    "curl -sv https://hello.origin.test/token 2>&1 | grep -i 'HTTP/1.1 403'; true", &tunnel);
	assert_non_null(strstr(buf_c(&tunnel), "broker_tunnel"));
	(void)sbx_sh(&stack, acme.key, id, "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'", &inside);
	assert_null(strstr(buf_c(&inside), "hunter2"));
	web_json(&stack, "GET", "/v1/egress/credentials", acme.key, NULL, &listed);
	assert_null(strstr(listed.body, "hunter2"));
	(void)snprintf(path, sizeof path, "/v1/egress/credentials/%s", js_str_or(bound.json, "id", ""));
	web_json(&stack, "DELETE", path, acme.key, NULL, &removed);
	assert_int_equal(removed.status, 200);
	await_token(id, "none");
	sbx_end(&stack, acme.key, id);
}

static int up(void **s)
{
	(void)s;
	char conf[200];
	if (mkdtemp(work) == NULL)
		return -1;
	/* Ports 80 and 443 of a loopback address that nobody else uses. */
	(void)snprintf(address, sizeof address, "127.%d.%d.%d", 100 + getpid() % 100, getpid() / 100 % 250,
	    1 + getpid() % 250);
	for (size_t i = 0; i < NAMES; i++)
		rows[i] = (struct dns_row){ .name = names[i], .value = address };
	dns = dnsserver_start(rows);
	make_files();
	start_origin();
	(void)snprintf(conf, sizeof conf,
	    "EGRESS_DNS=127.0.0.1:%d\nEGRESS_ALLOW_INWARD_FOR=.origin.test\nEGRESS_CA_FILE=%s/ca.pem\n",
	    dnsserver_port(dns), work);
	assert_int_equal(chmod(work, 0755), 0);
	stack_up(&stack, 1, 0, 1, conf);
	stack_org(&stack, &acme);
	gvisor = sbx_offered(&stack, acme.key, "gvisor");
	return 0;
}

static int down(void **s)
{
	(void)s;
	const char *const argv[] = { "/bin/rm", "-rf", work, NULL };
	stack_down(&stack);
	dnsserver_end(dns);
	(void)kill(origin, SIGKILL);
	(void)waitpid(origin, NULL, 0);
	host(argv);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ordinary_clients_work_through_the_boundary),
		cmocka_unit_test(a_bound_credential_reaches_the_origin_and_not_the_sandbox),
		cmocka_unit_test(ordinary_clients_work_in_gvisor),
	};
	return cmocka_run_group_tests_name("egress clients", tests, up, down);
}
