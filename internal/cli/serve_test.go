package cli

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/config"
)

// TestServeRefuses shows that invalid settings end the command before a daemon starts, and that the
// message names the flag.
func TestServeRefuses(t *testing.T) {
	const canary = "wJalrXUtnFEMI"
	t.Setenv("AWS_SECRET_ACCESS_KEY", canary)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	for line, want := range map[string]string{
		"--snapshot-quota big":            "--snapshot-quota",
		"--snapshot-quota -1":             "--snapshot-quota",
		"--snapshot-cache 1e9":            "--snapshot-cache",
		"--max-paused -1":                 "max-paused",
		"--snapshot-store gs://bucket":    "snapshot-store",
		"--snapshot-store /":              "snapshot-store",
		"--snapshot-store s3://bucket":    "AWS_ACCESS_KEY_ID",
		"--snapshot-store s3://no_bucket": "snapshot-store",
	} {
		got := (&fake{}).run(t, append([]string{"serve", "--data-dir", t.TempDir()}, strings.Fields(line)...)...)
		if got.code != 2 || !strings.Contains(got.err, want) {
			t.Errorf("%s: %v", line, got)
		}
	}
	got := (&fake{}).run(t, "serve", "--help")
	if strings.Contains(got.out+got.err, canary) || !strings.Contains(got.out, "8GiB") {
		t.Errorf("%v", got)
	}
}

// TestStoreDirectory shows that a relative directory begins where the command was started, as for
// all directories, and that a bucket is not taken for a directory.
func TestStoreDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for store, want := range map[string]string{"": "", "snaps": filepath.Join(here, "snaps"), "/srv/snaps": "/srv/snaps", "s3://bucket/p": "s3://bucket/p"} {
		cfg := config.Default()
		cfg.SnapshotStore = store
		cfg.S3 = config.S3{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret"}
		cfg.DataDir = t.TempDir()
		if err := finishConfig(&cfg); err != nil || cfg.SnapshotStore != want {
			t.Errorf("%q: %q, %v", store, cfg.SnapshotStore, err)
		}
	}
}

// TestAnnounceKeepsTheKey shows that a daemon that made its key names the key's file and does not
// print the key. stderr often goes to logs that others read.
func TestAnnounceKeepsTheKey(t *testing.T) {
	var errs strings.Builder
	a := &app{out: io.Discard, err: &errs, dataDir: "/srv/carrel"}
	a.announce("http://127.0.0.1:7070", "e2b_secretsecretsecret", true)
	if got := errs.String(); strings.Contains(got, "secret") || !strings.Contains(got, filepath.Join("/srv/carrel", config.KeyFile)) {
		t.Errorf("a new daemon says:\n%s", got)
	}
}
