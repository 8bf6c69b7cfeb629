package vfs_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// BenchmarkClone copies a filesystem of a thousand files.
func BenchmarkClone(b *testing.B) {
	f := manyFiles(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		_ = f.Clone(vfs.Options{})
	}
}

// BenchmarkSmallFile makes, writes and reads a file in a new copy.
func BenchmarkSmallFile(b *testing.B) {
	f := manyFiles(b, 1000)
	data := []byte("hello\n")
	b.ReportAllocs()
	for b.Loop() {
		v := f.Clone(vfs.Options{}).Root()
		if err := v.WriteFile("/tmp/f", data, 0o644); err != nil {
			b.Fatal(err)
		}
		if _, err := v.ReadFile("/tmp/f"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOverwrite writes and reads the same file again and again.
func BenchmarkOverwrite(b *testing.B) {
	v := manyFiles(b, 10).Root()
	data := []byte("hello\n")
	b.ReportAllocs()
	for b.Loop() {
		if err := v.WriteFile("/tmp/f", data, 0o644); err != nil {
			b.Fatal(err)
		}
		if _, err := v.ReadFile("/tmp/f"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStat(b *testing.B) {
	v := manyFiles(b, 1000).Root()
	for b.Loop() {
		if _, err := v.Stat("/many/f500"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReadDir lists ten thousand files.
func BenchmarkReadDir(b *testing.B) {
	v := manyFiles(b, 10_000).Root()
	b.ReportAllocs()
	for b.Loop() {
		if l, err := v.ReadDir("/many"); err != nil || len(l) != 10_000 {
			b.Fatal(len(l), err)
		}
	}
}

// BenchmarkMakeInLarge makes files in a shared directory of a hundred thousand files.
func BenchmarkMakeInLarge(b *testing.B) {
	f := manyFiles(b, 100_000)
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Clone(vfs.Options{}).Root().WriteFile("/many/new", nil, 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSequentialWrite(b *testing.B) {
	v := vfs.New(vfs.Options{}).Root()
	chunk := make([]byte, 64<<10)
	const size = 64 << 20
	b.SetBytes(size)
	for b.Loop() {
		h, err := v.OpenFile("/f", vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o644)
		if err != nil {
			b.Fatal(err)
		}
		for range size / len(chunk) {
			if _, err := h.Write(chunk); err != nil {
				b.Fatal(err)
			}
		}
		_ = h.Close()
	}
}

func BenchmarkSequentialRead(b *testing.B) {
	v := vfs.New(vfs.Options{}).Root()
	const size = 64 << 20
	must(b, v.WriteFile("/f", make([]byte, size), 0o644))
	chunk := make([]byte, 64<<10)
	b.SetBytes(size)
	for b.Loop() {
		h, err := v.Open("/f")
		if err != nil {
			b.Fatal(err)
		}
		for {
			if _, err := h.Read(chunk); err == io.EOF {
				break
			}
		}
		_ = h.Close()
	}
}

func manyFiles(t testing.TB, n int) *vfs.FS {
	f := vfs.New(vfs.Options{})
	v := f.Root()
	must(t, v.Mkdir("/many", 0o755))
	must(t, v.Mkdir("/tmp", 0o777))
	for i := range n {
		must(t, v.WriteFile(fmt.Sprintf("/many/f%d", i), []byte("x"), 0o644))
	}
	return f
}
