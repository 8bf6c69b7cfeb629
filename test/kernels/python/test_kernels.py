"""The unmodified PyPI package against the template code-interpreter-v1."""
import asyncio
import os
import subprocess
import unittest

from e2b_code_interpreter import AsyncSandbox, NotFoundException, Sandbox, TimeoutException
from e2b_code_interpreter.charts import (
    BarChart, BoxAndWhiskerChart, LineChart, PieChart, ScatterChart, SuperChart)

PLOT = "import matplotlib.pyplot as plt\n"


class Sync(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox.create(timeout=300, envs={"FROM_CREATE": "c"})
        cls.addClassCleanup(cls.sandbox.kill)

    def run_code(self, code, **options):
        execution = self.sandbox.run_code(code, **options)
        self.assertIsNone(execution.error, execution.error and execution.error.traceback)
        return execution

    def chart(self, code, kind):
        result = self.run_code(PLOT + code + "\nplt.show()").results[0]
        self.assertTrue(result.png)
        self.assertIsInstance(result.chart, kind)
        return result.chart

    def test_state(self):
        self.run_code("x = 1")
        self.assertEqual(self.run_code("x += 1; x").text, "2")

    def test_streams(self):
        seen = []
        execution = self.run_code(
            "import sys\nprint(1, flush=True)\nprint(2, file=sys.stderr, flush=True)\n3",
            on_stdout=lambda m: seen.append(("out", m.line)),
            on_stderr=lambda m: seen.append(("err", m.line, m.error)),
            on_result=lambda r: seen.append(("result", r.text)))
        self.assertEqual(seen, [("out", "1\n"), ("err", "2\n", True), ("result", "3")])
        self.assertEqual(execution.logs.stdout, ["1\n"])

    def test_error(self):
        error = self.sandbox.run_code("1/0").error
        self.assertEqual((error.name, error.value), ("ZeroDivisionError", "division by zero"))
        self.assertIn("ZeroDivisionError", error.traceback)

    def test_environment(self):
        code = "import os; os.environ.get('FROM_CREATE'), os.environ.get('ONE')"
        self.assertEqual(self.run_code(code, envs={"ONE": "1"}).text, "('c', '1')")
        self.assertEqual(self.run_code(code).text, "('c', None)")

    def test_contexts(self):
        context = self.sandbox.create_code_context(cwd="/tmp", language="python")
        self.run_code("z = 5", context=context)
        self.assertEqual(self.run_code("z", context=context).text, "5")
        self.assertIn(context.id, [c.id for c in self.sandbox.list_code_contexts()])
        self.sandbox.restart_code_context(context)
        self.assertEqual(self.sandbox.run_code("z", context=context).error.name, "NameError")
        self.sandbox.remove_code_context(context)
        with self.assertRaises(NotFoundException):
            self.sandbox.run_code("1", context=context)

    def test_timeout(self):
        self.run_code("kept = 1")
        with self.assertRaises(TimeoutException):
            self.sandbox.run_code("import time; time.sleep(1000)", timeout=1)
        self.assertEqual(self.run_code("kept").text, "1")

    def test_line_chart(self):
        chart = self.chart("""
import datetime
days = [datetime.datetime(2024, 9, d) for d in (1, 2, 3)]
plt.plot(days, [1, 2.5, 4], label='load'); plt.title('T'); plt.xlabel('Time (s)'); plt.ylabel('Amplitude (Hz)')""",
                           LineChart)
        self.assertEqual((chart.title, chart.x_label, chart.x_unit, chart.y_unit), ("T", "Time (s)", "s", "Hz"))
        self.assertEqual((chart.x_scale.value, chart.y_scale.value), ("datetime", "linear"))
        self.assertEqual(chart.elements[0].label, "load")
        self.assertEqual(chart.elements[0].points[1], ("2024-09-02T00:00:00", 2.5))
        self.assertTrue(all(isinstance(t, str) for t in chart.x_ticks + chart.x_tick_labels))

    def test_scatter_chart(self):
        chart = self.chart("plt.scatter([1, 2], [3, 400], label='a'); plt.scatter([5], [6]); plt.yscale('log')",
                           ScatterChart)
        self.assertEqual([e.points for e in chart.elements], [[(1, 3), (2, 400)], [(5, 6)]])
        self.assertEqual([e.label for e in chart.elements], ["a", ""])
        self.assertEqual(chart.y_scale.value, "log")

    def test_bar_charts(self):
        chart = self.chart("plt.barh(['a', 'b'], [3, 4], label='g')", BarChart)
        self.assertEqual([(e.label, e.group, e.value) for e in chart.elements], [("a", "g", 3), ("b", "g", 4)])
        chart = self.chart("plt.bar([0, 1], [1, 2], .3, label='m'); plt.bar([.3, 1.3], [3, 4], .3, label='n')\n"
                           "plt.xticks([.15, 1.15], ['p', 'q'])", BarChart)
        self.assertEqual([(e.label, e.group, e.value) for e in chart.elements],
                         [("p", "m", 1), ("q", "m", 2), ("p", "n", 3), ("q", "n", 4)])

    def test_pie_chart(self):
        chart = self.chart("plt.pie([1, 3], labels=['q', 'r'], autopct='%1.0f%%')", PieChart)
        self.assertEqual([(e.label, round(e.angle), e.radius) for e in chart.elements], [("q", 90, 1), ("r", 270, 1)])

    def test_box_chart(self):
        data = "[[85, 90, 78, 92, 88], [95, 89, 76, 91, 84, 87], [75, 82, 88, 79, 86]]"
        for options in ("", ", patch_artist=True", ", vert=False", ", notch=True",
                        ", notch=True, patch_artist=True, vert=False"):
            chart = self.chart(f"plt.boxplot({data}{options}); plt.title('Scores')", BoxAndWhiskerChart)
            got = [(e.min, e.first_quartile, e.median, e.third_quartile, e.max, e.outliers) for e in chart.elements]
            self.assertEqual(got, [(78, 85, 88, 90, 92, []), (84, 84.75, 88, 90.5, 95, [76]),
                                   (75, 79, 82, 86, 88, [])], options)
            self.assertEqual([e.label for e in chart.elements], ["1", "2", "3"])

    def test_superchart(self):
        chart = self.chart("f, (a, b) = plt.subplots(1, 2); a.plot([1, 2]); b.bar(['x'], [1]); f.suptitle('S')",
                           SuperChart)
        self.assertEqual(chart.title, "S")
        self.assertEqual([e.type.value for e in chart.elements], ["line", "bar"])

    def test_flood(self):
        """A gigabyte to a reader that takes its time: the sandbox has less memory than that."""
        got = 0

        def take(message):
            nonlocal got
            got += len(message.line)

        self.run_code("line = 'x' * 65535 + '\\n'\nfor _ in range(16384): print(line, end='')",
                      on_stdout=take, timeout=500)
        self.assertEqual(got, 1 << 30)
        self.assertEqual(self.run_code("1").text, "1")

    def test_forks(self):
        """A cell that forks without end meets the sandbox's limit, and the interpreter lives. A thousand
        processes take a gigabyte in gvisor, so this sandbox has two."""
        id = subprocess.run([os.environ["CARREL"], "create", "-t", "code-interpreter-v1", "--memory", "2GiB",
                             "--timeout", "10m"], check=True, capture_output=True, text=True).stdout.strip()
        sandbox = Sandbox.connect(id)
        self.addCleanup(sandbox.kill)
        execution = sandbox.run_code(
            "import subprocess\nkids = []\ntry:\n    while True: kids.append(subprocess.Popen(['sleep', '1000']))\n"
            "except OSError as e: print(e)\nfor k in kids: k.kill(); k.wait()", timeout=300)
        self.assertTrue(execution.error is None or execution.error.name, execution)
        self.assertIn("temporarily unavailable", "".join(execution.logs.stdout))
        self.assertEqual(sandbox.run_code("1").text, "1")

    def test_large_picture(self):
        execution = self.sandbox.run_code(
            "from IPython.display import display\ndisplay({'image/png': 'A' * (200 << 20)}, raw=True)\n'after'",
            timeout=300)
        self.assertEqual(execution.text, "after")
        self.assertIn("left out", "".join(execution.logs.stderr))


    def test_foreign_context(self):
        """Another sandbox's context is unknown, and so is a guess that differs in one character."""
        context = self.sandbox.create_code_context()
        self.run_code("secret = 1", context=context)
        other = Sandbox.create(timeout=300)
        self.addCleanup(other.kill)
        last = "0" if context.id[-1] != "0" else "1"
        for sandbox, id in ((other, context.id), (self.sandbox, context.id[:-1] + last), (self.sandbox, ""),
                            (self.sandbox, "../contexts"), (self.sandbox, context.id.upper() + "x")):
            guess = type(context)(context_id=id, language="python", cwd="/")
            if id:
                with self.assertRaises(NotFoundException):
                    sandbox.run_code("secret", context=guess)
            else:  # no context is the default one
                self.assertEqual(sandbox.run_code("secret", context=guess).error.name, "NameError")

    def test_full_memory(self):
        """A cell that fills the memory ends its kernel or itself, and the interpreter lives."""
        context = self.sandbox.create_code_context()
        execution = self.sandbox.run_code(
            "import resource\nhold = []\n"
            "resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20))\n"
            "while True: hold.append(bytearray(16 << 20))", context=context, timeout=300)
        self.assertIn(execution.error.name, ("MemoryError", "KernelDied"))
        self.assertEqual(self.sandbox.run_code("1").text, "1")
        self.sandbox.remove_code_context(context)

    def test_hostile_forms(self):
        """Forms of a value that are no forms: the answer stays well formed, and the cell's own."""
        execution = self.sandbox.run_code("""
from IPython.display import display
display({'text/plain': {'a': 1}, 'image/png': ['x'], 'application/json': 'text', 'e2b/chart': 'no chart'}, raw=True)
display({'': 'x', 'a b\\n{"type": "error"}': 'y', '__proto__': 'z', 'is_main_result': True}, raw=True)
display({'text/html': '\\u2028<script>\\x00'}, raw=True)
display({}, raw=True)
class Bad:
    def _repr_html_(self): return 5
    def __repr__(self): return 'still a text'
Bad()""", timeout=300)
        self.assertIsNone(execution.error, execution.error)
        self.assertEqual([r.is_main_result for r in execution.results][-1:], [True])
        self.assertFalse(any(r.is_main_result for r in execution.results[:-1]))
        self.assertEqual(execution.text, "still a text")

    def test_forged_lines(self):
        """What a cell prints is never taken for what the interpreter says."""
        forged = '{"type": "error", "name": "Forged", "value": "", "traceback": ""}'
        execution = self.run_code(f"import os, sys\nprint({forged!r}, flush=True)\nprint({forged!r}, file=sys.stderr)\n"
                                  f"os.system({('echo ' + chr(39) + forged + chr(39))!r})\n'after'")
        self.assertEqual(execution.text, "after")
        self.assertIn("Forged", "".join(execution.logs.stdout))


class Async(unittest.IsolatedAsyncioTestCase):
    async def test_beside_each_other(self):
        sandbox = await AsyncSandbox.create(timeout=300)
        try:
            contexts = await asyncio.gather(*[sandbox.create_code_context() for _ in range(2)])
            texts = await asyncio.gather(*[
                sandbox.run_code(f"import time; time.sleep(.2); {i}", context=c) for i, c in enumerate(contexts)])
            self.assertEqual([e.text for e in texts], ["0", "1"])
        finally:
            await AsyncSandbox.kill(sandbox.sandbox_id)


if __name__ == "__main__":
    unittest.main()
