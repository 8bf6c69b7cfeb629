package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/wire/web"
)

const (
	// injectPart is the process in which our proxy is measured: alone, like a rival.
	injectPart = "carrel-bench-inject"
	injectHost = "api.example.com"
	// injectKey is the key that the server demands, injectFake the text that the client sends.
	injectKey, injectFake = "the-key-that-only-the-proxy-knows", "placeholder"
	injectClients         = 16
)

func injectParts() reexec.Parts { return reexec.Parts{injectPart: serveInject} }

// benchInject measures requests over open TLS connections in three ways: directly to a server;
// through the wire's proxy, which injects a key and strikes it out of the answer; and, if it is
// there, through mitmdump, which injects the key. The ways take turns, because machines change.
func benchInject(ctx context.Context, _ *daemon, o Options) ([]row, error) {
	dir, err := os.MkdirTemp("", "carrel-bench-inject")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ca, err := pki.LoadOrCreate(dir, "bench")
	if err != nil {
		return nil, err
	}
	server, err := injectServer(ca)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	origin := server.Listener.Addr().String()
	ways := []*injectWay{{name: "direct", address: origin, key: injectKey}}
	ours, err := startInject(ctx, dir, origin)
	if err != nil {
		return nil, err
	}
	defer ours.stop()
	ways = append(ways, ours)
	if program, err := mitmdump(ctx); err != nil {
		fmt.Fprintf(o.Log, "bench: a peer is left out: mitmproxy: %v\n", err)
	} else {
		rival, err := startMitmdump(ctx, program, dir, origin)
		if err != nil {
			return nil, err
		}
		defer rival.stop()
		ways = append(ways, rival)
	}
	span := 3 * time.Second
	if o.Quick {
		span = 500 * time.Millisecond
	}
	for range o.samples(5) {
		for _, w := range ways {
			n, err := w.measure(ctx, span)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			w.rates = append(w.rates, n)
		}
	}
	return injectRows(ways), nil
}

// mitmdump returns the rival's program: the one in the PATH, or the newest from the Python package
// index. The first time, it is installed into the user's cache.
func mitmdump(ctx context.Context) (string, error) {
	if program, err := exec.LookPath("mitmdump"); err == nil {
		return program, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "carrel-bench", "mitmproxy")
	program := filepath.Join(dir, "bin", "mitmdump")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	for _, line := range [][]string{{"python3", "-m", "venv", dir}, {filepath.Join(dir, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", "mitmproxy"}} {
		if out, err := exec.CommandContext(ctx, line[0], line[1:]...).CombinedOutput(); err != nil {
			_ = os.RemoveAll(dir)
			return "", fmt.Errorf("%s: %w: %.300s", strings.Join(line, " "), err, out)
		}
	}
	return program, nil
}

// injectRows compares the ways with the first one.
func injectRows(ways []*injectWay) []row {
	var rows []row
	direct := ways[0].rates
	for _, w := range ways {
		rows = append(rows, summarise("inject, "+w.name+": requests", "1/s", w.rates))
		if w.process == nil {
			continue
		}
		share := make([]float64, len(w.rates))
		for i := range share {
			share[i] = 100 * w.rates[i] / direct[i]
		}
		name := "inject, " + w.name + ": share of direct"
		if w.ours {
			rows = append(rows, more(name, "%", share, 50))
		} else {
			rows = append(rows, summarise(name, "%", share))
		}
		rows = append(rows, summarise("inject, "+w.name+": peak memory", "MiB", []float64{peakMemory(w.process.Process.Pid)}))
	}
	return rows
}

// injectServer answers requests that have the key with two kilobytes.
func injectServer(ca *pki.CA) (*httptest.Server, error) {
	leaf, err := ca.Leaf(injectHost)
	if err != nil {
		return nil, err
	}
	text := []byte(strings.Repeat(`{"answer": 42, "text": "words"}`+"\n", 64))
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+injectKey {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{*leaf}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	return s, nil
}

// injectWay is one way to the server.
type injectWay struct {
	name, address, key string
	ours               bool
	process            *exec.Cmd
	rates              []float64
}

func (w *injectWay) stop() {
	_ = w.process.Process.Kill()
	_ = w.process.Wait()
}

// measure counts requests for a while.
func (w *injectWay) measure(ctx context.Context, span time.Duration) (float64, error) {
	// The measurement does not depend on whose certificate it is.
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableCompression: true, MaxIdleConnsPerHost: injectClients,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", w.address)
		},
	}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: time.Minute}
	var count atomic.Int64
	var failed atomic.Value
	get := func() bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+injectHost+"/v1/models", nil)
		if err == nil {
			req.Header.Set("Authorization", "Bearer "+w.key)
			var res *http.Response
			if res, err = client.Do(req); err == nil {
				_, err = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				if err == nil && res.StatusCode != http.StatusOK {
					err = errors.New(res.Status)
				}
			}
		}
		if err != nil {
			failed.Store(err)
		}
		return err == nil
	}
	round := func(until time.Time) {
		var wg sync.WaitGroup
		for range injectClients {
			wg.Go(func() {
				for time.Now().Before(until) && get() {
					count.Add(1)
				}
			})
		}
		wg.Wait()
	}
	round(time.Now().Add(span / 4)) // connections are opened
	count.Store(0)
	start := time.Now()
	round(start.Add(span))
	if err, ok := failed.Load().(error); ok {
		return 0, err
	}
	return float64(count.Load()) / time.Since(start).Seconds(), nil
}

