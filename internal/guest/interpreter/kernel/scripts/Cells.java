// The runner of Java cells. Package kernel starts it with Java's source launcher; see its doc for the
// protocol. A cell is cut into the statements that JShell knows. They run in this very process.
// It needs no more than Java 11 with the module jdk.jshell.
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;
import jdk.jshell.DeclarationSnippet;
import jdk.jshell.EvalException;
import jdk.jshell.ExpressionSnippet;
import jdk.jshell.JShell;
import jdk.jshell.JShellException;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis;
import jdk.jshell.UnresolvedReferenceException;
import jdk.jshell.VarSnippet;

public class Cells {
    // What the program jshell imports, too.
    private static final String[] IMPORTS = {"java.io", "java.math", "java.net", "java.nio.file",
        "java.util", "java.util.concurrent", "java.util.function", "java.util.prefs",
        "java.util.regex", "java.util.stream"};

    private static OutputStream lines;
    private static JShell shell;
    private static Map<String, String> base = new HashMap<>();
    private static int count;
    private static volatile boolean running;
    private static volatile boolean interrupted;

    public static void main(String[] args) throws Exception {
        var requests = new BufferedReader(new InputStreamReader(new FileInputStream("/dev/fd/3"),
            StandardCharsets.US_ASCII));
        lines = new FileOutputStream("/dev/fd/4");
        System.setIn(new ByteArrayInputStream(new byte[0]));
        System.setOut(new Printer(new Said("stdout")));
        System.setErr(new Printer(new Said("stderr")));
        sun.misc.Signal.handle(new sun.misc.Signal("INT"), s -> interrupt());
        shell = JShell.builder().executionEngine("local").build();
        for (var name : IMPORTS) {
            shell.eval("import " + name + ".*;");
        }
        say("\"type\":\"ready\"");
        for (String line; (line = requests.readLine()) != null;) {
            run(line.split(" ", -1));
        }
        System.exit(0); // threads that cells left would keep the process
    }

    // Printer is a stream whose text and line ends go out one after the other. (Java's own class joins
    // them, its subclasses do not. Clients of other kernels for Java expect them apart.)
    private static final class Printer extends PrintStream {
        Printer(OutputStream out) {
            super(out, true, StandardCharsets.UTF_8);
        }
    }

    // Said sends what is written as lines of the protocol.
    private static final class Said extends OutputStream {
        private final String type;
        private final CharsetDecoder decoder = StandardCharsets.UTF_8.newDecoder()
            .onMalformedInput(CodingErrorAction.REPLACE)
            .onUnmappableCharacter(CodingErrorAction.REPLACE);
        private byte[] left = new byte[0]; // the beginning of a character

        Said(String type) {
            this.type = type;
        }

        @Override
        public void write(int b) {
            write(new byte[] {(byte) b}, 0, 1);
        }

        @Override
        public synchronized void write(byte[] data, int from, int size) {
            var in = ByteBuffer.allocate(left.length + size).put(left).put(data, from, size).flip();
            var out = CharBuffer.allocate(in.remaining() + 1);
            decoder.reset().decode(in, out, false);
            left = new byte[in.remaining()];
            in.get(left);
            if (out.flip().hasRemaining()) {
                say("\"type\":\"" + type + "\",\"text\":" + quote(out.toString()));
            }
        }
    }

    // say sends one line.
    private static void say(String fields) {
        var raw = ("{" + fields + "}\n").getBytes(StandardCharsets.UTF_8);
        try {
            synchronized (lines) {
                lines.write(raw);
            }
        } catch (IOException e) {
            Runtime.getRuntime().halt(1); // the interpreter is gone
        }
    }

