"""R and Java in the template, by E2B's package."""
import unittest

from e2b_code_interpreter import Sandbox
from e2b.exceptions import TimeoutException


class Languages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox.create(timeout=600, envs={"FROM_CREATE": "c", "FOO": "sandbox"})
        # A kernel takes memory only once a cell asks for it.
        cls.idle = cls.sandbox.commands.run("pgrep -lx 'R|java' || true").stdout

    @classmethod
    def tearDownClass(cls):
        cls.sandbox.kill()

    def cell(self, language, code, **options):
        e = self.sandbox.run_code(code, language=language, request_timeout=300, timeout=300, **options)
        self.assertIsNone(e.error, e.error)
        return e

    # The kernel for R shows values as display() does, so none is the main result.
    def text(self, language, code, **options):
        return self.cell(language, code, **options).results[-1].text.strip()

    def environment(self, language, get, missing, form):
        self.assertEqual(self.text(language, get("FROM_CREATE")), form("c"))
        hard = 'a"b\\u0022\\ \n\té😀'
        envs = {"FOO": "cell", "ONE": "1", "HARD": hard}
        self.assertEqual(self.text(language, get("FOO"), envs=envs), form("cell"))
        self.assertEqual(self.text(language, get("ONE")), missing)
        self.assertEqual(self.text(language, get("FOO")), form("sandbox"))
        self.sandbox.run_code(self.save(language, get("HARD")), language=language, envs={"HARD": hard})
        self.assertEqual(self.sandbox.files.read("/tmp/hard").rstrip("\n"), hard)

    def save(self, language, value):
        if language == "r":
            return f'writeLines(enc2utf8({value}), "/tmp/hard", useBytes=TRUE)'
        return f'java.nio.file.Files.writeString(java.nio.file.Path.of("/tmp/hard"), {value});'

    def test_lazy(self):
        self.assertEqual(self.idle, "")

    def test_r(self):
        e = self.cell("r", 'print("Hello"); x <- 6; message("aside"); x * 7')
        self.assertEqual(e.logs.stdout, ['[1] "Hello"\n'])
        self.assertEqual("".join(e.logs.stderr).strip(), "aside")
        self.assertEqual(e.results[-1].text.strip(), "[1] 42")
        self.assertEqual(self.text("r", "x"), "[1] 6")
        self.assertTrue(self.cell("r", "plot(1:3)").results[0].png)
        self.assertIn("no such thing", self.sandbox.run_code('stop("no such thing")', language="r").error.value)
        context = self.sandbox.create_code_context(language="r", cwd="/tmp", request_timeout=300)
        self.assertEqual(self.sandbox.run_code("getwd()", context=context).results[-1].text.strip(), '[1] "/tmp"')
        self.environment("r", lambda n: f'Sys.getenv("{n}")', '[1] ""', lambda v: f'[1] "{v}"')

    def test_java(self):
        e = self.cell("java", 'int x = 6; System.out.println("Hello"); x * 7')
        self.assertEqual(e.logs.stdout, ["Hello", "\n"])
        self.assertEqual(e.text, "42")
        self.assertEqual(self.text("java", "x"), "6")
        self.assertEqual(self.text("java", 'System.getProperty("user.dir")'), "/home/user")
        self.assertEqual(self.sandbox.run_code("int y = ;", language="java").error.name, "CompilationException")
        thrown = self.sandbox.run_code('Object f() { throw new RuntimeException("no such thing"); }\nf();', language="java")
        self.assertEqual((thrown.error.name, thrown.error.value), ("java.lang.RuntimeException", "no such thing"))
        with self.assertRaises(TimeoutException):
            self.sandbox.run_code("for (;;) {}", language="java", timeout=2)
        self.assertEqual(self.text("java", "x"), "6")
        context = self.sandbox.create_code_context(language="java", cwd="/tmp", request_timeout=300)
        e = self.sandbox.run_code('System.getProperty("user.dir")', context=context, request_timeout=300)
        self.assertEqual(e.text, "/tmp")
        self.environment("java", lambda n: f'System.getProperty("{n}", "-")', "-", lambda v: v)


if __name__ == "__main__":
    unittest.main()
