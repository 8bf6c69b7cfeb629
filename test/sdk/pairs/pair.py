"""A round through the calls of one version of E2B's PyPI package for code interpreters, with one version of
the SDK below it, sync and async. Calls that a version does not have are left out, and named in the output."""
import asyncio

from e2b_code_interpreter import AsyncSandbox, Sandbox

missing = []


def has(of, name):
    if not hasattr(of, name) and name not in missing:
        missing.append(name)
    return hasattr(of, name)


def check(got, want):
    assert got == want, (got, want)


with Sandbox.create(timeout=300, envs={"FROM_CREATE": "c"}) as s:
    seen = []
    e = s.run_code("x = 1; print('out'); x + 1", on_stdout=lambda m: seen.append(m.line))
    check((e.text, seen, e.logs.stdout), ("2", ["out\n"], ["out\n"]))
    check(s.run_code("x += 1; x").text, "2")
    check(s.run_code("1/0").error.name, "ZeroDivisionError")
    check(s.run_code("import os; os.environ['FROM_CREATE'] + os.environ['ONE']", envs={"ONE": "1"}).text, "c1")
    check(s.run_code("6 * 7", language="js").text, "42")
    plot = s.run_code("import matplotlib.pyplot as plt\nplt.bar(['a'], [1]); plt.show()").results[0]
    check(plot.chart.type.value, "bar")
    assert plot.png
    context = s.create_code_context(cwd="/tmp")
    check(s.run_code("import os; os.getcwd()", context=context).text, "/tmp")
    if has(s, "list_code_contexts"):
        assert context.id in [c.id for c in s.list_code_contexts()]
    if has(s, "restart_code_context"):
        s.restart_code_context(context)
    if has(s, "remove_code_context"):
        s.remove_code_context(context)
    s.files.write("f.txt", "text")
    check(s.run_code("open('f.txt').read()").text, "text")


async def beside():
    s = await AsyncSandbox.create(timeout=300)
    try:
        check((await s.run_code("y = 1; y + 1")).text, "2")
        check((await s.run_code("y")).text, "1")
    finally:
        await s.kill()


asyncio.run(beside())
print("all but " + ", ".join(missing) if missing else "all")
