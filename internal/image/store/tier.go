package store

import (
	"context"
	"io"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
)

// maxInitFile bounds what is read of [boot.InitFile], in bytes.
const maxInitFile = 256

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
	text, err := io.ReadAll(io.LimitReader(f, maxInitFile))
	if err != nil || strings.TrimSpace(string(text)) == "" {
		return ""
	}
	return carrel.MicroVM
}
