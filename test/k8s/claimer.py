"""Claims a sandbox of a warm pool with agent-sandbox's own Python client, uses it, and gives it back.

    claimer.py POOL

The variable KUBECONFIG names the cluster. The sandboxes' pods must be reachable from here.
"""

import datetime
import io
import sys

import kubernetes.config
from k8s_agent_sandbox import SandboxClient, SandboxRequestError
from k8s_agent_sandbox.models import SandboxInClusterConnectionConfig

DATA = b"0123456789abcdef\x00\xff" * 60000


def main(pool: str) -> None:
    kubernetes.config.load_kube_config()
    with SandboxClient(connection_config=SandboxInClusterConnectionConfig()) as client:
        sandbox = client.create_sandbox(warmpool=pool, namespace="default", sandbox_ready_timeout=60)
        out = sandbox.commands.run("echo words; echo more >&2; exit 7")
        assert (out.stdout, out.stderr, out.exit_code) == ("words\n", "more\n", 7), out
        sandbox.files.write("a name.bin", DATA)
        assert sandbox.files.read("a name.bin") == DATA
        copy = io.BytesIO()
        assert sandbox.files.read_to("a name.bin", copy) == len(DATA) and copy.getvalue() == DATA
        assert sandbox.files.exists("a name.bin") and not sandbox.files.exists("another")
        entries = {e.name: e for e in sandbox.files.list(".")}
        entry = entries["a name.bin"]
        assert (entry.type, entry.size) == ("file", len(DATA)), entry
        age = datetime.datetime.now(datetime.timezone.utc) - entry.modified.astimezone(datetime.timezone.utc)
        assert abs(age) < datetime.timedelta(hours=1), entry
        try:
            sandbox.files.read("another")
        except SandboxRequestError as err:
            assert err.__cause__.response.status_code == 404, err
        else:
            raise AssertionError("a file that is not there was read")
        print("the client is content with", sandbox.get_pod_name())


if __name__ == "__main__":
    main(sys.argv[1])
