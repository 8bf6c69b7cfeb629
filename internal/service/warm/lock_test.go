package warm

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/pool"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harmless are the packages whose functions may run under shelf.mu. dataMethods are the methods of
// plain data.
var (
	harmless    = []string{"maps", "slices"}
	dataMethods = []string{"Before", "Add", "String", "Lock", "Unlock"}
	builtins    = []string{"append", "delete", "len", "min", "max"}
)

// TestShelfCallsNobody reads shelf.go. Under its lock it may call only its own methods, its
// Sizer's, and functions on plain data. It must start no goroutine and use no channel.
func TestShelfCallsNobody(t *testing.T) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "shelf.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			own[f.Name.Name] = true
		}
	}
	calls := 0
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name == "init" { // runs before the shelf is shared
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.SendStmt, *ast.SelectStmt:
				t.Errorf("%s: a goroutine or a channel under the lock", fset.Position(n.Pos()))
			case *ast.CallExpr:
				calls++
				if !isHarmless(n.Fun, own) {
					t.Errorf("%s: a call of somebody else under the lock", fset.Position(n.Pos()))
				}
			}
			return true
		})
	}
	if calls == 0 {
		t.Error("no call was looked at")
	}
}

// isHarmless reports whether a function may be called under the lock.
func isHarmless(fun ast.Expr, own map[string]bool) bool {
	switch fun := fun.(type) {
	case *ast.Ident:
		return slices.Contains(builtins, fun.Name)
	case *ast.SelectorExpr:
		switch x := fun.X.(type) {
		case *ast.Ident:
			if x.Name == "h" && own[fun.Sel.Name] || slices.Contains(harmless, x.Name) {
				return true
			}
		case *ast.SelectorExpr:
			if x.Sel.Name == "sizer" {
				return true
			}
		}
		return slices.Contains(dataMethods, fun.Sel.Name)
	}
	return false
}

// TestIsHarmlessCanFail shows that calls of foreign code are found.
func TestIsHarmlessCanFail(t *testing.T) {
	for _, call := range []string{"p.host.Make()", "one.stop()", "time.Now()", "fn()", "h.log.Warn()", "func() {}()"} {
		e, err := parser.ParseExpr(call)
		if err != nil {
			t.Fatal(err)
		}
		if isHarmless(e.(*ast.CallExpr).Fun, map[string]bool{"take": true}) {
			t.Errorf("%s passes", call)
		}
	}
}

// fakeHost makes numbers instead of sandboxes. Each of its methods takes the pool's lock before it
// does anything.
type fakeHost struct {
	t      *testing.T
	pool   *Pool[int]
	ctx    context.Context
	wg     sync.WaitGroup
	refuse bool // End fails

	mu    sync.Mutex
	last  int
	calls map[string]int
	over  map[int]chan struct{} // closed when a sandbox ends by itself
}

// called notes a call, and fails the test when the caller holds the pool's lock.
func (f *fakeHost) called(name string) {
	free := make(chan struct{})
	go func() {
		f.pool.shelf.mu.Lock()
		defer f.pool.shelf.mu.Unlock()
		close(free)
	}()
	select {
	case <-free:
	case <-time.After(10 * time.Second):
		panic(name + " is called under the pool's lock")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[name]++
}

func (f *fakeHost) Spawn(fn func(context.Context)) bool {
	f.called("Spawn")
	if f.ctx.Err() != nil {
		return false
	}
	f.wg.Go(func() { fn(f.ctx) })
	return true
}

func (f *fakeHost) Room() (int, bool) { f.called("Room"); return 0, false }

func (f *fakeHost) Key(_ context.Context, k Kind) (pool.Key, Kind, error) {
	f.called("Key")
	if k.Template == "gone" {
		return "", Kind{}, &carrel.Error{Kind: carrel.NotFound}
	}
	return pool.Key(k.Template), k, nil
}

func (f *fakeHost) Make(_ context.Context, key pool.Key, _ Kind) (*One[int], error) {
	f.called("Make")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	f.over[f.last] = make(chan struct{})
	return &One[int]{Sandbox: f.last, ID: carrel.NewID(), Key: key, LimitMB: 64, CommittedMB: 64}, nil
}

func (f *fakeHost) Refresh(context.Context, int) error { f.called("Refresh"); return nil }

func (f *fakeHost) Wait(ctx context.Context, n int) error {
	f.called("Wait")
	f.mu.Lock()
	over := f.over[n]
	f.mu.Unlock()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fakeHost) End(context.Context, int) error {
	f.called("End")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse {
		return errors.New("it does not go")
	}
	return nil
}

// eventually waits until the pool's status satisfies ok.
func (f *fakeHost) eventually(what string, ok func(carrel.PoolStatus) bool) {
	f.t.Helper()
	testenv.EventuallyNil(f.t, what, func() error {
		if st := f.pool.Status(); !ok(st) {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
}

// TestLockIsFreeInCalls has a pool do all its work, with a host and a memory reader that take its
// lock. The pool must call none of them under the lock.
func TestLockIsFreeInCalls(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := &fakeHost{t: t, ctx: ctx, calls: map[string]int{}, over: map[int]chan struct{}{}}
	var memory sync.Mutex
	now := pool.Memory{Total: 100, Available: 90}
	f.pool = New(Options{Cap: 4, Every: time.Millisecond, Fresh: time.Millisecond,
		Floors: []Floor{{Template: "a", Count: 2}, {Template: "gone", Count: 1}},
		Memory: func() pool.Memory {
			f.called("Memory")
			memory.Lock()
			defer memory.Unlock()
			return now
		}}, f, slog.New(slog.DiscardHandler))
	f.wg.Go(func() { f.pool.Keep(ctx) })
	f.eventually("floors", func(st carrel.PoolStatus) bool { return st.Ready == 2 })

	one := f.pool.Take("a", Kind{Template: "a"})
	if one == nil {
		t.Fatal("none was ready")
	}
	f.pool.Return(one)
	if f.pool.Take("b", Kind{Template: "b"}) != nil {
		t.Error("one of a kind that nobody made")
	}
	testenv.Eventually(t, "what was asked for is ready", func() bool {
		one = f.pool.Take("b", Kind{Template: "b"})
		return one != nil
	})
	f.mu.Lock()
	close(f.over[one.Sandbox])
	f.mu.Unlock()
	testenv.Eventually(t, "the end of one that was taken out is known", func() bool { return f.pool.IsDead(one) })
	f.pool.Discard(one)
	if !f.pool.GiveWay(1) {
		t.Error("nothing gave way")
	}
	f.pool.Recheck()
	memory.Lock()
	now.Available = 1
	memory.Unlock()
	f.eventually("no memory", func(st carrel.PoolStatus) bool { return st.Ready == 0 && st.Memory == "shrink" })

	cancel()
	f.wg.Wait()
	if one, err := f.Make(ctx, "a", Kind{}); err == nil {
		f.mu.Lock()
		f.refuse = true
		f.mu.Unlock()
		if f.pool.Discard(one) {
			t.Error("one that does not go is said to be gone")
		}
		f.mu.Lock()
		f.refuse = false
		f.mu.Unlock()
	}
	f.pool.Drain()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range strings.Fields("Spawn Room Key Make Refresh Wait End Memory") {
		if f.calls[name] == 0 {
			t.Errorf("%s was never called", name)
		}
	}
}
