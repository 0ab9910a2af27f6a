/* flow_page.c - the branch's page (FRG-5) as people get it: over nginx, and in Chromium at two widths, light and dark.
 * GATEHOUSE_SHOTS=DIR keeps what Chromium saw as PNG files there. */
#include "../t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/js.h"
#include "base/str.h"
#include "browser.h"
#include "gitclient.h"
#include "io/file.h"
#include "stack.h"

static struct stack stack;
static struct stack_org acme, other;

#define BRANCH "agent/01jdqw8x0fyv5s4t1z9k2m3n4p"
#define EVIL   "<script>window.pwned=1\n\"'\xe2\x80\xaegnp.txt"

static void create(const char *name, const char *project)
{
	auto_web struct web w = { 0 };
	web_json(&stack, "POST", "/v1/git/repos", acme.member,
	    js_pack("{s:s, s:s*}", "name", name, "project", project), &w);
	assert_int_equal(w.status, 201);
}

/* A page over plain HTTP. */
static void page(const char *path, const char *password, struct web *w)
{
	char auth[400], type[100] = "";
	gitclient_basic(password == NULL ? "" : password, auth);
	const char *headers[] = { password == NULL ? NULL : auth, NULL };
	web_do(&stack, &(struct web_req){ .method = "GET", .path = path, .headers = headers }, w);
	assert_true(web_header(w, "Content-Type", type, sizeof type));
	assert_string_equal(type, "text/html; charset=utf-8");
	assert_non_null(strstr(w->body, "</html>"));
}

static void assert_says(const struct web *w, const char *text)
{
	if (strstr(w->body, text) == NULL)
		fail_msg("the page does not say \"%s\"", text);
}

static void assert_silent(const struct web *w, const char *text)
{
	if (strstr(w->body, text) != NULL)
		fail_msg("the page says \"%s\"", text);
}

static const char *at(const char *repo, const char *query, char out[400])
{
	(void)snprintf(out, 400, "/git/%s/%s%s", acme.slug, repo, query);
	return out;
}

/* main with some files, and a branch with every kind of change and all that could hurt a reader. */
static void seed(struct gitclient *g)
{
	char url[200];
	create("shop", NULL);
	gitclient_start(g, &stack, acme.member);
	GIT_OK(g, "", "clone", "-q", gitclient_url(g, acme.slug, "shop", url), "w");
	gitclient_commit(g, "w", "old.txt", "moved\nas\nit\nis\nand\nlong\nenough\n");
	gitclient_commit(g, "w", "gone.txt", "bye\n");
	gitclient_commit(g, "w", "code.py", "def total(items):\n    return len(items) == 0\n");
	GIT_OK(g, "w", "push", "-q", "origin", "main");
	GIT_OK(g, "w", "checkout", "-q", "-b", BRANCH);
	GIT_OK(g, "w", "mv", "old.txt", "new.txt");
	GIT_OK(g, "w", "rm", "-q", "gone.txt");
	gitclient_commit(g, "w", "code.py", "def total(items):\n    return not items\n");
	gitclient_commit(
	    g, "w", EVIL, "<img src=x onerror=\"window.pwned=1\">\r\n\x1b[31mred \xe2\x80\xaegnp \xff\n");
	auto_buf struct buf line = BUF(65536);
	for (int i = 0; i < 600; i++)
		(void)buf_str(&line, "0123456789");
	gitclient_commit(g, "w",
	    "a-directory-with-a-name/that-goes-on/and-on/until-it-is-wider/than-any-phone/long.txt.min.js",
	    buf_c(&line));
	GIT_OK(g, "w", "commit", "-q", "--allow-empty", "-m", "<b onmouseover=alert(1)>subject</b>", "-m",
	    "Why it was done: <script>window.pwned=1</script>");
	GIT_OK(g, "w", "push", "-q", "origin", BRANCH, "HEAD~1:refs/heads/\xc3\xbcml\xc3\xa4ut-<i>");
}

/* ---- what it says */

