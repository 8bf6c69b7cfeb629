package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// TestDirectory follows claims of one sandbox.
func TestDirectory(t *testing.T) {
	d, id := newDirectory(), carrel.NewID()
	counts := func(want ...int) {
		t.Helper()
		for i, n := range []string{"a", "b"} {
			if all, own := d.crowd(n, "p"); all != want[i] || own != want[i] {
				t.Errorf("%s has %d, of the project %d; want %d", n, all, own, want[i])
			}
		}
	}
	must := func(err error, want bool) {
		t.Helper()
		if c := (claimed{}); want != (err == nil) || err != nil && !errors.As(err, &c) {
			t.Errorf("the claim: %v", err)
		}
	}
	must(d.claim(id, "a", "p", false), true)
	must(d.claim(id, "a", "p", false), true)
	counts(1, 0)
	must(d.claim(id, "b", "p", false), false)
	if e, _ := d.find(id); e.rival != "b" {
		t.Errorf("no dispute: %+v", e)
	}
	must(d.claim(id, "a", "p", false), false) // still disputed
	d.listed("b", time.Now(), nil)            // b does not have it after all
	must(d.claim(id, "a", "p", false), true)
	must(d.claim(id, "b", "p", false), false)
	d.listed("a", time.Now().Add(time.Second), nil) // a does not have it after all
	if e, _ := d.find(id); e.node != "b" || e.rival != "" {
		t.Errorf("it is not b's: %+v", e)
	}
	counts(0, 1)
	d.end(id, "a") // a has no say
	counts(0, 1)
	d.end(id, "b")
	d.end(id, "b")
	counts(0, 0)
	must(d.claim(id, "a", "p", true), true) // it moved, or b was wrong
	must(d.claim(id, "b", "p", false), false)
	if e, _ := d.find(id); e.rival != "" || e.node != "a" {
		t.Errorf("a made it: %+v", e)
	}
	counts(1, 0)
	d.remove("a")
	if _, ok := d.find(id); ok || d.Len() != 0 {
		t.Error("a left, and its sandbox is there")
	}
	for range maxEnded + 10 {
		id := carrel.NewID()
		must(d.claim(id, "a", "p", false), true)
		d.end(id, "a")
	}
	if len(d.entries) > maxEnded || len(d.ended) > maxEnded {
		t.Errorf("%d entries for sandboxes that ended", len(d.entries))
	}
}

// TestKeys shows that a key stays with its node, and that the memory of keys is bounded.
func TestKeys(t *testing.T) {
	k, key := newKeys(), sentKey{"p", "k"}
	if at, fresh := k.enter(key, "a"); at != "a" || !fresh {
		t.Error(at, fresh)
	}
	if at, fresh := k.enter(key, "b"); at != "a" || fresh {
		t.Error(at, fresh)
	}
	k.drop(key, "b") // not b's
	if k.node(key) != "a" {
		t.Error("the key is gone")
	}
	k.drop(key, "a")
	if at, fresh := k.enter(key, "b"); at != "b" || !fresh {
		t.Error(at, fresh)
	}
	for i := range maxKeys + 10 {
		k.enter(sentKey{"p", fmt.Sprint(i)}, "a")
	}
	if len(k.nodes) > maxKeys || k.order.Len() != len(k.nodes) {
		t.Errorf("%d keys, %d in order", len(k.nodes), k.order.Len())
	}
}

// TestByHash shows that keys spread over the nodes, and that those of other nodes stay when one
// goes.
func TestByHash(t *testing.T) {
	var members []*member
	var able []int
	for i := range 5 {
		members, able = append(members, &member{name: fmt.Sprintf("node-%d", i)}), append(able, i)
	}
	count := make([]int, 5)
	for i := range 5000 {
		key := fmt.Sprintf("key-%d", i)
		at := byHash(members, able, "p", key)
		count[at]++
		if without := byHash(members, []int{0, 1, 2, 4}, "p", key); at != 3 && without != at {
			t.Fatalf("%s moved from %d to %d", key, at, without)
		}
	}
	for i, n := range count {
		if n < 800 || n > 1200 {
			t.Errorf("node %d has %d of 5000: %v", i, n, count)
		}
	}
}

