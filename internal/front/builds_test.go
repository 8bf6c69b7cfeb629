package front

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/engine"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// liar is a node that says what it wants of each build it is asked for.
type liar struct{ says atomic.Pointer[carrel.Build] }

// ServeHTTP implements http.Handler.
func (l *liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b := l.says.Load()
	if path.Base(path.Dir(r.URL.Path)) != "builds" {
		_, _ = w.Write([]byte("{}"))
		return
	}
	if b == nil {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"code":404,"kind":"not found","message":"no such build"}`))
		return
	}
	_ = json.NewEncoder(w).Encode(b)
}

// lyingFleet is a front's builds over nodes that lie.
func lyingFleet(t *testing.T, names ...string) (*builds, []*liar) {
	t.Helper()
	n := newNodes(nil, nil, slog.New(slog.DiscardHandler))
	var liars []*liar
	for _, name := range names {
		l := &liar{}
		ts := httptest.NewServer(l)
		t.Cleanup(ts.Close)
		f := fleet.Node{Name: name, URL: ts.URL, Key: "k", Public: []byte(name), Left: time.Hour}
		n.byName[name] = f
		n.list = append(n.list, engine.Node{Name: name, URL: f.URL, Key: f.Key})
		for _, project := range []string{"", "mine"} {
			svc, err := client.New(ts.URL, "k")
			if err != nil {
				t.Fatal(err)
			}
			n.dialled[[4]string{name, f.URL, f.Key, project}] = svc.(*client.Client)
		}
		liars = append(liars, l)
	}
	e, err := engine.New(engine.Options{Nodes: n, Dial: func(at engine.Node, _ string) (engine.Remote, error) { return n.client(at.Name, "") }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	n.engine = e
	testenv.Eventually(t, "the nodes are there", func() bool {
		ready, _ := n.ready()
		return len(ready) == len(names)
	})
	return newBuilds(n, newTemplates(e, n, n.log), func(string, string) bool { return false }, n.log), liars
}

// TestLyingBuilds has nodes claim builds that are not theirs to claim.
func TestLyingBuilds(t *testing.T) {
	b, nodes := lyingFleet(t, "a", "b")
	ctx := carrel.WithCaller(t.Context(), carrel.Caller{Key: "k", Project: "mine", Role: carrel.RoleMember})
	const id = "24bb8880-7c8d-48ce-84f8-8b2f132c7bac"
	says := func(i int, build carrel.Build) { nodes[i].says.Store(&build) }
	want := func(what string, kind carrel.Kind) {
		t.Helper()
		got, err := b.GetBuild(ctx, id)
		if carrel.KindOf(err) != kind {
			t.Errorf("%s: %+v %v, want %q", what, got, err, kind)
		}
	}
	want("nobody has it", carrel.NotFound)
	says(0, carrel.Build{ID: id, Project: "theirs", State: carrel.BuildReady})
	want("another project's", carrel.NotFound)
	says(0, carrel.Build{ID: "34bb8880-7c8d-48ce-84f8-8b2f132c7bac", Project: "mine", State: carrel.BuildReady})
	want("another build", carrel.NotFound)
	says(0, carrel.Build{ID: id, Project: "mine", State: carrel.BuildBuilding})
	says(1, carrel.Build{ID: id, Project: "mine", State: carrel.BuildReady})
	want("two nodes claim it", carrel.Conflict)
	nodes[1].says.Store(nil)
	want("one has it", "")
	says(1, carrel.Build{ID: id, Project: "mine", State: carrel.BuildReady})
	want("another claims it later", "")
	says(0, carrel.Build{ID: id, Project: "theirs", State: carrel.BuildReady})
	want("its project changes", carrel.Unavailable)
	thief := carrel.WithCaller(context.WithoutCancel(ctx), carrel.Caller{Key: "t", Project: "theirs", Role: carrel.RoleMember})
	if _, err := b.GetBuild(thief, id); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("the project that the node names: %v", err)
	}
	for _, bad := range []string{"", "../" + id, id + "/..", "%2e%2e"} {
		if _, err := b.GetBuild(ctx, bad); carrel.KindOf(err) != carrel.NotFound {
			t.Errorf("build %q: %v", bad, err)
		}
	}
}
