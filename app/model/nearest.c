#include "model/nearest.h"

#include <ctype.h>
#include <string.h>

static int min3(int a, int b, int c)
{
	int ab = a < b ? a : b;
	return ab < c ? ab : c;
}

static bool same(char a, char b)
{
	return tolower((unsigned char)a) == tolower((unsigned char)b);
}

int nearest_distance(const char *a, const char *b, int most)
{
	int na = (int)strlen(a), nb = (int)strlen(b);
	if (na > NEAREST_BYTES || nb > NEAREST_BYTES || na - nb > most || nb - na > most)
		return most + 1;
	int rows[3][NEAREST_BYTES + 1]; /* before the last, the last, this one */
	int *before = rows[0], *last = rows[1], *now = rows[2];
	for (int j = 0; j <= nb; j++)
		last[j] = j;
	for (int i = 1; i <= na; i++) {
		int least = now[0] = i;
		for (int j = 1; j <= nb; j++) {
			now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + !same(a[i - 1], b[j - 1]));
			if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]) &&
			    before[j - 2] + 1 < now[j])
				now[j] = before[j - 2] + 1;
			if (now[j] < least)
				least = now[j];
		}
		if (least > most)
			return most + 1;
		int *spare = before;
		before = last;
		last = now;
		now = spare;
	}
	return last[nb] <= most ? last[nb] : most + 1;
}

void nearest_add(struct nearest *to, const char *name, const char *by)
{
	int most = (int)strlen(to->asked) / 3;
	if (most < 2)
		most = 2;
	int d = nearest_distance(to->asked, by, most), i = 0;
	if (d > most)
		return;
	while (i < to->n && to->distance[i] <= d)
		if (strcmp(to->names[i++], name) == 0)
			return;
	if (i == NEAREST_MAX)
		return;
	int n = to->n < NEAREST_MAX ? to->n++ : NEAREST_MAX - 1;
	for (; n > i; n--) {
		to->names[n] = to->names[n - 1];
		to->distance[n] = to->distance[n - 1];
	}
	to->names[i] = name;
	to->distance[i] = d;
}
