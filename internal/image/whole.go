package image

import (
	"bytes"
	"os"
)

// firstBlock is the size of an image's first block.
const firstBlock = 4096

// IsWhole reports whether an image has all its contents. The file of an image that is still being
// filled has a first block of zeros, which gets its content last.
func IsWhole(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	b := make([]byte, firstBlock)
	n, err := f.ReadAt(b, 0)
	if n == 0 {
		return false, err
	}
	return !bytes.Equal(b[:n], make([]byte, n)), nil
}
