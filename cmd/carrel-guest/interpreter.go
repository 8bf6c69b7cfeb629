package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/guest/interpreter"
	"github.com/carrel-dev/carrel/internal/guest/interpreter/kernel"
)

const (
	// interpreterMemory is soft. A picture is in memory several times on its way.
	interpreterMemory = 256 << 20
	// environTimeout bounds the question for the sandbox's environment.
	environTimeout = 5 * time.Second
	// statusSignalled is the exit status after SIGTERM, in the way of shells. Status 1 says that there
	// is no use in another try, such as when another program has the port.
	statusSignalled = 128 + int(syscall.SIGTERM)
)

// errSignalled is the end of an interpreter by a signal.
var errSignalled = errors.New("ended by a signal")

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
	warmed := make(<-chan error) // nothing comes of it
	if languages := split(*warm); len(languages) > 0 {
		warmed = s.Warm(ctx, languages...)
	}
	srv := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 640 * time.Second, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug)}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	for err = nil; err == nil && ctx.Err() == nil; {
		select {
		case err = <-done:
			return err
		case err = <-warmed:
			warmed = nil
		case <-ctx.Done():
		}
	}
	_ = srv.Close() // its cells are interrupted
	<-done
	if ctx.Err() != nil {
		return errSignalled
	}
	return err
}

// isInterpreter reports whether a process is the interpreter of a template: its own start command.
// The guest starts it again whenever it ends, for a cell may kill it. One that was started by hand
// is its owner's.
func isInterpreter(tag, cmd string, args []string) bool {
	return tag == guest.StartTag && cmd == os.Args[0] && len(args) > 0 && args[0] == "interpreter"
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