    private static String quote(String s) {
        var out = new StringBuilder("\"");
        for (int i = 0; i < s.length(); i++) {
            char c = s.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || Character.isSurrogate(c)) {
                out.append(String.format(Locale.ROOT, "\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }

    // run runs a request: its number, the code, how many variables the sandbox has, these, the cell's.
    private static void run(String[] request) {
        var words = new String[request.length];
        for (int i = 1; i < words.length; i++) {
            words[i] = new String(Base64.getDecoder().decode(request[i]), StandardCharsets.UTF_8);
        }
        int own = 3 + 2 * Integer.parseInt(words[2]);
        adopt(pairs(words, 3, own));
        var env = pairs(words, own, words.length);
        var before = new HashMap<String, String>();
        env.forEach((name, value) -> before.put(name, System.setProperty(name, value)));
        say("\"type\":\"count\",\"count\":" + ++count);
        interrupted = false;
        running = true;
        try {
            cell(words[1]);
        } catch (Throwable e) {
            fail(e.getClass().getName(), e.getMessage(), e.getStackTrace());
        }
        running = false;
        before.forEach(Cells::restore);
        System.out.flush();
        System.err.flush();
        say("\"type\":\"done\",\"id\":" + request[0]);
    }

    private static Map<String, String> pairs(String[] words, int from, int to) {
        var out = new HashMap<String, String>();
        for (int i = from; i + 1 < to; i += 2) {
            if (!words[i].isEmpty()) { // a property has a name
                out.put(words[i], words[i + 1]);
            }
        }
        return out;
    }

    // adopt makes the sandbox's variables system properties: a program in Java can't change its
    // environment.
    private static void adopt(Map<String, String> now) {
        for (var name : base.keySet()) {
            if (!now.containsKey(name)) {
                System.clearProperty(name);
            }
        }
        now.forEach((name, value) -> {
            if (!value.equals(base.get(name))) {
                System.setProperty(name, value);
            }
        });
        base = now;
    }

    private static void restore(String name, String value) {
        if (value == null) {
            System.clearProperty(name);
        } else {
            System.setProperty(name, value);
        }
    }

    // cell runs the code of a cell, statement by statement, until one fails.
    private static void cell(String code) {
        SnippetEvent last = null;
        boolean shown = true;
        for (String rest = code; !rest.isBlank();) {
            var info = shell.sourceCodeAnalysis().analyzeCompletion(rest);
            var source = info.source();
            if (source == null || source.isBlank()) {
                if (info.completeness() == SourceCodeAnalysis.Completeness.EMPTY) {
                    break; // comments
                }
                source = rest; // it is not whole, or not Java: JShell says why
            }
            shown = !source.stripTrailing().endsWith(";");
            rest = source == rest ? "" : info.remaining();
            for (var event : shell.eval(source)) {
                if (!succeeded(event)) {
                    return;
                }
                if (event.causeSnippet() == null) {
                    last = event;
                }
            }
            if (interrupted) {
                fail("KeyboardInterrupt", "the cell was interrupted", new StackTraceElement[0]);
                return;
            }
        }
        if (last != null && shown && last.snippet().kind() != Snippet.Kind.STATEMENT) {
            show(last);
        }
    }

    // show makes the value of an expression without a semicolon the cell's result. JShell has texts
    // only, and puts a string in quotes.
    private static void show(SnippetEvent event) {
        var snippet = event.snippet();
        var value = event.value();
        String type = null;
        if (snippet.subKind() == Snippet.SubKind.TEMP_VAR_EXPRESSION_SUBKIND) {
            type = ((VarSnippet) snippet).typeName();
        } else if (snippet.kind() == Snippet.Kind.EXPRESSION) {
            type = ((ExpressionSnippet) snippet).typeName();
        }
        if (value == null || type == null || type.equals("void")) {
            return;
        }
        boolean text = type.equals("String") || type.equals("java.lang.String");
        if (text && value.length() > 1 && value.startsWith("\"")) {
            value = value.substring(1, value.length() - 1);
        }
        say("\"type\":\"result\",\"main\":true,\"data\":{\"text/plain\":" + quote(value) + "}");
    }

    // succeeded reports whether a statement did what it says, and sends the reason if not.
    private static boolean succeeded(SnippetEvent event) {
        if (event.causeSnippet() == null && event.status() == Snippet.Status.REJECTED) {
            var why = shell.diagnostics(event.snippet()).filter(d -> d.isError())
                .map(d -> d.getMessage(null)).collect(Collectors.joining("\n"));
            var source = event.snippet().source().strip();
            fail("CompilationException", why.isEmpty() ? "not Java: " + source : why,
                new StackTraceElement[0]);
            return false;
        }
        JShellException e = event.exception();
        if (e instanceof EvalException) {
            fail(((EvalException) e).getExceptionClassName(), e.getMessage(), e.getStackTrace());
        } else if (e instanceof UnresolvedReferenceException) {
            DeclarationSnippet asked = ((UnresolvedReferenceException) e).getSnippet();
            fail("UnresolvedReferenceException", "it needs " + shell.unresolvedDependencies(asked)
                .collect(Collectors.joining(", ")), e.getStackTrace());
        } else if (e != null) {
            fail(e.getClass().getName(), e.getMessage(), e.getStackTrace());
        }
        return e == null;
    }

    private static void fail(String name, String message, StackTraceElement[] at) {
        if (interrupted) {
            name = "KeyboardInterrupt";
            message = "the cell was interrupted";
        }
        var trace = new StringBuilder(name).append(message == null ? "" : ": " + message);
        for (var frame : at) {
            var type = frame.getClassName();
            if (type.startsWith("jdk.") || type.startsWith("Cells")) {
                break; // lines of this runner are not the user's
            }
            trace.append("\n\tat ").append(frame);
        }
        say("\"type\":\"error\",\"name\":" + quote(name) + ",\"value\":"
            + quote(message == null ? "" : message) + ",\"traceback\":" + quote(trace.toString()));
    }

    private static void interrupt() {
        if (running) {
            interrupted = true;
            shell.stop();
        }
    }
}
