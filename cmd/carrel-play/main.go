//go:build !js && !wasip1

// Command carrel-play is the simulated machine as a WebAssembly module: for browsers (GOOS=js),
// where docs/play gives it a page, and as a plain program for WASI (GOOS=wasip1). On other systems
// use "carrel sim".
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "carrel-play: build this for GOOS=js or GOOS=wasip1 with GOARCH=wasm; here, use: carrel sim")
	os.Exit(2)
}
