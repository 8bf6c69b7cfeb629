package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
)

// fleet is a database, a front and nodes, each a process.
type fleet struct {
	dir   string
	procs []*exec.Cmd
	front carrel.Service
	state string // the database's address

	frontPID int
	url      string
	nodes    []carrel.Service
	urls     []string
}

// stop ends all processes, the last first.
func (f *fleet) stop() {
	if f == nil {
		return
	}
	for i := len(f.procs) - 1; i >= 0; i-- {
		_ = f.procs[i].Process.Signal(syscall.SIGINT) // PostgreSQL's fast shutdown
		_ = f.procs[i].Wait()
	}
	_ = os.RemoveAll(f.dir)
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// launch starts a process that ends with this one.
func (f *fleet) launch(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGINT
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	f.procs = append(f.procs, cmd)
	return nil
}

// start starts a fleet and waits until all nodes are ready.
func start(ctx context.Context, bin string, nodes int) (_ *fleet, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	f := &fleet{}
	if f.dir, err = os.MkdirTemp("", "carrel-fleet-"); err != nil {
		return f, err
	}
	if err := os.Chmod(f.dir, 0o755); err != nil { // the database's user goes through it
		return f, err
	}
	state, err := f.database(ctx)
	if err != nil {
		return f, err
	}
	token, key := filepath.Join(f.dir, "token"), filepath.Join(f.dir, "key")
	if err := os.WriteFile(token, []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		return f, err
	}
	listen, err1 := freePort()
	doors, err2 := freePort()
	if err := errors.Join(err1, err2); err != nil {
		return f, err
	}
	cmd := exec.Command(bin, "front", "--listen", listen, "--nodes-listen", doors, "--join-token-file", token,
		"--api-key-file", key, "--log-level", "error")
	cmd.Env = append(os.Environ(), "CARREL_STATE="+state)
	if err := f.launch(cmd); err != nil {
		return f, err
	}
	f.state, f.frontPID = state, cmd.Process.Pid
	f.url = "http://" + listen
	if f.front, err = connect(ctx, f.url, key); err != nil {
		return f, err
	}
	for i := range nodes {
		if err := f.addNode(ctx, bin, i, doors, token); err != nil {
			return f, err
		}
	}
	return f, f.ready(ctx, nodes)
}

func (f *fleet) addNode(ctx context.Context, bin string, i int, doors, token string) error {
	dir := filepath.Join(f.dir, fmt.Sprintf("node-%d", i))
	listen, err1 := freePort()
	door, err2 := freePort()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	err := f.launch(exec.Command(bin, "--data-dir", dir, "serve", "--cache-dir", dir+"-cache", "--listen", listen,
		"--join", "https://"+doors, "--join-token-file", token, "--node-name", fmt.Sprintf("node-%d", i), "--fleet-listen", door,
		"--snapshot-store", filepath.Join(f.dir, "store"), "--default-tier", "sim", "--warm", "0", "--blank-sentries", "0", "--log-level", "error"))
	if err != nil {
		return err
	}
	svc, err := connect(ctx, "http://"+listen, filepath.Join(dir, "api-key"))
	f.nodes, f.urls = append(f.nodes, svc), append(f.urls, "http://"+listen)
	return err
}

func connect(ctx context.Context, url, keyFile string) (carrel.Service, error) {
	key, err := keyOf(ctx, keyFile)
	if err != nil {
		return nil, err
	}
	return client.New(url, key)
}

// ready waits until the front says that all nodes are.
func (f *fleet) ready(ctx context.Context, nodes int) error {
	for {
		list, err := f.front.(*client.Client).Nodes().Nodes(ctx)
		good := 0
		for _, n := range list {
			if n.State == carrel.NodeReady && len(n.Tiers) > 0 {
				good++
			}
		}
		if good == nodes {
			return nil
		}
		select {
		case <-ctx.Done():
			text, _ := json.Marshal(list)
			return fmt.Errorf("%d of %d nodes are ready: %w %s", good, nodes, errors.Join(err, ctx.Err()), text)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// database makes a PostgreSQL cluster of its own and returns its address.
func (f *fleet) database(ctx context.Context) (string, error) {
	dir := os.Getenv("CARREL_POSTGRES")
	if dir == "" {
		return "", errors.New("CARREL_POSTGRES names no PostgreSQL (make bin/postgres/bin)")
	}
	bin, err := filepath.EvalSymlinks(filepath.Join(dir, "bin"))
	if err != nil {
		return "", err
	}
	data := filepath.Join(f.dir, "database")
	if err := os.Mkdir(data, 0o700); err != nil {
		return "", err
	}
	as := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 { // it refuses root
		u, err := user.Lookup("nobody")
		if err != nil {
			return "", err
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(data, uid, gid); err != nil {
			return "", err
		}
	}
	env := []string{"LC_ALL=C.UTF-8", "LD_LIBRARY_PATH=" + filepath.Join(dir, "lib")}
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", filepath.Join(data, "data"), "-U", "carrel", "-A", "trust", "--no-sync")
	initdb.SysProcAttr, initdb.Env, initdb.Dir = as, env, "/"
	if out, err := initdb.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w: %s", err, out)
	}
	server := exec.Command(filepath.Join(bin, "postgres"), "-D", filepath.Join(data, "data"), "-k", data, "-c", "listen_addresses=")
	server.SysProcAttr, server.Env, server.Dir = &syscall.SysProcAttr{Credential: as.Credential}, env, "/"
	if err := f.launch(server); err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(data, ".s.PGSQL.5432")); err == nil {
			return "postgres:///postgres?host=" + data + "&user=carrel", nil
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
