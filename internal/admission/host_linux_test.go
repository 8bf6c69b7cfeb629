package admission

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTasks reads the kernel's numbers of this machine, and of made-up machines.
func TestTasks(t *testing.T) {
	if left, total, bound := tasks("/proc"); left <= 0 || total <= left || bound == "" {
		t.Errorf("here %d of %d are left (%s)", left, total, bound)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "sys/kernel"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("loadavg", "0.00 0.01 0.05 2/1200 4711\n")
	write("sys/kernel/pid_max", "4194304\n")
	write("sys/kernel/threads-max", "5000\n")
	if left, total, bound := tasks(dir); left != 3800 || total != 5000 || bound != "kernel.threads-max" {
		t.Errorf("%d of %d are left (%s)", left, total, bound)
	}
	write("sys/kernel/pid_max", "1300\n")
	if left, total, bound := tasks(dir); left != 100 || total != 1300 || bound != "kernel.pid_max" {
		t.Errorf("%d of %d are left (%s)", left, total, bound)
	}
	if left, total, bound := tasks(filepath.Join(dir, "none")); left != 0 || total != 0 || bound != "" {
		t.Errorf("from nothing: %d of %d (%s)", left, total, bound)
	}
}
