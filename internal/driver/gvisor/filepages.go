package gvisor

import (
	"encoding/binary"
	"errors"

	"google.golang.org/protobuf/proto"
	mfpb "gvisor.dev/gvisor/pkg/sentry/pgalloc/pgalloc_metadata_go_proto"
)

// gVisor's "pages metadata" file says where a snapshot's pages are. It has one record for each
// memory file: its length in eight bytes, then a protobuf. The pages follow each other in the pages
// file, first by the order of the records, then by the order of the committed ranges within one
// record.

// filePages says where the contents of files are in a snapshot with memory.
type filePages struct {
	meta        []byte // the files' record
	start, size uint64 // in the pages file
}

// lengthBytes is the size of the length before a record.
const lengthBytes = 8

// findFilePages finds the record of the files' contents among the records of a snapshot with
// memory. The first record is the memory's, the last one is the files'. Between the two are bytes
// in a form that only gVisor's own decoder knows. The last record ends where the file ends: that is
// how it is found.
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

// committed is the number of bytes of a memory file that are in the pages file.
func committed(pb *mfpb.MemoryFileMetadataProto) (n uint64) {
	for _, r := range pb.MemAcct {
		if r.KnownCommitted && r.End > r.Start {
			n += r.End - r.Start
		}
	}
	return n
}

// pageRange is a committed range of a memory file.
type pageRange struct{ start, end, at uint64 }

// pageRanges lists the committed ranges, in order, with their offsets in the pages file.
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
