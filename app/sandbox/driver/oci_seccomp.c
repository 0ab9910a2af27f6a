#include "sandbox/driver/oci_seccomp.h"

#include <errno.h>
#include <sched.h>
#include <sys/socket.h>

#include "base/js.h"

/* clang-format off */
const char *const seccomp_allowed[] = {
	"_llseek", "_newselect",
	"accept", "accept4", "access", "adjtimex", "alarm", "arch_prctl",
	"bind", "brk",
	"cachestat", "capget", "capset", "chdir", "chmod", "chown", "clock_adjtime", "clock_getres", "clock_gettime",
	"clock_nanosleep", "close", "close_range", "connect", "copy_file_range", "creat",
	"dup", "dup2", "dup3",
	"epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd", "eventfd2",
	"execve", "execveat", "exit", "exit_group",
	"faccessat", "faccessat2", "fadvise64", "fallocate", "fanotify_mark", "fchdir", "fchmod", "fchmodat", "fchmodat2",
	"fchown", "fchownat", "fcntl", "fdatasync", "fgetxattr", "flistxattr", "flock", "fork", "fremovexattr", "fsetxattr",
	"fstat", "fstatfs", "fsync", "ftruncate", "futex", "futex_requeue", "futex_wait", "futex_waitv", "futex_wake",
	"futimesat",
	"get_robust_list", "get_thread_area", "getcpu", "getcwd", "getdents", "getdents64", "getegid", "geteuid", "getgid",
	"getgroups", "getitimer", "getpeername", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getrandom",
	"getresgid", "getresuid", "getrlimit", "getrusage", "getsid", "getsockname", "getsockopt", "gettid", "gettimeofday",
	"getuid", "getxattr",
	"inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch", "io_cancel", "io_destroy", "io_getevents",
	"io_pgetevents", "io_setup", "io_submit", "ioctl", "ioprio_get", "ioprio_set",
	"kcmp", "kill",
	"landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "lchown", "lgetxattr", "link", "linkat",
	"listen", "listxattr", "llistxattr", "lremovexattr", "lseek", "lsetxattr", "lstat",
	"madvise", "map_shadow_stack", "membarrier", "memfd_create", "memfd_secret", "mincore", "mkdir", "mkdirat", "mknod",
	"mknodat", "mlock", "mlock2", "mlockall", "mmap", "mprotect", "mq_getsetattr", "mq_notify", "mq_open",
	"mq_timedreceive", "mq_timedsend", "mq_unlink", "mremap", "msgctl", "msgget", "msgrcv", "msgsnd", "msync", "munlock",
	"munlockall", "munmap",
	"name_to_handle_at", "nanosleep", "newfstatat",
	"open", "openat", "openat2",
	"pause", "pidfd_getfd", "pidfd_open", "pidfd_send_signal", "pipe", "pipe2", "pkey_alloc", "pkey_free",
	"pkey_mprotect", "poll", "ppoll", "prctl", "pread64", "preadv", "preadv2", "prlimit64", "process_madvise",
	"process_mrelease", "process_vm_readv", "process_vm_writev", "pselect6", "ptrace", "pwrite64", "pwritev", "pwritev2",
	"read", "readahead", "readlink", "readlinkat", "readv", "recvfrom", "recvmmsg", "recvmsg", "remap_file_pages",
	"removexattr", "rename", "renameat", "renameat2", "restart_syscall", "rmdir", "rseq", "rt_sigaction",
	"rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait",
	"rt_tgsigqueueinfo",
	"sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getattr", "sched_getparam",
	"sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity", "sched_setattr", "sched_setparam",
	"sched_setscheduler", "sched_yield", "seccomp", "select", "semctl", "semget", "semop", "semtimedop", "sendfile",
	"sendmmsg", "sendmsg", "sendto", "set_robust_list", "set_thread_area", "set_tid_address", "setfsgid", "setfsuid",
	"setgid", "setgroups", "setitimer", "setpgid", "setpriority", "setregid", "setresgid", "setresuid", "setreuid",
	"setrlimit", "setsid", "setsockopt", "setuid", "setxattr", "shmat", "shmctl", "shmdt", "shmget", "shutdown",
	"sigaltstack", "signalfd", "signalfd4", "socketpair", "splice", "stat", "statfs", "statx", "symlink", "symlinkat",
	"sync", "sync_file_range", "syncfs", "sysinfo",
	"tee", "tgkill", "time", "timer_create", "timer_delete", "timer_getoverrun", "timer_gettime", "timer_settime",
	"timerfd_create", "timerfd_gettime", "timerfd_settime", "times", "tkill", "truncate",
	"umask", "uname", "unlink", "unlinkat", "utime", "utimensat", "utimes",
	"vfork", "vmsplice",
	"wait4", "waitid", "waitpid", "write", "writev",
	NULL,
};
/* clang-format on */

enum {
	NAMESPACE_FLAGS = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
	    CLONE_NEWPID | CLONE_NEWNET
};

static json_t *names(const char *const *list)
{
	json_t *a = json_array();
	for (; *list != NULL; list++)
		js_push(a, json_string(*list));
	return a;
}

static json_t *allow_if(const char *name, json_int_t value, const char *op, json_int_t mask)
{
	json_t *arg = js_pack("{s:i,s:I,s:s}", "index", 0, "value", value, "op", op);
	if (mask != 0)
		js_set(arg, "valueTwo", json_integer(mask));
	return js_pack("{s:[s],s:s,s:[o]}", "names", name, "action", "SCMP_ACT_ALLOW", "args", arg);
}

json_t *seccomp_profile(void)
{
	static const int families[] = { AF_UNIX, AF_INET, AF_INET6, AF_NETLINK };
	/* Linux, Linux without randomisation, UNAME26 variants and "what is in force" */
	static const json_int_t personas[] = { 0x0, 0x8, 0x20000, 0x20008, 0xffffffff };
	json_t *rules = json_array();
	js_push(rules, js_pack("{s:o,s:s}", "names", names(seccomp_allowed), "action", "SCMP_ACT_ALLOW"));
	for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
		js_push(rules, allow_if("socket", families[i], "SCMP_CMP_EQ", 0));
	for (size_t i = 0; i < sizeof personas / sizeof personas[0]; i++)
		js_push(rules, allow_if("personality", personas[i], "SCMP_CMP_EQ", 0));
	/* In SCMP_CMP_MASKED_EQ `value` is the mask and `valueTwo` what must be left: 0, so no new namespace. */
	js_push(rules, allow_if("clone", NAMESPACE_FLAGS, "SCMP_CMP_MASKED_EQ", 0));
	/* Its flags are in memory that a filter cannot read; ENOSYS makes the C library fall back to clone. */
	js_push(rules,
	    js_pack("{s:[s],s:s,s:i}", "names", "clone3", "action", "SCMP_ACT_ERRNO", "errnoRet", ENOSYS));
#if defined(__x86_64__)
	const char *arch = "SCMP_ARCH_X86_64";
#elif defined(__aarch64__)
	const char *arch = "SCMP_ARCH_AARCH64";
#else
#error "name this machine's libseccomp architecture here"
#endif
	return js_pack("{s:s,s:i,s:[s],s:o}", "defaultAction", "SCMP_ACT_ERRNO", "defaultErrnoRet", EPERM,
	    "architectures", arch, "syscalls", rules);
}
