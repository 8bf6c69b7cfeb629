package daemon

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/snapshot/disk"
	"github.com/carrel-dev/carrel/internal/snapshot/s3"
	snapshots "github.com/carrel-dev/carrel/internal/snapshot/store"
)

// openSnapshots opens the snapshot store: hot copies in the data directory, packs
// where the configuration says.
func (p *parts) openSnapshots(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	dir := filepath.Join(cfg.DataDir, "snapshots")
	blobs, shared, err := openBlobs(ctx, cfg, dir)
	if err != nil {
		return err
	}
	p.closing(blobs.Close)
	st, err := snapshots.Open(ctx, snapshots.Options{Dir: dir, Blobs: blobs, Shared: shared,
		Quota: cfg.SnapshotQuota, HotBytes: cfg.SnapshotCache, Log: log})
	if err != nil {
		return err
	}
	p.snapshots = st
	p.closing(st.Close)
	return nil
}

// How often the store is asked to remove what no snapshot uses. A shared one is
// read through for that, other machines' manifests included.
const (
	collectEvery       = 15 * time.Minute
	collectSharedEvery = 6 * time.Hour
)

// collect removes what no snapshot uses, now and then, until ctx ends.
func (p *parts) collect(ctx context.Context, cfg config.Config, log *slog.Logger) {
	every := collectEvery
	if cfg.SnapshotStore != "" {
		every = collectSharedEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		switch got, err := p.snapshots.GC(ctx); {
		case ctx.Err() != nil:
		case err != nil:
			log.Warn("collect unused snapshot content", "err", err, "hint", carrel.HintOf(err))
		case got.Freed > 0:
			log.Info("collected unused snapshot content", "packs", got.Packs, "bytes", got.Freed)
		}
	}
}

// openBlobs opens where packs lie. shared says that other machines may use it, too.
func openBlobs(ctx context.Context, cfg config.Config, dir string) (_ snapshot.Blobs, shared bool, err error) {
	switch where := cfg.SnapshotStore; {
	case strings.HasPrefix(where, "s3://"):
		b, err := openS3(ctx, where, cfg.S3)
		return b, true, err
	case where != "":
		b, err := disk.Open(where)
		return b, true, err // a network filesystem, perhaps
	}
	b, err := disk.Open(filepath.Join(dir, "blobs"))
	return b, false, err
}

// openS3 opens an object store. What its address does not say comes from the
// environment, by way of the configuration.
func openS3(ctx context.Context, where string, cfg config.S3) (snapshot.Blobs, error) {
	if u, err := url.Parse(where); err == nil {
		q := u.Query()
		for name, value := range map[string]string{"endpoint": cfg.Endpoint, "region": cfg.Region} {
			if value != "" && !q.Has(name) {
				q.Set(name, value)
			}
		}
		u.RawQuery = q.Encode()
		where = u.String()
	}
	loc, err := s3.ParseLocation(where)
	if err != nil {
		return nil, err
	}
	return s3.Open(ctx, loc, s3.Options{AccessKey: cfg.AccessKeyID, SecretKey: string(cfg.SecretAccessKey),
		SessionToken: string(cfg.SessionToken), Proxy: http.ProxyFromEnvironment})
}
