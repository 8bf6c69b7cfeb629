// Package postgrestest runs a real PostgreSQL for tests: a cluster of the test's own, in a directory
// of its own, on a socket that only this test reaches. It can be killed and started again.
//
// CARREL_POSTGRES is the directory that internal/tools/postgres.sh made ("make postgres" sets it).
// Without it, tests are skipped. They fail instead if CARREL_REQUIRE holds postgres.
package postgrestest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// owner is the user that the server runs as when the tests run as root. PostgreSQL refuses root.
const owner = "nobody"

const (
	superuser = "carrel"
	port      = 5432 // only a part of the socket's name
)

// Server is a cluster. It is running when [Start] returns.
type Server struct {
	Password string // of the superuser

	bin, lib  string
	dir       string // holds the data, and the socket
	cred      *syscall.Credential
	cmd       *exec.Cmd // nil while it is stopped
	ended     chan struct{}
	log       *bytes.Buffer
	databases atomic.Int64
}

// Start makes a cluster and starts its server. config holds lines of postgresql.conf. The server is
// stopped and its files are removed when the test ends.
func Start(t testing.TB, config ...string) *Server {
	t.Helper()
	s, err := locate()
	testenv.Need(t, "postgres", err)
	// Not t.TempDir: its parent is closed to other users, and its name may be too long for a socket.
	if s.dir, err = os.MkdirTemp("", "carrel-pg-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Stop()
		if err := os.RemoveAll(s.dir); err != nil {
			t.Error(err)
		}
	})
	if err := s.make(config); err != nil {
		t.Fatal(err)
	}
	s.Run(t)
	return s
}

// locate finds the programs and the user that may run them.
func locate() (*Server, error) {
	dir := os.Getenv("CARREL_POSTGRES")
	if dir == "" {
		return nil, errors.New("CARREL_POSTGRES, the directory of PostgreSQL's programs (make postgres)")
	}
	bin, err := filepath.EvalSymlinks(filepath.Join(dir, "bin"))
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, Password: rand.Text()}
	if lib, err := filepath.EvalSymlinks(filepath.Join(dir, "lib")); err == nil {
		s.lib = lib
	}
	if os.Geteuid() == 0 {
		u, err := user.Lookup(owner)
		if err != nil {
			return nil, err
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(errUID, errGID); err != nil {
			return nil, err
		}
		s.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	if out, err := s.command("initdb", "--version").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb of %s, for the user that runs it: %w: %s", bin, err, out)
	}
	return s, nil
}

// command is a command of PostgreSQL's, as the server's user. It gets nothing of this process's
// environment.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = "/"
	cmd.Env = []string{"LC_ALL=C.UTF-8", "TZ=UTC", "PATH=" + s.bin + ":/usr/bin:/bin"}
	if s.lib != "" {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+s.lib)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred, Setpgid: true,
		Pdeathsig: syscall.SIGQUIT} // for killed tests: the server ends at once
	return cmd
}

// make makes the cluster's files.
func (s *Server) make(config []string) error {
	word := filepath.Join(s.dir, "password")
	if err := os.WriteFile(word, []byte(s.Password), 0o600); err != nil {
		return err
	}
	if s.cred != nil {
		for _, name := range []string{s.dir, word} {
			if err := os.Chown(name, int(s.cred.Uid), int(s.cred.Gid)); err != nil {
				return err
			}
		}
	}
	out, err := s.command("initdb", "--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C.UTF-8",
		"--wal-segsize=1",
		"--auth=scram-sha-256", "--username="+superuser, "--pwfile="+word, "-D", s.data()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	// Nothing listens on the network. Few connections and little memory are enough.
	lines := append([]string{"", "listen_addresses = ''", "unix_socket_directories = '" + s.dir + "'",
		"shared_buffers = 16MB", "max_connections = 40", "wal_level = minimal", "max_wal_senders = 0",
		"autovacuum_naptime = 5s", "jit = off"}, config...)
	return s.Configure(lines...)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Configure adds lines to postgresql.conf. They are in force after the next start or [Server.Reload].
func (s *Server) Configure(lines ...string) error {
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(lines, "\n") + "\n")
	return errors.Join(err, f.Close())
}

// Reload has the running server read its configuration again.
func (s *Server) Reload(t testing.TB) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// Run starts the server if it is stopped, and returns when it answers.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	if s.cmd != nil {
		return
	}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	testenv.EventuallyNil(t, "the server answers", func() error {
		select {
		case <-s.ended:
			t.Fatalf("the server ended: %s", s.log)
		default:
		}
		return s.answers()
	})
}

