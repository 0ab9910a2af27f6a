# Greet politely, and prove it
import pathlib, subprocess, sys

path = pathlib.Path("greet.py")
text = path.read_text()
if '"Hello, "' not in text:
    path.write_text(text.replace('return "hello " + name', 'return "Hello, " + name + "!"'))
print("edited", path, flush=True)
sys.exit(subprocess.run([sys.executable, "check.py"]).returncode)
