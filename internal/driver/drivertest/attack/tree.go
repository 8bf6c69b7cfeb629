package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tree fills a directory with one file of each kind that a snapshot has to keep. Argument: DIR. The
// suite's script for the simulated shell makes the same files.
func tree(args []string) {
	dir := args[0]
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		if err != nil {
			report("tree", "refused", "%v", err)
			os.Exit(1)
		}
	}
	write := func(name, text string, mode os.FileMode) {
		must(os.WriteFile(at(name), []byte(text), 0o600))
		must(os.Chmod(at(name), mode))
	}
	must(os.MkdirAll(at("deep/er/est"), 0o755))
	must(os.MkdirAll(at("empty-dir"), 0o755))
	must(os.MkdirAll(at("private"), 0o755))
	write("deep/er/est/file", "deep\n", 0o644)
	write("empty", "", 0o644)
	write("read-only", "no writing\n", 0o444)
	write("no-mode", "none\n", 0)
	write("setuid", "suid\n", 0o755|os.ModeSetuid)
	write("owned", "by others\n", 0o640)
	if err := os.Chown(at("owned"), 12345, 23456); !errors.Is(err, unix.EINVAL) { // where there are no such ids
		must(err)
	}
	write("hard-1", "linked\n", 0o644)
	must(os.Link(at("hard-1"), at("deep/hard-2")))
	must(os.Link(at("hard-1"), at("deep/er/hard-3")))
	must(os.Symlink("deep/er/est/file", at("sym")))
	must(os.Symlink("/nowhere/at/all", at("dangling")))
	must(os.Symlink("..", at("up")))
	for _, name := range oddNames {
		write(name, name, 0o644)
	}
	f, err := os.Create(at("sparse"))
	must(err)
	_, err = f.WriteString("begin")
	must(err)
	_, err = f.WriteAt([]byte("middle"), 20<<20)
	must(err)
	must(f.Truncate(40 << 20))
	must(f.Close())
	big := make([]byte, 3<<20+123)
	for i := range big {
		big[i] = byte(i*7 + i>>11)
	}
	must(os.WriteFile(at("big"), big, 0o644))
	must(unix.Mkfifo(at("fifo"), 0o622))
	_ = unix.Setxattr(at("big"), "user.e2b.note", []byte("kept"), 0) // where there are attributes
	must(os.Chmod(at("private"), 0o700|os.ModeSticky))
	old := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	must(os.Chtimes(at("owned"), old, old))
	must(os.Chtimes(at("deep"), old, old))
	control("tree", "made")
}

// oddNames are names that programs often handle wrongly.
var oddNames = []string{"-rf", " space ", "new\nline", "ünï-✓", "back\\slash", "quote'\"", "*", "..dots", strings.Repeat("n", 255)}

// many makes COUNT small files in DIR.
func many(args []string) {
	var n int
	_, err := fmt.Sscan(args[1], &n)
	if err == nil {
		err = os.MkdirAll(args[0], 0o755)
	}
	for i := 0; i < n && err == nil; i++ {
		err = os.WriteFile(filepath.Join(args[0], fmt.Sprintf("f%05d", i)), []byte(fmt.Sprintf("number %d\n", i)), 0o644)
	}
	if err != nil {
		report("many", "refused", "%v", err)
		os.Exit(1)
	}
	control("many", "made %d", n)
}