// start starts the process.
func (s *Server) start() error {
	s.log = new(bytes.Buffer)
	cmd := s.command("postgres", "-D", s.data())
	cmd.Stdout, cmd.Stderr = s.log, s.log
	// A backend that outlives a killed server holds the pipe of the log open.
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd, s.ended = cmd, make(chan struct{})
	go func(ended chan struct{}) {
		_ = cmd.Wait() // a killed server has an error, of course
		close(ended)
	}(s.ended)
	return nil
}

// answers reports whether the server takes connections: to a message that asks for encryption, it
// says yes or no when it is ready for it, and a starting one that it is starting. So the psql of the
// cluster asks.
func (s *Server) answers() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", s.Socket())
	if err != nil {
		return err
	}
	if err := c.Close(); err != nil {
		return err
	}
	out, err := s.command("pg_isready", "-q", "-h", s.dir, "-p", strconv.Itoa(port)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("pg_isready: %w: %s", err, out)
	}
	return nil
}

// Stop stops the server as an operator would, and waits for its end.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGCONT)
	_ = s.cmd.Process.Signal(syscall.SIGINT) // an error means that it has ended already
	select {
	case <-s.ended:
	case <-time.After(30 * time.Second):
		s.Kill()
	}
	s.cmd = nil
}

// Kill ends all processes of the server at once, with SIGKILL, as a crash of the machine would. What
// only the kernel's cache holds is still there after it.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	s.signalAll(syscall.SIGSTOP) // so that none of them sees another's death
	s.signalAll(syscall.SIGKILL)
	<-s.ended
	s.cmd = nil
}

// Freeze stops all processes of the server until [Server.Thaw], as a machine does that hangs.
func (s *Server) Freeze() { s.signalAll(syscall.SIGSTOP) }

// Thaw ends a [Server.Freeze].
func (s *Server) Thaw() { s.signalAll(syscall.SIGCONT) }

// signalAll sends a signal to the server and to its children, which it starts and waits for.
func (s *Server) signalAll(sig syscall.Signal) {
	pid := s.cmd.Process.Pid
	if sig == syscall.SIGSTOP {
		_ = syscall.Kill(pid, sig) // first: it starts no more children
	}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // gone: no children
	for _, child := range strings.Fields(string(text)) {
		if n, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(n, sig) // it may have ended
		}
	}
	_ = syscall.Kill(pid, sig)
}

// Socket is the path of the server's socket.
func (s *Server) Socket() string { return filepath.Join(s.dir, ".s.PGSQL."+strconv.Itoa(port)) }

// URL is the address of a database for the superuser. It holds the password.
func (s *Server) URL(database string) string { return s.URLAt(s.dir, database) }

// URLAt is [Server.URL] by way of another directory that holds a socket, as a proxy's.
func (s *Server) URLAt(dir, database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(superuser, s.Password), Path: "/" + database,
		RawQuery: url.Values{"host": {dir}, "port": {strconv.Itoa(port)}}.Encode()}
	return u.String()
}

// Database makes an empty database and returns its name.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprint("test", s.databases.Add(1))
	s.Exec(t, "postgres", "CREATE DATABASE "+name)
	return name
}

// Exec runs SQL in a database with psql, as the superuser, and returns what it prints.
func (s *Server) Exec(t testing.TB, database, sql string) string {
	t.Helper()
	cmd := s.command("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", s.dir, "-p", strconv.Itoa(port),
		"-U", superuser, "-d", database)
	cmd.Env = append(cmd.Env, "PGPASSWORD="+s.Password)
	cmd.Stdin = strings.NewReader(sql)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}
