package gvisor

import (
	"encoding/binary"
	"errors"

	"google.golang.org/protobuf/proto"
	mfpb "gvisor.dev/gvisor/pkg/sentry/pgalloc/pgalloc_metadata_go_proto"
)

// Where a snapshot's pages are, as gVisor's "pages metadata" file says: one record
// for each file of memory, its length in eight bytes and then a protobuf. The pages
// follow each other in the pages file, in the records' order and within one in the
// order of the ranges that are committed.

// filePages says where the contents of files are in a snapshot with memory.
type filePages struct {
	meta        []byte // their record
	start, size uint64 // in the pages file
}

// lengthBytes precede a record.
const lengthBytes = 8

// findFilePages finds the record of the files among those of a snapshot with
// memory: the first is the memory's, the last is theirs, and some bytes between
// them are in a form that only gVisor's own decoder knows. The last one ends with
// the file, which finds it.
func findFilePages(meta []byte) (filePages, error) {
	main, n, err := pageRecord(meta)
	if err != nil {
		return filePages{}, err
	}
	for at := n; at+lengthBytes <= len(meta); at++ {
		if binary.LittleEndian.Uint64(meta[at:]) != uint64(len(meta)-at-lengthBytes) {
			continue
		}
		files, _, err := pageRecord(meta[at:])
		if err != nil {
			continue
		}
		return filePages{meta: meta[at:], start: committed(main), size: committed(files)}, nil
	}
	return filePages{}, errors.New("no pages of files")
}

// pageRecord decodes the first record and returns its length.
func pageRecord(b []byte) (*mfpb.MemoryFileMetadataProto, int, error) {
	if len(b) < lengthBytes {
		return nil, 0, errors.New("a record of pages is cut off")
	}
	n := binary.LittleEndian.Uint64(b)
	if n > uint64(len(b)-lengthBytes) {
		return nil, 0, errors.New("a record of pages is cut off")
	}
	var pb mfpb.MemoryFileMetadataProto
	if err := proto.Unmarshal(b[lengthBytes:lengthBytes+n], &pb); err != nil {
		return nil, 0, err
	}
	if pb.Version != 1 {
		return nil, 0, errors.New("a record of pages has another version")
	}
	return &pb, lengthBytes + int(n), nil
}

// committed is how many bytes of a file of memory are in the pages file.
func committed(pb *mfpb.MemoryFileMetadataProto) (n uint64) {
	for _, r := range pb.MemAcct {
		if r.KnownCommitted && r.End > r.Start {
			n += r.End - r.Start
		}
	}
	return n
}

// pageRange is a committed range of a file of memory.
type pageRange struct{ start, end, at uint64 }

// pageRanges lists the committed ranges, in order, with their place in the pages
// file.
func pageRanges(pb *mfpb.MemoryFileMetadataProto, at uint64) []pageRange {
	var out []pageRange
	for _, r := range pb.MemAcct {
		if r.KnownCommitted && r.End > r.Start {
			out = append(out, pageRange{r.Start, r.End, at})
			at += r.End - r.Start
		}
	}
	return out
}
