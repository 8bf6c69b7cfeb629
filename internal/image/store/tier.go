package store

import (
	"context"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
)

// neededTier returns the only tier in which an image's sandboxes can start; "" is any. An image that
// wants another first process than the guest needs a machine of its own: in other tiers that process
// would not be the first one.
func neededTier(path string) carrel.Tier {
	files, err := openFiles(context.Background(), path)
	if err != nil {
		return "" // who starts it reports that
	}
	defer files.Close()
	f, err := files.Open(boot.InitFile)
	if err != nil {
		return ""
	}
	defer f.Close()
	if first, err := boot.ReadInit(f); err != nil || first == "" {
		return ""
	}
	return carrel.MicroVM
}
