// Command fleet measures what a front adds: creations and commands through it, and the same at the
// node itself, one after the other in one run. It starts a database, a front and nodes as processes.
//
//	CARREL_POSTGRES=bin/postgres go run ./bench/fleet -nodes 8 -n 200 -many 2000
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
)

func main() {
	nodes := flag.Int("nodes", 8, "nodes")
	n := flag.Int("n", 200, "creations and commands, each way")
	many := flag.Int("many", 2000, "simulated sandboxes that are created at once, 16 at a time")
	bin := flag.String("carrel", "bin/carrel", "the program")
	flag.Parse()
	if err := run(context.Background(), *bin, *nodes, *n, *many); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin string, nodes, n, many int) error {
	f, err := start(ctx, bin, nodes)
	defer f.stop()
	if err != nil {
		return err
	}
	// The front and one node take turns, so that both have the same machine.
	var create, direct []time.Duration
	for range n {
		for _, way := range []struct {
			svc  carrel.Service
			into *[]time.Duration
		}{{f.front, &create}, {f.nodes[0], &direct}} {
			began := time.Now()
			sb, err := way.svc.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim, Timeout: time.Hour})
			if err != nil {
				return err
			}
			*way.into = append(*way.into, time.Since(began))
			if err := way.svc.Kill(ctx, sb.ID); err != nil {
				return err
			}
		}
	}
	report("create", create, direct)
	if err := f.exec(ctx, n); err != nil {
		return err
	}
	return f.burst(ctx, many)
}

// report prints two medians and their difference.
func report(what string, front, node []time.Duration) {
	a, b := median(front), median(node)
	fmt.Printf("%-8s front %6.2f ms   node %6.2f ms   more %+.2f ms   (n = %d)\n", what, ms(a), ms(b), ms(a-b), len(front))
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func median(list []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// exec measures requests to a sandbox's guest, through the front's proxy and at its node's gateway.
// Each asks for the state of a file, which is the least that the guest does for an SDK.
func (f *fleet) exec(ctx context.Context, n int) error {
	sb, err := f.front.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim, Timeout: time.Hour})
	if err != nil {
		return err
	}
	at := ""
	for i, node := range f.nodes {
		if _, err := node.Get(ctx, sb.ID); err == nil {
			at = f.urls[i]
		}
	}
	if at == "" {
		return errors.New("no node has the sandbox")
	}
	ask := func(base string) (time.Duration, error) {
		body, _ := json.Marshal(map[string]string{"path": "/tmp"})
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/filesystem.Filesystem/Stat", bytes.NewReader(body))
		if err != nil {
			return 0, err
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("E2b-Sandbox-Id", string(sb.ID))
		r.Header.Set("X-Access-Token", sb.AccessToken)
		began := time.Now()
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", resp.Status, text)
		}
		return time.Since(began), err
	}
	before, err := f.count(ctx)
	if err != nil {
		return err
	}
	var front, node []time.Duration
	for range 5 * n {
		a, err := ask(f.url)
		if err != nil {
			return err
		}
		b, err := ask(at)
		if err != nil {
			return err
		}
		front, node = append(front, a), append(node, b)
	}
	report("request", front, node)
	after, err := f.count(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("costs    for each request: %.3f ms of the front's processor\n", 1000*after.less(before).cpu/float64(len(front)))
	return nil
}

// burst creates many sandboxes, 16 at a time.
func (f *fleet) burst(ctx context.Context, many int) error {
	before, err := f.count(ctx)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	turns := make(chan struct{}, 16)
	began := time.Now()
	for range many {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			if _, err := f.front.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim, Timeout: time.Hour}); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	select { // the database tells its counts a second late
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
	}
	after, err := f.count(ctx)
	if err != nil {
		return err
	}
	list, err := f.front.(*client.Client).Nodes().Nodes(ctx)
	if err != nil {
		return err
	}
	var each []string
	for _, n := range list {
		each = append(each, fmt.Sprint(n.Running))
	}
	fmt.Printf("burst    %d created in %.1f s: %.0f/s, %d failed; by node %s\n", many-len(failed), took.Seconds(),
		float64(many-len(failed))/took.Seconds(), len(failed), strings.Join(each, " "))
	did := after.less(before)
	fmt.Printf("costs    for each creation: %.2f rows written, %.0f bytes of the database's log, %.2f ms of the front's processor\n",
		float64(did.rows)/float64(many), float64(did.wal)/float64(many), 1000*did.cpu/float64(many))
	return errors.Join(failed...)
}

// keyOf reads a key's file when it is there.
func keyOf(ctx context.Context, file string) (string, error) {
	for {
		raw, err := os.ReadFile(file)
		if err == nil && len(raw) > 0 {
			return strings.TrimSpace(string(raw)), nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%s: %w", filepath.Base(file), errors.Join(err, ctx.Err()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}
