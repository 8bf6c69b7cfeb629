package filler

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/image/archive"
)

// Plan says what an image lacks and where it comes from. It holds no credentials.
type Plan struct {
	Image    string // its name in the registry
	Platform string
	Project  string // for whom it is pulled
	Operator bool   // whether with the operator's credentials
	Private  bool   // with credentials of the caller, which nobody keeps
	Layers   []v1.Hash
	archive.Late
}

// planHead is the text at the beginning of a plan's file. Records of pieces follow.
type planHead struct {
	Version         int
	Image, Platform string
	Project         string
	Operator        bool
	Private         bool
	Layers          []v1.Hash
	Size            int64
	First           []byte
	Pieces          int
}

// record is a piece in the file.
type record struct {
	Layer             uint32
	Size, Packed      uint32
	Place, Offset, At int64
	Digest            [32]byte
}

const maxPlanHead = 1 << 20

// Write writes the plan durably.
func (p *Plan) Write(path string) error {
	head, err := json.Marshal(planHead{1, p.Image, p.Platform, p.Project, p.Operator, p.Private,
		p.Layers, p.Size, p.First, len(p.Pieces)})
	if err != nil {
		return err
	}
	if len(head) > maxPlanHead {
		return fmt.Errorf("a plan with %d layers is too large", len(p.Layers))
	}
	b := bytes.NewBuffer(make([]byte, 0, len(head)+1+len(p.Pieces)*68))
	b.Write(append(head, '\n'))
	for _, piece := range p.Pieces {
		c := piece.Chunk
		if err := binary.Write(b, binary.LittleEndian, record{uint32(piece.Layer), uint32(c.Size),
			uint32(c.Packed), piece.Place, c.Offset, c.At, c.Digest}); err != nil {
			return err
		}
	}
	return atomicfile.Write(path, b.Bytes(), 0o600)
}

// ReadPlan reads a plan and checks that it fits itself.
func ReadPlan(path string) (*Plan, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, maxPlanHead+2)
	line, err := r.ReadSlice('\n')
	var h planHead
	if err == nil {
		err = json.Unmarshal(line, &h)
	}
	if err == nil && (h.Version != 1 || len(h.First) == 0 || int64(len(h.First)) > h.Size ||
		h.Pieces < 0) {
		err = errors.New("it is of another version, or damaged")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p := &Plan{Image: h.Image, Platform: h.Platform, Project: h.Project, Operator: h.Operator,
		Private: h.Private, Layers: h.Layers, Late: archive.Late{Size: h.Size, First: h.First}}
	for range h.Pieces {
		var rec record
		if err := binary.Read(r, binary.LittleEndian, &rec); err != nil {
			return nil, fmt.Errorf("%s: %w", path, errors.Join(err, io.ErrUnexpectedEOF))
		}
		piece := archive.LatePiece{Layer: int(rec.Layer), Place: rec.Place}
		piece.Chunk.Offset, piece.Chunk.At, piece.Chunk.Digest = rec.Offset, rec.At, rec.Digest
		piece.Chunk.Size, piece.Chunk.Packed = int64(rec.Size), int64(rec.Packed)
		if piece.Layer >= len(p.Layers) || piece.Place < int64(len(p.First)) ||
			piece.Place > p.Size-piece.Chunk.Size {
			return nil, fmt.Errorf("%s: a piece lies outside of the image", path)
		}
		p.Pieces = append(p.Pieces, piece)
	}
	return p, nil
}
