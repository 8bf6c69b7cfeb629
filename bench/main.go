// Command bench is "carrel bench" for developers of Carrel. It measures bin/carrel (make build).
// Changes to the bench itself need no new build of bin/carrel.
//
//	go run ./bench [-quick] [-only create,exec] [-json FILE] [NAME…]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/bench"
	"github.com/carrel-dev/carrel/internal/reexec"
)

func main() {
	if reexec.Run(bench.Parts()) {
		return
	}
	o := bench.Options{Carrel: "bin/carrel", Out: os.Stdout, Log: os.Stderr}
	o.Flags(flag.CommandLine)
	flag.StringVar(&o.Carrel, "carrel", o.Carrel, "the binary to measure")
	only := flag.String("only", "", "comma list of measurements, as NAME… is")
	flag.Parse()
	o.Names = flag.Args()
	if *only != "" {
		o.Names = append(o.Names, strings.Split(*only, ",")...)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bench.Run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		if hint := carrel.HintOf(err); hint != "" {
			fmt.Fprintln(os.Stderr, "hint:", hint)
		}
		os.Exit(1)
	}
}
