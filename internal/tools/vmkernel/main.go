// Command vmkernel puts the kernel of virtual machines into a directory, as "carrel template get
// kernel" does in a daemon's: the file vmlinuz, and modules/NAME.ko. Everything else in the directory
// stays. The package comes from the Debian mirror that this machine's apt uses, and is kept.
//
//	go run ./internal/tools/vmkernel -o DIR -cache DIR [-mirror URL]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image/debian"
)

func main() {
	out := flag.String("o", "", "directory for the kernel")
	cache := flag.String("cache", "", "directory for the package")
	mirror := flag.String("mirror", "", "address of a Debian mirror (default: the one of this machine's apt)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *out, *cache, *mirror); err != nil {
		fmt.Fprintln(os.Stderr, "vmkernel:", err)
		if hint := carrel.HintOf(err); hint != "" {
			fmt.Fprintln(os.Stderr, "hint:", hint)
		}
		os.Exit(1)
	}
}

// run gets the kernel and gives its files their places, vmlinuz last.
func run(ctx context.Context, out, cache, mirror string) (err error) {
	if out == "" || cache == "" {
		return errors.New("-o and -cache are needed")
	}
	set, err := debian.Pinned()
	if err != nil {
		return err
	}
	from, err := debian.HostMirror("/")
	if mirror != "" {
		from, err = debian.ParseMirror(mirror)
	}
	if err != nil {
		return fmt.Errorf("%w: name one with -mirror", err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(out, ".kernel-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	kernels := debian.NewKernels(debian.KernelOptions{Set: set, Fetcher: debian.NewFetcher(from, cache), Dir: dir})
	if _, err := kernels.Get(ctx, nil); err != nil {
		return err
	}
	made, err := kernels.Dir()
	if err != nil {
		return err
	}
	for _, name := range []string{"modules", "vmlinuz"} {
		to := filepath.Join(out, name)
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(made, name), to); err != nil {
			return err
		}
	}
	return nil
}
