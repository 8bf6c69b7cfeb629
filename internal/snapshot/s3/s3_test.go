package s3_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/snapshot/blobtest"
	"github.com/carrel-dev/carrel/internal/snapshot/s3"
	"github.com/carrel-dev/carrel/internal/snapshot/s3/s3test"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func options(s *s3test.Server) s3.Options {
	return s3.Options{AccessKey: s.AccessKey, SecretKey: s.SecretKey, PartSize: 5 << 20}
}

func open(t *testing.T, url string, o s3.Options) *s3.Blobs {
	t.Helper()
	loc, err := s3.ParseLocation(url)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s3.Open(t.Context(), loc, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConformance(t *testing.T) {
	server := s3test.Start(t)
	for name, prefix := range map[string]string{"prefix": "carrel/snapshots", "whole bucket": ""} {
		t.Run(name, func(t *testing.T) {
			if prefix == "" && testing.Short() {
				return // the long run has both
			}
			blobtest.Run(t, func(t *testing.T) snapshot.Blobs {
				return open(t, server.URL(server.Bucket(t), prefix), options(server))
			})
		})
	}
}