static void a_branch_is_shown_with_commits_changes_and_files(void **s) /* FRG-5 */
{
	(void)s;
	char path[400];
	auto_web struct web w = { 0 };
	page(at("shop", "?ref=" BRANCH, path), acme.member, &w);
	assert_int_equal(w.status, 200);
	static const char *const says[] = { ("<title>" BRANCH), "4 commits ahead of <b>main</b>",
		"renamed from old.txt", ">deleted<", "return <b>len(items) == 0</b>",
		"return <b>not items</b>", "&lt;b onmouseover=alert(1)&gt;subject&lt;/b&gt;",
		"Why it was done: &lt;script&gt;", "line cut", "<span class=\"ctl\">U+202E</span>",
		"<span class=\"ctl\">\\n</span>", "<span class=\"ctl\">\\e</span>",
		"<span class=\"ctl\">\\xff</span>", "\xc3\xbcml\xc3\xa4ut-&lt;i&gt;",
		"ref=%C3%BCml%C3%A4ut-%3Ci%3E", "git clone" };
	for (size_t i = 0; i < sizeof says / sizeof *says; i++)
		assert_says(&w, says[i]);
	static const char *const never[] = { "<script", "<img", "\xe2\x80\xae", "\x1b", "onerror=\"" };
	for (size_t i = 0; i < sizeof never / sizeof *never; i++)
		assert_silent(&w, never[i]);
	char policy[400];
	assert_true(web_header(&w, "Content-Security-Policy", policy, sizeof policy));
	assert_true(str_starts(policy, "default-src 'none'; style-src 'sha256-"));
	assert_null(strstr(policy, "unsafe"));
	auto_web struct web u = { 0 }, m = { 0 };
	page(at("shop", "?ref=%C3%BCml%C3%A4ut-%3Ci%3E", path), acme.member, &u);
	assert_int_equal(u.status, 200);
	page(at("shop", "", path), acme.member, &m);
	assert_says(&m, "is the default branch");
	assert_silent(&m, "h-changes");
}

static void a_page_is_for_those_who_may_read_the_repository(void **s) /* FRG-2, FRG-7, ID-4 */
{
	(void)s;
	char path[400], challenge[100] = "", type[100];
	create("inner", "p1");
	for (int there = 0; there < 2; there++) {
		auto_web struct web nobody = { 0 }, stranger = { 0 };
		page(at(there ? "shop" : "nowhere", "", path), NULL, &nobody);
		assert_int_equal(nobody.status, 401);
		assert_true(web_header(&nobody, "WWW-Authenticate", challenge, sizeof challenge));
		assert_true(str_starts(challenge, "Basic realm="));
		assert_says(&nobody, "Sign in");
		page(path, other.key, &stranger);
		assert_int_equal(stranger.status, 404);
		assert_says(&stranger, there ? "no repository shop" : "no repository nowhere");
		assert_silent(&stranger, "default branch");
	}
	auto_web struct web inner = { 0 }, none = { 0 }, rev = { 0 }, post = { 0 };
	page(at("inner", "", path), acme.key, &inner);
	assert_int_equal(inner.status, 404);
	page(at("shop", "?ref=nope%3Cscript%3E", path), acme.key, &none);
	assert_int_equal(none.status, 404);
	assert_says(&none, "no branch nope&lt;script&gt;");
	assert_says(&none, "Show the default branch");
	/* A name is a name and no revision expression. */
	page(at("shop", "?ref=main%7E1", path), acme.key, &rev);
	assert_int_equal(rev.status, 404);
	/* As git writes it, and with a slash at the end; what cannot be read is told as a page, too. */
	static const struct {
		const char *query, *says;
		int status;
	} more[] = { { "?ref=refs/heads/main", "shop", 200 }, { "/", "shop", 200 },
		{ "/?ref=main", "shop", 200 }, { "?ref=refs/heads/nope", "no branch nope", 404 },
		{ "?ref=main&ref=main", "ref", 400 }, { "?ref=%ff", "UTF-8", 400 },
		{ "?ref=%zz", "%", 400 } };
	for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
		auto_web struct web w = { 0 };
		page(at("shop", more[i].query, path), acme.key, &w);
		if (w.status != more[i].status)
			fail_msg("%s: %ld", more[i].query, w.status);
		assert_says(&w, more[i].says);
	}
	web_do(&stack,
	    &(struct web_req){
		.method = "POST", .path = at("shop", "", path), .key = acme.key, .body = "{}" },
	    &post);
	assert_int_equal(post.status, 405);
	assert_true(web_header(&post, "Content-Type", type, sizeof type));
}

static void an_empty_repository_says_how_to_push(void **s) /* FRG-5 */
{
	(void)s;
	char path[400];
	create("fresh", NULL);
	auto_web struct web w = { 0 };
	page(at("fresh", "", path), acme.member, &w);
	assert_int_equal(w.status, 200);
	assert_says(&w, "git push -u origin main");
}

