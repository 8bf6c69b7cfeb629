//go:build ignore

// Gen writes zones.gz from the time zones of the Go distribution. For each zone it has the name,
// the length of the data in four bytes, and the data in the format of RFC 8536.
package main

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

func main() {
	r, err := zip.OpenReader(filepath.Join(runtime.GOROOT(), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		log.Fatal(err)
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range r.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		in, err := f.Open()
		if err != nil {
			log.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			log.Fatal(err)
		}
		w.Write([]byte(f.Name + "\x00"))
		binary.Write(w, binary.BigEndian, uint32(len(data)))
		w.Write(data)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("zones.gz", out.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}
