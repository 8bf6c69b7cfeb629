package postgrestest

import (
	"bytes"
	"os"
	"strconv"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// Replicated is the configuration of a server that may have standbys.
const Replicated = "wal_level = replica\nmax_wal_senders = 4"

// Standby starts a server that follows this one, which was started with [Replicated]. From then on,
// this one acknowledges a transaction when the standby has it on its disk. Stop and removal are as
// with [Start].
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "carrel-pg-")
	if err != nil {
		t.Fatal(err)
	}
	by := &Server{Password: s.Password, bin: s.bin, lib: s.lib, cred: s.cred, dir: dir}
	t.Cleanup(func() {
		by.Stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if by.cred != nil {
		if err := os.Chown(dir, int(by.cred.Uid), int(by.cred.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	copying := s.command("pg_basebackup", "-D", by.data(), "-R", "-X", "stream", "--checkpoint=fast", "--no-sync",
		"-h", s.dir, "-p", strconv.Itoa(port), "-U", superuser)
	copying.Env = append(copying.Env, "PGPASSWORD="+s.Password)
	if out, err := copying.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v: %s", err, bytes.TrimSpace(out))
	}
	if err := by.Configure("", "unix_socket_directories = '"+dir+"'"); err != nil {
		t.Fatal(err)
	}
	by.Run(t)
	if err := s.Configure("synchronous_standby_names = '*'"); err != nil {
		t.Fatal(err)
	}
	s.Reload(t)
	testenv.Eventually(t, "the standby is synchronous", func() bool {
		return s.Exec(t, "postgres", "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1"
	})
	return by
}

// Promote makes a standby the primary.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	if s.Exec(t, "postgres", "SELECT pg_promote(true, 60)") != "t" {
		t.Fatal("the standby was not promoted within a minute")
	}
}
