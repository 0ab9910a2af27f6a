/* all.c - the one list of op tables. A new resource adds its table here. */
#include "handlers.h"

extern const struct op coding_ops[], git_ops[], keys_ops[], meta_ops[], pages_ops[], repos_ops[],
    sandbox_files_ops[], sandbox_run_ops[], sandboxes_ops[], sessions_ops[];

const struct op *const handlers_all[] = {
	meta_ops,
	keys_ops,
	repos_ops,
	git_ops,
	pages_ops,
	sessions_ops,
	sandboxes_ops,
	sandbox_run_ops,
	sandbox_files_ops,
	coding_ops,
	NULL,
};
