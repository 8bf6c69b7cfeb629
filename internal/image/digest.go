package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// These parts of a file are hashed by Digest. A small file is hashed as a whole. Of a big one both
// ends are hashed, and blocks spread over the rest. The ends of an image hold its superblock and
// its tables of inodes, with every file's size, owner and time of change.
const (
	digestEnds    = 2 << 20
	digestSamples = 256
	digestBlock   = 4 << 10
)

// Digest names an image by its size and a hash of a few megabytes of it. It tells builds of a
// template apart. It does not detect an image that somebody forged.
func Digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return "", err
	}
	size, h := fi.Size(), sha256.New()
	parts := [][2]int64{{0, size}}
	if size > 2*digestEnds+digestSamples*digestBlock {
		step := (size - 2*digestEnds) / digestSamples
		parts = [][2]int64{{0, digestEnds}, {size - digestEnds, digestEnds}}
		for i := range int64(digestSamples) {
			parts = append(parts, [2]int64{digestEnds + i*step, digestBlock})
		}
	}
	for _, p := range parts {
		if _, err := io.Copy(h, io.NewSectionReader(f, p[0], p[1])); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x-%s", size, hex.EncodeToString(h.Sum(nil)[:16])), nil
}
