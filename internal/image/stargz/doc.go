// Package stargz writes layers in the eStargz format: gzip-compressed tar archives whose files can
// be fetched one by one.
//
// # The format
//
// A layer is a row of gzip members. The content of each file begins a member of its own, and a
// large file has several, its chunks. The last entry of the archive is the table of contents (TOC),
// a JSON text that says where each chunk begins and what its digest is. The last 51 bytes, the
// footer, are an empty gzip member whose header says where the member with the TOC begins.
//
// For every other client a layer stays an ordinary gzip-compressed tar archive. The digest of the
// TOC is in an annotation of the layer's descriptor ([Annotation]), so the manifest vouches for the
// TOC, and the TOC vouches for each chunk.
//
// The format is described at
// https://github.com/containerd/stargz-snapshotter/blob/main/docs/estargz.md.
//
// # Reading
//
// A pull of a whole image reads a layer as the archive that it is, and leaves out the entries that
// [IsOurs] names. It believes nothing that a TOC says.
//
// A lazy pull reads the TOC ([Footer], [ReadTOC]) and, later, single chunks ([ReadChunk]). A TOC
// comes from a stranger even if the manifest vouches for it: its size, the number of its entries,
// and each offset and size are checked before anything is done with them.
package stargz

const (
	// Annotation is the annotation of a layer's descriptor that holds the digest of its TOC.
	Annotation = "containerd.io/snapshot/stargz/toc.digest"
	// SizeAnnotation holds the number of uncompressed bytes of the layer.
	SizeAnnotation = "io.containers.estargz.uncompressed-size"
	// TOCName is the name of the archive's entry with the TOC.
	TOCName = "stargz.index.json"

	// ChunkSize is the size of the chunks that a Writer makes.
	ChunkSize = 1 << 20
)

// IsOurs reports whether an entry of an archive with a TOC belongs to the format and not to the
// image: the TOC, and two marks that say which files a client should fetch first.
func IsOurs(name string) bool {
	switch name {
	case TOCName, ".prefetch.landmark", ".no.prefetch.landmark":
		return true
	}
	return false
}

// The types of entries.
const (
	typeDir     = "dir"
	typeReg     = "reg"
	typeSymlink = "symlink"
	typeLink    = "hardlink"
	typeFifo    = "fifo"
	typeChunk   = "chunk" // a further chunk of the file before it
)

// entry is one entry of the JSON text.
type entry struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Size        int64  `json:"size,omitempty"`
	ModTime     string `json:"modtime,omitempty"`
	LinkName    string `json:"linkName,omitempty"`
	Mode        int64  `json:"mode,omitempty"`
	UID         int    `json:"uid,omitempty"`
	GID         int    `json:"gid,omitempty"`
	Digest      string `json:"digest,omitempty"`
	Offset      int64  `json:"offset,omitempty"`
	ChunkOffset int64  `json:"chunkOffset,omitempty"`
	ChunkSize   int64  `json:"chunkSize,omitempty"`
	ChunkDigest string `json:"chunkDigest,omitempty"`
}
