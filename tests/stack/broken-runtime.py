#!/usr/bin/python3
"""A runc or runsc that gives less than it is asked for, as the file @KIND@ says: for tests of what looks inside."""
import json, os, sys

kind = open("@KIND@").read().strip()
args = [a for a in sys.argv[1:] if a not in ("--network=none", "--host-uds=create")]  # of runsc; runc has none of them
if kind == "refuse":
    sys.exit("the runtime is broken")
path = os.path.join(args[args.index("--bundle") + 1], "config.json")
c = json.load(open(path))
spaces, mounts = c["linux"]["namespaces"], c["mounts"]
if kind == "network":
    spaces[:] = [n for n in spaces if n["type"] != "network"]
elif kind == "capabilities":
    for name in c["process"]["capabilities"]:
        c["process"]["capabilities"][name] = ["CAP_NET_BIND_SERVICE"]
elif kind == "seccomp":
    c["linux"].pop("seccomp", None)
elif kind == "write":
    os.makedirs("/tmp/ghd-write", exist_ok=True)
    os.chmod("/tmp/ghd-write", 0o777)
    mounts.append({"destination": "/opt", "type": "bind", "source": "/tmp/ghd-write", "options": ["bind", "rw"]})
elif kind == "sees":
    mounts.append({"destination": "/etc", "type": "bind", "source": "/etc", "options": ["bind", "ro"]})
elif kind in ("forgets", "remembers"):
    to = "/work" if kind == "forgets" else "/tmp"
    at = [m for m in mounts if m["destination"] == to]
    if at and to == "/work":
        at[0].update(type="tmpfs", source="tmpfs", options=["mode=1777"])
    elif at:
        os.makedirs("/tmp/ghd-tmp", exist_ok=True)
        os.chmod("/tmp/ghd-tmp", 0o1777)
        at[0].update(type="bind", source="/tmp/ghd-tmp", options=["bind", "rw"])
json.dump(c, open(path, "w"))
os.execv("/usr/sbin/runc", ["runc"] + args)
