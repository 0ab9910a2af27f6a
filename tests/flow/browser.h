/*
 * browser.h - Chromium without a window, driven over its debugging pipe: what a page really looks like to somebody. Ended by pid
 * with everything it started. Failures end the test.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct browser;

struct browser *browser_start(void);
void browser_end(struct browser *b);
/* Header sent with every request, e.g. Authorization; NULL value: none. */
void browser_header(struct browser *b, const char *name, const char *value);
/* Size of the window in CSS pixels, as a phone when narrow, and the colour scheme a person prefers. */
void browser_look(struct browser *b, int width, int height, bool dark);
/* Open a URL and wait until it has loaded; its HTTP status. */
int browser_open(struct browser *b, const char *url);
/* The value of a JavaScript expression in the page (the page's own policy does not hold for it). New reference. */
json_t *browser_eval(struct browser *b, const char *expression);
long long browser_int(struct browser *b, const char *expression);
/* The page as it is seen now, into a PNG file. */
void browser_shot(struct browser *b, const char *path);
