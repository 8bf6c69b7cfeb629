"""jupyter-carrel: writes the kernelspec, by which Jupyter's programs find kernels in sandboxes."""

import argparse
import json
import os
import sys
import tempfile

from jupyter_client.kernelspec import KernelSpecManager

from . import kernelspec


def main(argv=None):
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--name", default="carrel", help="of the kernelspec (default: carrel)")
    p.add_argument("--template", help="what sandboxes are made of (default: code-interpreter-v1)")
    p.add_argument("--sandbox", help="an existing sandbox for all kernels, by ID or name")
    p.add_argument("--keep", action="store_true", help="keep the sandbox when a kernel ends")
    p.add_argument("--program", help="the program carrel (default: the one in PATH)")
    p.add_argument("--sys-prefix", action="store_true", help="install for this environment, not for this user")
    p.add_argument("create", nargs="*", help="after --, more flags of carrel create, such as --internet")
    a = p.parse_args(argv)
    config = {k: v for k, v in vars(a).items() if k in ("template", "sandbox", "keep", "program", "create") and v}
    with tempfile.TemporaryDirectory() as dir:
        with open(os.path.join(dir, "kernel.json"), "w") as f:
            json.dump(kernelspec(config), f, indent=1)
        where = KernelSpecManager().install_kernel_spec(
            dir, kernel_name=a.name, user=not a.sys_prefix, prefix=sys.prefix if a.sys_prefix else None)
    print(where)


if __name__ == "__main__":
    main()