// startInject starts our proxy in its own process.
func startInject(ctx context.Context, dir, origin string) (*injectWay, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, dir, origin)
	cmd.Args[0] = injectPart
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w := &injectWay{name: "carrel", ours: true, key: injectFake, process: cmd}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		w.stop()
		return nil, err
	}
	w.address = strings.TrimSpace(line)
	return w, nil
}

// startMitmdump starts mitmproxy's program with the same task and without a log.
func startMitmdump(ctx context.Context, program, dir, origin string) (*injectWay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.CommandContext(ctx, program, "-q", "--listen-host", "127.0.0.1", "--listen-port", port,
		"--mode", "reverse:https://"+origin, "--set", "ssl_insecure=true", "--set", "confdir="+filepath.Join(dir, "mitmproxy"),
		"--modify-headers", "/~q/Authorization/Bearer "+injectKey)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w := &injectWay{name: "mitmproxy", address: address, key: injectFake, process: cmd}
	for range 300 {
		c, err := net.Dial("tcp", address)
		if err == nil {
			return w, c.Close()
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.stop()
	return nil, errors.New("mitmdump does not listen")
}

// peakMemory returns the most memory that a process had, in MiB.
func peakMemory(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 64)
			return n / 1024
		}
	}
	return 0
}

// serveInject is the process of our proxy. Its arguments are the authority's directory and the
// server's address.
func serveInject() {
	ca, err := pki.LoadOrCreate(os.Args[1], "bench")
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Addr())
	inject := &carrel.Injection{Host: injectHost, Bearer: "key"}
	proxy := web.New(web.Options{Authority: ca, Roots: ca.Pool(), Credentials: injectCredentials{}})
	for {
		c, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer c.Close()
			proxy.Serve(context.Background(), c, &web.Session{
				ID: "bench", Addr: netip.MustParseAddr("203.0.113.9"), Port: 443, Names: []string{injectHost}, TLS: true, ServerName: injectHost,
				Judge: func(f policy.Flow) policy.Verdict {
					return policy.Verdict{Allow: true, ByName: injectHost, Rule: "bench", Index: -1, Inject: inject}
				},
				Dial: func(ctx context.Context, _ policy.Flow, _ policy.Verdict) (net.Conn, error) {
					return (&net.Dialer{}).DialContext(ctx, "tcp", os.Args[2])
				},
			})
		}()
	}
}

// injectCredentials knows one key.
type injectCredentials struct{}

// Secret implements web.Credentials.
func (injectCredentials) Secret(context.Context, carrel.ID, string, string) (string, error) {
	return injectKey, nil
}

// Token implements web.Credentials.
func (injectCredentials) Token(context.Context, carrel.ID, string) (string, error) {
	return "", &carrel.Error{Kind: carrel.NotFound}
}
