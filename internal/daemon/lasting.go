package daemon

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel/internal/assembly"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/driver/gvisor/sentrybin"
	"github.com/carrel-dev/carrel/internal/guest/guestbin"
	"github.com/carrel-dev/carrel/internal/reserve"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/snapshot/disk"
	"github.com/carrel-dev/carrel/internal/snapshot/remote"
	"github.com/carrel-dev/carrel/internal/snapshot/s3"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/sqlite"
)

// lasting opens the parts of the service that only a daemon has.
func lasting(cfg config.Config, held *reserve.Reserve, log *slog.Logger) *assembly.Lasting {
	return &assembly.Lasting{
		State: func(ctx context.Context, file string) (state.Store, error) {
			return openRecords(ctx, file, held, log)
		},
		Blobs: func(ctx context.Context, dir string) (snapshot.Blobs, bool, error) {
			return openBlobs(ctx, cfg, dir, log)
		},
		Sentry: sentrybin.Extract,
		VMInit: guestbin.ExtractInit,
	}
}

// openRecords opens the records, and says what had to be put back.
func openRecords(ctx context.Context, file string, held *reserve.Reserve,
	log *slog.Logger) (state.Store, error) {
	s, err := sqlite.Open(ctx, file)
	if err != nil {
		return nil, err
	}
	s.UseReserve(func() bool { return held.Short() && held.Give() })
	tellRepair(s.Repaired(), file, log)
	return s, nil
}

// tellRepair logs what had to be put back or corrected in the records.
func tellRepair(r sqlite.Repair, file string, log *slog.Logger) {
	const fsck = "carrel fsck lists what has no record"
	switch {
	case r.Rebuilt:
		log.Error("the records were lost, damaged or older than their second copy: "+
			"they were put back from it", "file", file, "damaged", r.Damaged, "changes", r.Changes,
			"lost", r.Lost, "hint", fsck)
	case r.Changes > 0:
		log.Error("the records had lost changes: they were put back from the second copy",
			"file", file, "changes", r.Changes, "lost", r.Lost)
	case r.Foreign != "":
		log.Error("the second copy of the records belonged to other records: it was moved away",
			"file", file, "to", r.Foreign, "hint", fsck)
	}
	if r.Indexes {
		log.Error("indexes of the records were damaged: they were made anew", "file", file)
	}
	if r.Records > 0 {
		log.Error("records were damaged: they were corrected from the second copy",
			"file", file, "records", r.Records, "which", r.Which, "kept", r.Kept)
	}
	if r.Dropped > 0 {
		log.Error("damaged records are not in the second copy either: they were taken out",
			"file", file, "records", r.Dropped, "which", r.Which, "kept", r.Kept, "hint", fsck)
	}
	if r.Doubtful > 0 {
		log.Warn("the second copy of the records is damaged, and these records could not be "+
			"compared with it", "file", file, "records", r.Doubtful, "which", r.Which,
			"hint", "if one of them looks wrong, restore it from a backup")
	}
}

// storeIdentity is the file, beside the snapshots, with the identity of the object store that holds
// their content.
const storeIdentity = "store-identity.json"

// openBlobs opens the storage of packs: in dir, or where the configuration says. shared says that
// other machines may use it too.
func openBlobs(ctx context.Context, cfg config.Config, dir string,
	log *slog.Logger) (_ snapshot.Blobs, shared bool, err error) {
	switch where := cfg.SnapshotStore; {
	case strings.HasPrefix(where, "s3://"):
		b, err := remote.Open(ctx, remote.Options{
			Connect: func(ctx context.Context) (snapshot.Blobs, error) { return openS3(ctx, where, cfg.S3) },
			Where:   where, File: filepath.Join(filepath.Dir(dir), storeIdentity), Log: log,
		})
		if err != nil {
			return nil, true, err
		}
		return b, true, nil
	case where != "":
		b, err := disk.Open(where)
		return b, true, err // a network filesystem, perhaps
	}
	b, err := disk.Open(dir)
	return b, false, err
}

// openS3 opens an object store.
func openS3(ctx context.Context, where string, cfg config.S3) (snapshot.Blobs, error) {
	loc, err := locateS3(where, cfg)
	if err != nil {
		return nil, err
	}
	return s3.Open(ctx, loc, s3.Options{AccessKey: cfg.AccessKeyID, SecretKey: string(cfg.SecretAccessKey),
		SessionToken: string(cfg.SessionToken), Proxy: http.ProxyFromEnvironment})
}

// locateS3 reads an object store's address. The environment gives the settings that are not in it.
// They come in through the configuration.
func locateS3(where string, cfg config.S3) (s3.Location, error) {
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
	return s3.ParseLocation(where)
}
