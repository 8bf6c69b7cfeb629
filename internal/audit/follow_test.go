package audit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// TestFollow reads the past decisions first, and then new ones as they come.
func TestFollow(t *testing.T) {
	for _, c := range []struct {
		name string
		opts carrel.AuditOptions
		want []int64
	}{
		{"the newest", carrel.AuditOptions{Limit: 2}, []int64{4, 5, 6, 7, 8, 9}},
		{"all since", carrel.AuditOptions{Since: noon.Add(2 * time.Second)}, []int64{2, 3, 4, 5, 6, 7, 8, 9}},
		{"all after", carrel.AuditOptions{After: 3}, []int64{4, 5, 6, 7, 8, 9}},
		{"one sandbox", carrel.AuditOptions{ID: boxA, Limit: 1}, []int64{5, 7, 9}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := open(t, t.TempDir(), Options{})
			for i := 1; i <= 5; i++ {
				l.Write(refusal(boxA, i))
			}
			c.opts.Follow = true
			var got []int64
			for d, err := range l.Audit(t.Context(), c.opts) {
				if err != nil {
					t.Fatal(err)
				}
				if got = append(got, d.Seq); len(got) == len(c.want) {
					break
				}
				if len(got) == 1 {
					for i := 6; i <= 9; i += 2 {
						l.Write(refusal(boxB, i))
						l.Write(refusal(boxA, i+1))
					}
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestFollowFromNow reads no past decision, and misses none after its start.
func TestFollowFromNow(t *testing.T) {
	l := open(t, t.TempDir(), Options{})
	for i := 1; i <= 5; i++ {
		l.Write(refusal(boxA, i))
	}
	var wg sync.WaitGroup
	done := make(chan struct{})
	defer wg.Wait()
	defer close(done)
	wg.Go(func() {
		for i := 6; ; i++ {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				l.Write(refusal(boxA, i))
			}
		}
	})
	last, n := int64(0), 0
	for d, err := range l.Audit(t.Context(), carrel.AuditOptions{Follow: true}) {
		if err != nil || d.Seq <= 5 || last != 0 && d.Seq != last+1 {
			t.Fatalf("%d came after %d: %v", d.Seq, last, err)
		}
		last = d.Seq
		if n++; n == 20 {
			break
		}
	}
}

func TestFollowEnds(t *testing.T) {
	l := open(t, t.TempDir(), Options{})
	l.Write(refusal(boxA, 1))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for d, err := range l.Audit(ctx, carrel.AuditOptions{Follow: true, Limit: 1}) {
		if err != nil || d.Seq != 1 {
			t.Fatal(d, err)
		}
		cancel()
	}
	for d, err := range l.Audit(t.Context(), carrel.AuditOptions{Follow: true, Limit: 1, Until: time.Now().Add(50 * time.Millisecond)}) {
		if err != nil || d.Seq != 1 {
			t.Fatal(d, err)
		}
	}
	for d, err := range l.Audit(t.Context(), carrel.AuditOptions{Follow: true, Limit: 1, Until: noon.Add(time.Hour)}) {
		if err != nil || d.Seq != 1 {
			t.Fatal(d, err)
		}
	}
	n := 0
	for _, err := range l.Audit(t.Context(), carrel.AuditOptions{Follow: true, Limit: 1}) {
		if n++; n == 1 {
			go l.Close()
		} else if carrel.KindOf(err) != carrel.Unavailable {
			t.Errorf("the log is closed: %v", err)
		}
	}
}

// TestHammer has many writers, while files are rotated, packed and removed. Followers of all speeds
// must see each decision once, in order.
func TestHammer(t *testing.T) {
	l := open(t, t.TempDir(), Options{MaxFile: 8 << 10, MaxFiles: 10000, bytes: 1 << 40, Rate: 1 << 30, SyncEvery: time.Millisecond})
	const writers, each, followers = 4, 600, 6
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				d := refusal(carrel.ID(fmt.Sprintf("i%020d", w)), i)
				d.Allowed = i%2 == 0
				l.Write(d)
				if i%50 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	for f := range followers {
		wg.Go(func() {
			opts := carrel.AuditOptions{Follow: true, Since: noon}
			want := int64(writers * each)
			if f%2 == 1 {
				opts.ID = carrel.ID(fmt.Sprintf("i%020d", f%writers))
				want = each
			}
			last, n := int64(0), int64(0)
			for d, err := range l.Audit(ctx, opts) {
				if err != nil {
					t.Error(err)
					return
				}
				if d.Seq <= last || opts.ID == "" && d.Seq != last+1 {
					t.Errorf("follower %d: %d came after %d", f, d.Seq, last)
					return
				}
				last = d.Seq
				if n++; n == want {
					return
				}
				if f >= 4 && rand.IntN(200) == 0 {
					time.Sleep(2 * time.Millisecond) // a slow one
				}
			}
			t.Errorf("follower %d saw %d of %d", f, n, want)
		})
	}
	for range 2 {
		wg.Go(func() { // and questions meanwhile
			for range 10 {
				last := int64(0)
				for d, err := range l.Audit(ctx, carrel.AuditOptions{Rule: "default", Limit: 100}) {
					if err != nil || last != 0 && d.Seq != last+1 {
						t.Errorf("%d came after %d: %v", d.Seq, last, err)
						return
					}
					last = d.Seq
				}
			}
		})
	}
	wg.Wait()
}

// TestSlowFollower shows that a follower misses files that are removed before it reads them, and
// that it holds up nobody.
func TestSlowFollower(t *testing.T) {
	l := open(t, t.TempDir(), Options{MaxFile: 4 << 10, MaxFiles: 3, bytes: 1 << 40, Rate: 1 << 30})
	l.Write(refusal(boxA, 1))
	last, gaps := int64(0), 0
	for d, err := range l.Audit(t.Context(), carrel.AuditOptions{Follow: true, Limit: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Seq <= last {
			t.Fatalf("%d came after %d", d.Seq, last)
		}
		if d.Seq > last+1 {
			gaps++
		}
		if last == 0 { // wait here until everything is written
			for i := 2; i <= 500; i++ {
				l.Write(refusal(boxA, i))
				if i%10 == 0 {
					if err := l.Sync(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if last = d.Seq; last == 500 {
			break
		}
	}
	if gaps != 1 {
		t.Errorf("%d gaps", gaps)
	}
}
