/* all.c - the one list of op tables. A new resource adds its table here. */
#include "handlers/handlers.h"

extern const struct op billing_ops[], coding_ops[], egress_ops[], git_ops[], keys_ops[], meta_ops[],
    pages_ops[], providers_ops[], repos_ops[], run_tokens_ops[], sandbox_commands_ops[], sandbox_files_ops[],
    sandbox_run_ops[], sandbox_tree_ops[], sandboxes_ops[], sessions_ops[], traces_ops[];
extern const struct op sandbox_watch_ops[], volumes_ops[];
extern const struct op e2b_control_ops[], e2b_files_ops[], e2b_process_ops[], e2b_watch_ops[];

extern const struct op chat_ops[], messages_ops[], models_ops[], responses_ops[];

const struct op *const handlers_all[] = {
	meta_ops,
	keys_ops,
	repos_ops,
	git_ops,
	pages_ops,
	sessions_ops,
	sandboxes_ops,
	volumes_ops,
	sandbox_run_ops,
	sandbox_commands_ops,
	sandbox_files_ops,
	sandbox_tree_ops,
	sandbox_watch_ops,
	egress_ops,
	coding_ops,
	run_tokens_ops,
	billing_ops,
	providers_ops,
	models_ops,
	chat_ops,
	messages_ops,
	responses_ops,
	traces_ops,
	e2b_control_ops,
	e2b_process_ops,
	e2b_files_ops,
	e2b_watch_ops,
	NULL,
};
