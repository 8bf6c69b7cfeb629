package main

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/internal/guest/interpreter"
	"github.com/carrel-dev/carrel/internal/guest/interpreter/kernel"
)

const (
	// interpreterMemory is soft. A picture is in memory several times on its way.
	interpreterMemory = 256 << 20
	// environTimeout bounds the question for the sandbox's environment.
	environTimeout = 5 * time.Second
)

// interpret is "carrel-guest interpreter": the code interpreter of the sandbox, until a signal.
func interpret(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("carrel-guest interpreter", flag.ContinueOnError)
	listen := flags.String("listen", ":"+strconv.Itoa(interpreter.Port), "address to serve on")
	guest := flags.String("guest", "127.0.0.1:49983", "where the guest listens, which knows the "+
		"sandbox's environment; empty for none")
	warm := flags.String("warm", "", "comma-separated languages whose kernels start at once")
	preload := flags.String("preload", "", "comma-separated modules that Python kernels import ahead")
	dir := flags.String("cwd", "", "where contexts work that name no directory")
	usage := "[--listen ADDRESS] [--warm LANGUAGES] [--preload MODULES] [--cwd DIR]"
	if done, err := parse(flags, args, stdout, usage); done || err != nil {
		return err
	}
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(interpreterMemory)
	cfg := interpreter.Config{Dir: *dir, Finder: kernel.Finder{Preload: split(*preload)},
		Log: slog.New(slog.NewTextHandler(stderr, nil))}
	if *guest != "" {
		cfg.Environ = environOf("http://" + *guest + "/envs")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	s := interpreter.New(cfg)
	defer s.Close()
	if languages := split(*warm); len(languages) > 0 {
		warmed := s.Warm(ctx, languages...)
		go func() {
			if err := <-warmed; err != nil {
				cfg.Log.Error("kernels that should start at once", "err", err)
				stop()
			}
		}()
	}
	srv := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 640 * time.Second, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug)}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	select {
	case err = <-done:
		return err
	case <-ctx.Done():
	}
	_ = srv.Close() // its cells are interrupted
	<-done
	return nil
}

// split splits a list with commas.
func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// environOf returns the function that asks the guest for the sandbox's environment, with the token
// that the interpreter's client gave.
func environOf(url string) func(context.Context, string) (map[string]string, error) {
	client := &http.Client{Timeout: environTimeout}
	return func(ctx context.Context, token string) (map[string]string, error) {
		return interpreter.Environ(ctx, client, url, token)
	}
}