static void a_huge_change_is_cut_with_a_word(void **s) /* FRG-5 */
{
	(void)s;
	char url[200], path[400], name[40];
	struct gitclient g;
	create("huge", NULL);
	gitclient_start(&g, &stack, acme.member);
	GIT_OK(&g, "", "clone", "-q", gitclient_url(&g, acme.slug, "huge", url), "w");
	gitclient_commit(&g, "w", "a", "a\n");
	GIT_OK(&g, "w", "push", "-q", "origin", "main");
	auto_buf struct buf text = BUF(8 << 20);
	for (unsigned i = 1; i < 200000; i++)
		(void)buf_fmt(&text, "<%u>\x01\n", i * 2654435761u);
	for (int i = 0; i < 1200; i++) {
		struct err e = { 0 };
		char full[200];
		(void)snprintf(name, sizeof name, "f%d", i);
		(void)snprintf(full, sizeof full, "%s/w/%s", g.home, name);
		assert_int_equal(file_write(full, name, strlen(name), 0644, &e), 0);
	}
	gitclient_commit(&g, "w", "b", buf_c(&text));
	GIT_OK(&g, "w", "push", "-q", "origin", "HEAD:big");
	auto_web struct web w = { 0 };
	page(at("huge", "?ref=big", path), acme.member, &w);
	assert_int_equal(w.status, 200);
	assert_says(&w, "The rest is not shown here");
	assert_says(&w, "More files changed than are listed here");
	assert_true(w.body_n < 4 << 20);
	gitclient_end(&g);
}

/* ---- how it looks */

/* The least contrast of any text with what is behind it (WCAG 2), times 100, and the number of texts looked at. */
static const char contrast[] =
    "(()=>{const c=document.createElement('canvas').getContext('2d',{willReadFrequently:true});"
    "const rgb=s=>{c.clearRect(0,0,1,1);c.fillStyle=s;c.fillRect(0,0,1,1);return "
    "c.getImageData(0,0,1,1).data};"
    "const lum=d=>[0,1,2].map(i=>d[i]/255).map(v=>v<=.03928?v/12.92:((v+.055)/1.055)**2.4)"
    ".reduce((a,v,i)=>a+v*[.2126,.7152,.0722][i],0);"
    "const back=e=>{for(;e;e=e.parentElement){const "
    "b=rgb(getComputedStyle(e).backgroundColor);if(b[3]>250)return b}return rgb('white')};"
    "let worst=99,n=0;const t=document.createTreeWalker(document.body,NodeFilter.SHOW_TEXT);"
    "while(t.nextNode()){const "
    "e=t.currentNode.parentElement;if(!t.currentNode.data.trim()||!e.offsetParent)continue;"
    "const "
    "a=lum(rgb(getComputedStyle(e).color)),b=lum(back(e)),r=(Math.max(a,b)+.05)/"
    "(Math.min(a,b)+.05);n++;worst=Math.min(worst,r)}"
    "return n<20?0:Math.floor(worst*100)})()";

static void the_page_fits_two_widths_in_light_and_dark(void **s) /* FRG-5 */
{
	(void)s;
	char auth[400], url[500], path[400];
	static const char *const pages[] = { ("shop?ref=" BRANCH), "shop", "fresh", "shop?ref=nope" };
	static const int widths[] = { 1280, 390 };
	struct browser *b = browser_start();
	gitclient_basic(acme.member, auth);
	browser_header(b, "Authorization", strchr(auth, ' ') + 1);
	for (size_t i = 0; i < 4 * 4; i++) {
		bool dark = i & 1;
		int width = widths[i >> 1 & 1];
		browser_look(b, width, 900, dark);
		(void)snprintf(url, sizeof url, "%s%s", stack.url[0], at(pages[i >> 2], "", path));
		assert_int_equal(browser_open(b, url), i >> 2 == 3 ? 404 : 200);
		assert_int_equal(browser_int(b, "innerWidth"), width);
		if (browser_int(b, "document.documentElement.scrollWidth") > width)
			fail_msg("%s scrolls sideways at %d", pages[i >> 2], width);
		/* The style sheet is in force: its hash is right. */
		assert_int_equal(browser_int(b, "parseInt(getComputedStyle(document.body).marginTop)"), 0);
		bool is_dark =
		    browser_int(b,
			"parseInt(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])") < 100;
		assert_int_equal(is_dark, dark);
		assert_int_equal(browser_int(b, "window.pwned===undefined?0:1"), 0);
		assert_int_equal(
		    browser_int(b,
			"document.querySelectorAll('script,img,iframe,link,[onerror],[onmouseover]').length"),
		    0);
		assert_int_equal(browser_int(b, "performance.getEntriesByType('resource').length"), 0);
		if (i >> 2 < 2 && browser_int(b, contrast) < 450)
			fail_msg("%s: contrast %lld%% at %d, dark %d", pages[i >> 2],
			    browser_int(b, contrast), width, dark);
		if (getenv("GATEHOUSE_SHOTS") != NULL) {
			char png[300];
			(void)snprintf(png, sizeof png, "%s/page-%zu-%d-%s.png", getenv("GATEHOUSE_SHOTS"),
			    i >> 2, width, dark ? "dark" : "light");
			browser_shot(b, png);
		}
	}
	browser_end(b);
}

