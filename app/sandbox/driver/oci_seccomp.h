/*
 * oci_seccomp.h - the system calls a sandbox may make (SBX-30), as data: an allow-list in the spirit of the container
 * engines' default for a process without capabilities. Everything else fails with EPERM.
 *
 * What it allows: files, memory, threads, signals, timers, polling, IPC inside the sandbox, ptrace and process_vm_* among
 * its own processes, sockets of the families unix, inet, inet6 and netlink, Landlock and seccomp on top.
 * What it does not: new namespaces (clone flags, unshare, setns), mounts, modules, kexec, bpf, perf, keyrings, userfaultfd,
 * io_uring, clocks being set, quotas, swap, raw ports, NUMA policy, other socket families (AF_ALG, AF_VSOCK, …), and any
 * other architecture than the machine's own.
 */
#pragma once

#include <jansson.h>

extern const char *const seccomp_allowed[]; /* ended by NULL, sorted */
/* The linux.seccomp object of a config.json. New reference. */
json_t *seccomp_profile(void);