// TestCheckNodes refuses lists that can't be.
func TestCheckNodes(t *testing.T) {
	good := Node{Name: "a", URL: "http://127.0.0.1:1", Key: "k"}
	if err := CheckNodes([]Node{good}); err != nil {
		t.Error(err)
	}
	for what, list := range map[string][]Node{
		"no name":     {{URL: "http://x", Key: "k"}},
		"a path":      {{Name: "../a", URL: "http://x", Key: "k"}},
		"long":        {{Name: strings.Repeat("a", 64), URL: "http://x", Key: "k"}},
		"no key":      {{Name: "a", URL: "http://x"}},
		"a name":      {good, {Name: "a", URL: "http://127.0.0.1:2", Key: "k"}},
		"one address": {good, {Name: "b", URL: "http://127.0.0.1:1/", Key: "k"}},
	} {
		if err := CheckNodes(list); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%s: %v", what, err)
		}
		if err := new(List).Set(list...); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%s is set: %v", what, err)
		}
	}
}

// owners is a store that knows one owner.
type owners struct {
	id   carrel.ID
	node string
	err  error
}

func (o owners) Owner(_ context.Context, id carrel.ID) (string, bool, error) {
	return o.node, id == o.id, o.err
}

// TestNoNodes asks an engine without nodes, with and without a store of owners.
func TestNoNodes(t *testing.T) {
	id := carrel.NewID()
	for _, o := range []Owners{nil, owners{id, "gone", nil}, owners{id, "", &carrel.Error{Kind: carrel.Unavailable}}} {
		e, err := New(Options{Nodes: &List{}, Owners: o, Dial: func(Node, string) (Remote, error) { return nil, nil }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Create(t.Context(), carrel.CreateOptions{}); carrel.KindOf(err) != carrel.Unavailable {
			t.Errorf("create: %v", err)
		}
		if _, err := e.Get(t.Context(), id); carrel.KindOf(err) != carrel.Unavailable {
			t.Errorf("get: %v", err)
		}
		if _, err := e.List(t.Context(), carrel.ListOptions{}); carrel.KindOf(err) != carrel.Unavailable {
			t.Errorf("list: %v", err)
		}
		if _, err := e.GetSnapshot(t.Context(), "x"); carrel.KindOf(err) != carrel.Unavailable {
			t.Errorf("snapshot: %v", err)
		}
		if _, err := e.ListTemplates(t.Context()); carrel.KindOf(err) != carrel.Unavailable {
			t.Errorf("templates: %v", err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestOwnerKnowsBest shows that an engine asks nobody for a sandbox that the store says is gone, although
// its directory still has it on a node that is away.
func TestOwnerKnowsBest(t *testing.T) {
	id := carrel.NewID()
	lost := &carrel.Error{Op: "find sandbox", Kind: carrel.NotFound, ID: id, Field: "node", Err: errors.New("lost")}
	list := &List{}
	if err := list.Set(Node{Name: "a", URL: "http://127.0.0.1:1", Key: "k"}); err != nil {
		t.Fatal(err)
	}
	dial := func(Node, string) (Remote, error) { return nil, &carrel.Error{Kind: carrel.Unavailable} }
	for _, err := range []error{lost, nil} {
		e, nerr := New(Options{Nodes: list, Owners: owners{carrel.NewID(), "", err}, Dial: dial})
		if nerr != nil {
			t.Fatal(nerr)
		}
		if cerr := e.dir.claim(id, "a", "p", true); cerr != nil {
			t.Fatal(cerr)
		}
		want := carrel.Unavailable // nobody knows it for certain
		if err != nil {
			want = carrel.NotFound
		}
		if _, gerr := e.Get(t.Context(), id); carrel.KindOf(gerr) != want || err != nil && !errors.Is(gerr, lost) {
			t.Errorf("the store says %v: %v, want %v", err, gerr, want)
		}
		if cerr := e.Close(); cerr != nil {
			t.Error(cerr)
		}
	}
}

// FuzzPosition gives Follow positions that it did not make.
func FuzzPosition(f *testing.F) {
	f.Add(position{Since: 5, Seqs: map[string]int64{"a": 3}}.text())
	f.Add("e30")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := readPosition("test", text)
		if err != nil {
			if carrel.KindOf(err) != carrel.Invalid {
				t.Errorf("%v", err)
			}
			return
		}
		again, err := readPosition("test", p.text())
		if err != nil || again.Since != p.Since || len(again.Seqs) != len(p.Seqs) {
			t.Errorf("%+v became %+v, %v", p, again, err)
		}
	})
}