static void the_page_is_used_by_keyboard_and_screen_reader(void **s) /* FRG-5 */
{
	(void)s;
	char auth[400], url[500], path[400];
	struct browser *b = browser_start();
	gitclient_basic(acme.member, auth);
	browser_header(b, "Authorization", strchr(auth, ' ') + 1);
	browser_look(b, 390, 900, false);
	(void)snprintf(url, sizeof url, "%s%s", stack.url[0], at("shop", "?ref=" BRANCH, path));
	assert_int_equal(browser_open(b, url), 200);
	static const char *const ones[] = { "header.top", "main#main", "h1", "nav[aria-label]", "html[lang]",
		"title", "a.skip[href='#main']" };
	for (size_t i = 0; i < sizeof ones / sizeof *ones; i++) {
		char count[100];
		(void)snprintf(count, sizeof count, "document.querySelectorAll(\"%s\").length", ones[i]);
		assert_int_equal(browser_int(b, count), 1);
	}
	/* Whatever scrolls by itself can be reached and has a name. */
	assert_int_equal(browser_int(b,
			     "[...document.querySelectorAll('.scroll')].filter(e=>e.scrollWidth>e."
			     "clientWidth).length>0?1:0"),
	    1);
	assert_int_equal(browser_int(b,
			     "[...document.querySelectorAll('.scroll')].filter(e=>e.tabIndex!=0||!e."
			     "getAttribute('aria-label')).length"),
	    0);
	assert_int_equal(
	    browser_int(b, "[...document.querySelectorAll('a')].filter(a=>!a.textContent.trim()).length"), 0);
	assert_int_equal(browser_int(b,
			     "[...document.querySelectorAll('section')].filter(s=>!document.getElementById("
			     "s.getAttribute('aria-labelledby'))).length"),
	    0);
	/* The branches open without JavaScript, and stay on the screen. */
	assert_int_equal(browser_int(b,
			     "(document.querySelector('summary').click(),document.querySelectorAll('.pick["
			     "open] li a').length)"),
	    3);
	assert_true(browser_int(b, "document.documentElement.scrollWidth") <= 390);
	assert_int_equal(browser_int(b, "document.querySelectorAll('.pick a[aria-current=page]').length"), 1);
	/* A change is reached from the list of changes. */
	assert_int_equal(browser_int(b,
			     "[...document.querySelectorAll('.list "
			     "a.name')].filter(a=>!document.getElementById(a.hash.slice(1))).length"),
	    0);
	browser_end(b);
}

static struct gitclient seeded;

static int up(void **s)
{
	(void)s;
	stack_up(&stack, 1, 0, 1, NULL);
	stack_org(&stack, &acme);
	stack_org(&stack, &other);
	seed(&seeded);
	return 0;
}

static int down(void **s)
{
	(void)s;
	gitclient_end(&seeded);
	stack_down(&stack);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_branch_is_shown_with_commits_changes_and_files),
		cmocka_unit_test(a_page_is_for_those_who_may_read_the_repository),
		cmocka_unit_test(an_empty_repository_says_how_to_push),
		cmocka_unit_test(a_huge_change_is_cut_with_a_word),
		cmocka_unit_test(the_page_fits_two_widths_in_light_and_dark),
		cmocka_unit_test(the_page_is_used_by_keyboard_and_screen_reader),
	};
	return cmocka_run_group_tests_name("page", tests, up, down);
}
