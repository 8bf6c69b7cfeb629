package backup

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/audit"
	"github.com/carrel-dev/carrel/internal/ledger/trail"
	"github.com/carrel-dev/carrel/internal/request"
)

// TestGrowingTrail backs up a directory again and again while callers and sandboxes are busy. In no
// restored directory does anything seem to be removed, although files are begun, packed and swept
// meanwhile.
func TestGrowingTrail(t *testing.T) {
	dir, _, _ := house(t)
	kept, err := trail.Open(filepath.Join(dir, "trail"), trail.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	began := time.Now()
	log, err := audit.Open(filepath.Join(dir, "audit"), audit.Options{Anchor: kept,
		MaxFile: 64 << 10, MaxFiles: 1000, Rate: 1 << 20, SyncEvery: time.Millisecond,
		// A digest is due every few seconds: here that is every few milliseconds.
		Now: func() time.Time { return began.Add(1000 * time.Since(began)) }})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	defer func() { stop(); busy.Wait() }()
	id := carrel.NewID()
	busy.Go(func() {
		pace := time.NewTicker(100 * time.Microsecond)
		defer pace.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			<-pace.C
			log.Write(carrel.Decision{Time: time.Now(), ID: id, Allowed: true, Protocol: "tls",
				Name: fmt.Sprintf("%d.example.com", i), Port: 443, Rule: "default"})
			kept.Note(request.Operation{Kind: carrel.TrailChange, Op: "POST /x",
				Targets: []string{fmt.Sprint(i)}, Status: 201})
			if i%50 == 0 {
				_ = log.Sync(ctx)
			}
		}
	})
	egress := int64(0)
	for range 8 {
		var raw bytes.Buffer
		if _, err := Write(t.Context(), dir, &raw); err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(t.TempDir(), "restored")
		if _, err := Restore(t.Context(), &raw, to); err != nil {
			t.Fatal(err)
		}
		report, err := trail.Verify(t.Context(), filepath.Join(to, "trail"), trail.VerifyOptions{
			Lines: func(ctx context.Context, fn func(int64, []byte) error) error {
				return audit.Lines(ctx, filepath.Join(to, "audit"), 0, fn)
			}})
		if err != nil || !report.OK {
			t.Fatalf("%+v, %v", report, err)
		}
		egress = report.Egress
	}
	if egress == 0 {
		t.Error("no digest of decisions was compared")
	}
}
