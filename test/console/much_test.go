package console

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// printVariable makes this program one that prints so many bytes.
const printVariable = "CARREL_CONSOLE_PRINT"

// printMuch prints many lines and a last one, and stays.
func printMuch(most int64) {
	block := strings.Repeat("a line of a long log\n", 1<<15)
	for n := int64(0); n < most; n += int64(len(block)) {
		if _, err := io.WriteString(os.Stdout, block); err != nil {
			return
		}
	}
	fmt.Println("the end of the log")
	time.Sleep(time.Hour) // whoever reads the log looks at a process that runs
}

// manyFiles is how many files one directory of the sandbox has.
const manyFiles = 5_000

// litter makes a log of 5 GB and a directory of many files.
func litter() error {
	if err := os.WriteFile("/tmp/big.log", []byte(strings.Repeat("a line of the log\n", 1<<16)), 0o644); err != nil {
		return err
	}
	if err := os.Truncate("/tmp/big.log", 5<<30); err != nil {
		return err
	}
	if err := os.Mkdir("/tmp/many", 0o755); err != nil {
		return err
	}
	for i := range manyFiles {
		if err := os.WriteFile(fmt.Sprintf("/tmp/many/file-%05d", i), nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// large looks at a file of 5 GB and at a directory of many files: the page holds little of either.
func large(t *testing.T, b *browser, id string) {
	b.open("/sandboxes/" + id + "/files?dir=%2Ftmp")
	b.says("5.0 GiB")
	b.click("big.log")
	b.says("Only the first 1.0 MiB are shown")
	b.until("its text", `document.querySelector(".cm-content")?.innerText.includes("a line of the log")`)
	holdsLittle(t, b)
	b.open("/sandboxes/" + id + "/files?dir=%2Ftmp%2Fmany")
	b.says("file-00000")
	b.until("few rows in the document", `document.querySelectorAll(".grid .body [role=row]").length < 80`)
	b.fill("Find in this directory", "file-04999")
	b.until("one row", `document.querySelectorAll(".grid .body [role=row]").length === 1`)
}

// holdsLittle fails if the page holds much memory.
func holdsLittle(t *testing.T, b *browser) {
	t.Helper()
	var heap float64
	b.run(chromedp.Evaluate(`performance.memory.usedJSHeapSize`, &heap))
	if heap > 200<<20 {
		t.Errorf("the page holds %.0f MiB", heap/(1<<20))
	}
}

// flood looks at a process that prints 5 GB (256 MB with -short), and has a terminal show a file of 5 GB.
// The page stays small and usable.
func flood(t *testing.T, b *browser, d *daemontest.Daemon, id string) {
	size := int64(5 << 30)
	if testing.Short() {
		size = 256 << 20
	}
	cmd := d.CLI("exec", "--env", fmt.Sprintf("%s=%d", printVariable, size), id, "--", "/tmp/server")
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	b.open("/sandboxes/" + id + "/processes")
	// Two processes have this name. The last one is the one that prints.
	b.until("the process", `[...document.querySelectorAll("main button")].filter((e) => e.innerText.includes("/tmp/server")).length === 2`)
	b.until("its output", `(() => { const row = [...document.querySelectorAll("main tr")].find((r) => r.innerText.includes("/tmp/server") && /[MG]iB/.test(r.innerText)); if (!row) return false;
	if (!document.querySelector("pre.output")) row.querySelector("button").click();
	return document.querySelector("pre.output")?.innerText.includes("a line of a long log"); })()`)
	err := testenv.Within(t.Context(), 7*time.Minute, func() error { // 5 GB take some minutes
		var text string
		b.run(chromedp.Evaluate(`document.querySelector("main").innerText.slice(-2000)`, &text))
		if !strings.Contains(text, "the end of the log") {
			return errors.New(text)
		}
		return nil
	})
	if err != nil {
		t.Fatal("the log has no end: ", err)
	}
	t.Logf("%d MB were printed and followed in %v", size>>20, time.Since(began).Round(time.Millisecond))
	b.until("little output in the document", `document.querySelector("pre.output").textContent.length <= 300_000`)
	holdsLittle(t, b)
	b.open("/sandboxes/" + id + "/terminal")
	b.until("a shell", `/[$#] $/.test(document.querySelector(".xterm-rows")?.innerText.trimEnd() + " ")`)
	b.types("cat /tmp/big.log\r")
	b.until("its beginning", `document.querySelector(".xterm-rows")?.innerText.includes("a line of the log")`)
	at := time.Now()
	testenv.Eventually(t, "two seconds pass", func() bool { return time.Since(at) > 2*time.Second })
	b.run(chromedp.KeyEvent("c", chromedp.KeyModifiers(input.ModifierCtrl)))
	b.types("echo still $((40+2)) here\r")
	b.until("the shell answers", `document.querySelector(".xterm-rows")?.innerText.includes("still 42 here")`)
	holdsLittle(t, b)
}

// largeTree shows a directory of 500,000 files, which the page itself makes up as a guest would send it.
// Names try to end an entry where none ends. The page reads a part, and stays usable.
func largeTree(t *testing.T, v village, b *browser) {
	b.signIn(v.Key)
	b.onNew(`const real = fetch; window.__sent = 0; window.fetch = async (u, o) => {
		if (!String(u).endsWith("/filesystem.Filesystem/ListDir")) return real(u, o);
		let n = 0;
		const entry = (i) => JSON.stringify({name: "file-" + i + '"},{"name":"x', type: "FILE_TYPE_FILE", path: "/home/user/file-" + i, size: "7", permissions: "-rw-r--r--", owner: "user", modifiedTime: "2026-01-02T03:04:05Z"});
		return new Response(new ReadableStream({pull(c) {
			let s = n === 0 ? '{"entries":[' : ",";
			const end = Math.min(n + 2000, 500000);
			s += Array.from({length: end - n}, (_, i) => entry(n + i)).join(",");
			n = end; window.__sent = n;
			if (n === 500000) s += "]}";
			c.enqueue(new TextEncoder().encode(s));
			if (n === 500000) c.close();
		}}));
	};`)
	b.open("/sandboxes/" + v.worker + "/files")
	b.says("Only the first")
	b.says(`file-0"},{"name":"x`)
	var sent int
	b.run(chromedp.Evaluate(`window.__sent`, &sent))
	if sent < 50_000 || sent > 250_000 {
		t.Errorf("the page read %d entries", sent)
	}
	b.until("few rows in the document", `document.querySelectorAll(".grid .body [role=row]").length < 80`)
	b.fill("Find in this directory", "file-40404\"")
	b.until("one row", `document.querySelectorAll(".grid .body [role=row]").length === 1`)
	holdsLittle(t, b)
}
