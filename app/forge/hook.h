/*
 * hook.h - git's pre-receive hook, run by git-receive-pack inside its quarantine as `gatehouse hook .../pre-receive`.
 * The rights come from variables that only smarthttp sets; without them nothing is accepted.
 */
#pragma once

#define HOOK_ENV_BY      "GATEHOUSE_PUSH_BY" /* "member" or "grant" */
#define HOOK_ENV_REF     "GATEHOUSE_GRANT_REF"
#define HOOK_ENV_DEFAULT "GATEHOUSE_DEFAULT_BRANCH"

/* main() of the hook: argv[0] is its name or path; reads git's commands from standard input, says why not on standard
 * error. The exit status: 0 accepts all, anything else refuses all. */
int hook_main(int argc, char **argv);
