//go:build linux

package microvm

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// This file takes the kernel out of a bzImage, the form in which distributions ship it: a program
// that unpacks the kernel behind it. A machine that gets the kernel itself boots half a second of
// processor time earlier by emulation. The form of the header:
// https://docs.kernel.org/arch/x86/boot.html

// Offsets in a bzImage.
const (
	setupSectors  = 0x1f1 // one byte
	headerMagic   = 0x202 // "HdrS"
	payloadOffset = 0x248 // of the packed kernel, from the end of the setup
	payloadLength = 0x24c
	headerEnd     = 0x250
	sectorBytes   = 512
)

// lz4Legacy begins a stream of LZ4 in the form that the kernel's build makes: blocks of at most
// lz4Block bytes, each with its packed length before it. The form:
// https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md
const (
	lz4Legacy = 0x184c2102
	lz4Block  = 8 << 20
)

// zstdFrame begins a stream of Zstandard: https://www.rfc-editor.org/rfc/rfc8878.
const zstdFrame = 0xfd2fb528

var errDamaged = errors.New("the kernel's image is damaged")

// unpackKernel returns the kernel of a bzImage as an ELF file that a VMM can start (by PVH). Error:
// for an image in another form, which a VMM starts as it is.
func unpackKernel(image []byte) ([]byte, error) {
	if len(image) < headerEnd || string(image[headerMagic:headerMagic+4]) != "HdrS" {
		return nil, errors.New("no bzImage")
	}
	start := (int64(image[setupSectors])+1)*sectorBytes + int64(binary.LittleEndian.Uint32(image[payloadOffset:]))
	end := start + int64(binary.LittleEndian.Uint32(image[payloadLength:]))
	if start < 0 || end > int64(len(image)) || end-start < 8 {
		return nil, errDamaged
	}
	// The last four bytes are the unpacked size.
	payload := image[start : end-4]
	var data []byte
	var err error
	switch binary.LittleEndian.Uint32(payload) {
	case lz4Legacy:
		data, err = unpackLZ4(payload[4:], maxKernel)
	case zstdFrame:
		data, err = unpackZstd(payload, maxKernel)
	default:
		err = errors.New("the kernel is packed neither with LZ4 nor with Zstandard")
	}
	if err != nil {
		return nil, err
	}
	return trimELF(data)
}

// unpackZstd unpacks a stream of Zstandard, to at most most bytes.
func unpackZstd(in []byte, most uint64) ([]byte, error) {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(most), zstd.WithDecoderMaxWindow(most))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	out, err := r.DecodeAll(in, nil)
	if err != nil {
		return nil, errDamaged
	}
	return out, nil
}

// unpackLZ4 unpacks a stream of blocks, to at most most bytes.
func unpackLZ4(in []byte, most int) ([]byte, error) {
	var out []byte
	for len(in) >= 4 {
		n := int64(binary.LittleEndian.Uint32(in))
		if in = in[4:]; n > int64(len(in)) {
			return nil, errDamaged
		}
		block, err := appendLZ4(out, in[:n], min(most, len(out)+lz4Block))
		if err != nil {
			return nil, err
		}
		out, in = block, in[n:]
	}
	return out, nil
}

// appendLZ4 unpacks one block behind out, up to a length of most. A block refers to itself only.
// The form: https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md
func appendLZ4(out, in []byte, most int) ([]byte, error) {
	begin := len(out)
	for len(in) > 0 {
		token := in[0]
		literals, rest, ok := lz4Length(int(token>>4), in[1:])
		if !ok || literals > len(rest) || len(out)+literals > most {
			return nil, errDamaged
		}
		out, in = append(out, rest[:literals]...), rest[literals:]
		if len(in) == 0 {
			return out, nil // the last sequence has literals only
		}
		if len(in) < 2 {
			return nil, errDamaged
		}
		back := int(binary.LittleEndian.Uint16(in))
		length, rest, ok := lz4Length(int(token&15), in[2:])
		if length += 4; !ok || back == 0 || back > len(out)-begin || len(out)+length > most {
			return nil, errDamaged
		}
		in = rest
		from := len(out) - back
		for length > 0 { // the source may reach into what is written here
			n := min(length, len(out)-from)
			out = append(out, out[from:from+n]...)
			from, length = from+n, length-n
		}
	}
	return out, nil
}

// lz4Length reads a length that may go on in more bytes.
func lz4Length(n int, in []byte) (length int, rest []byte, ok bool) {
	if n < 15 {
		return n, in, true
	}
	for i, b := range in {
		if n += int(b); b < 255 {
			return n, in[i+1:], true
		}
	}
	return 0, nil, false
}

// trimELF cuts off what follows the last section of an ELF file: the kernel's own loader would need
// it to move the kernel, and a VMM does not.
func trimELF(data []byte) ([]byte, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("the unpacked kernel: %w", err)
	}
	if f.Machine != elf.EM_X86_64 || f.Class != elf.ELFCLASS64 {
		return nil, fmt.Errorf("the unpacked kernel is for %v", f.Machine)
	}
	// The table of sections lies behind all sections.
	end := binary.LittleEndian.Uint64(data[0x28:]) + uint64(binary.LittleEndian.Uint16(data[0x3a:]))*uint64(binary.LittleEndian.Uint16(data[0x3c:]))
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOBITS {
			end = max(end, s.Offset+s.FileSize)
		}
	}
	for _, p := range f.Progs {
		end = max(end, p.Off+p.Filesz)
	}
	if end > uint64(len(data)) {
		return nil, errDamaged
	}
	return data[:end], nil
}
