/* Names and numbers of signals, as clients may write them (SBX-46). */
#include "../t.h"

#include <signal.h>

#include "sandbox/client.h"

static void signals_have_names_and_numbers(void **s)
{
	(void)s;
	const struct {
		const char *text;
		int sig;
	} all[] = { { "TERM", SIGTERM }, { "SIGTERM", SIGTERM }, { "15", 15 }, { "KILL", 9 }, { "9", 9 },
		{ "64", 64 }, { "WINCH", SIGWINCH }, { "SIGRTMIN", SIGRTMIN }, { "RTMIN+2", SIGRTMIN + 2 },
		{ "SIGRTMAX-1", SIGRTMAX - 1 }, { "RTMAX", SIGRTMAX }, { "", 0 }, { "0", 0 }, { "65", 0 },
		{ "-9", 0 }, { "term", SIGTERM }, { "SigKill", SIGKILL }, { "rtmin+2", SIGRTMIN + 2 },
		{ "sigsigterm", 0 }, { "SIG", 0 }, { "SIGSIGTERM", 0 }, { "RTMIN+99", 0 }, { "RTMIN+", 0 },
		{ " 9", 0 } };
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		if (box_signal_number(all[i].text) != all[i].sig)
			fail_msg("%s: %d", all[i].text, box_signal_number(all[i].text));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(signals_have_names_and_numbers) };
	return cmocka_run_group_tests_name("client_cmd", tests, NULL, NULL);
}
