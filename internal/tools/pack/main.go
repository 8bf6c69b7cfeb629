// Command pack compresses a program for embedding in another one. It writes OUT.zst, and the
// SHA-256 of the unpacked program as OUT.sum.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/klauspost/compress/zstd"
)

func main() {
	out := flag.String("o", "", "what to write, without the endings")
	flag.Parse()
	if *out == "" || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: pack -o OUT PROGRAM")
		os.Exit(2)
	}
	if err := run(*out, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func run(out, name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	hash := sha256.Sum256(data)
	return errors.Join(
		os.WriteFile(out+".sum", []byte(hex.EncodeToString(hash[:])+"\n"), 0o644),
		os.WriteFile(out+".zst", w.EncodeAll(data, nil), 0o644))
}
