/* HTTP-4: the one error envelope. `details` only where it says more than `message`. */
#include "base/js.h"
#include "op/op.h"

json_t *op_envelope(const struct err *e, const char *request_id)
{
	json_t *o = js_pack("{s:s, s:s}", "type", err_type(e->code), "code",
	    e->reason != NULL ? e->reason : err_name(e->code));
	js_set_str(o, "message", e->msg);
	js_set_str(o, "param", e->param[0] != 0 ? e->param : NULL);
	js_set_str(o, "request_id", request_id);
	if (e->n_details > 1) {
		json_t *all = json_array();
		for (int i = 0; i < e->n_details; i++) {
			json_t *d = json_object();
			js_set_str(d, "param", e->details[i].param);
			js_set_str(d, "message", e->details[i].msg);
			js_push(all, d);
		}
		js_set(o, "details", all);
	}
	return js_pack("{s:o}", "error", o);
}
