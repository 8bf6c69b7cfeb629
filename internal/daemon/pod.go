package daemon

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/pod"
)

const (
	// podStop is how long the last requests of a pod may take, before its sandbox is paused.
	podStop = 2 * time.Second
	// podHeaderTime is how long a client may take to send the head of a request.
	podHeaderTime = 10 * time.Second
)

// PodOptions configure a daemon that keeps the one sandbox of a Kubernetes pod.
type PodOptions struct {
	// Listen is the address for agent-sandbox's protocol.
	Listen string
	// Dir is the directory, inside the sandbox, where its paths begin; "" is the user's home.
	Dir string
	// Opened is told about the sandbox, before requests are served; nil for nobody.
	Opened func(id carrel.ID, resumed bool)
}

// RunPod runs a daemon with one sandbox until ctx ends. Then it pauses the sandbox with its memory,
// and returns when the snapshot is durable. The next RunPod with the data directory resumes it.
func RunPod(ctx context.Context, cfg config.Config, opts PodOptions, hooks Hooks) (err error) {
	cfg.MaxSandboxes, cfg.Warm.Cap, cfg.Warm.Floors, cfg.BlankSentries = 1, 0, nil, 0
	listener, err := net.Listen("tcp", opts.Listen)
	if err != nil {
		return &carrel.Error{Op: "listen", Kind: carrel.Unavailable, Field: "protocol-listen", Err: err,
			Hint: "another program has this address; choose one with --protocol-listen"}
	}
	defer listener.Close()
	d, err := New(ctx, cfg, Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	// The daemon outlasts ctx: it is needed for the pause.
	alive, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- d.Serve(alive) }()
	defer func() {
		stop()
		err = errors.Join(err, <-served)
	}()
	create := carrel.CreateOptions{}
	if d.network != nil {
		create.Network = *d.network
	}
	keeper, err := pod.Open(ctx, pod.Options{Service: d.Service(), Create: create, Dir: opts.Dir, Life: cfg.MaxTimeout,
		Log: d.log})
	if err != nil {
		return err
	}
	if opts.Opened != nil {
		opts.Opened(keeper.Sandbox())
	}
	if hooks.Ready != nil {
		hooks.Ready(d.URL(), d.Key(), d.firstRun)
	}
	err = d.serveProtocol(ctx, listener, keeper)
	// Whatever ended the pod, the sandbox is worth keeping.
	return errors.Join(err, keeper.Close(context.WithoutCancel(ctx)))
}

// serveProtocol serves agent-sandbox's protocol until ctx ends.
func (d *Daemon) serveProtocol(ctx context.Context, listener net.Listener, keeper *pod.Keeper) error {
	server := &http.Server{Handler: keeper.Handler(), ReadHeaderTimeout: podHeaderTime, MaxHeaderBytes: headerBytes}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return &carrel.Error{Op: "serve", Kind: carrel.Internal, Err: err}
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), podStop)
	defer cancel()
	if server.Shutdown(stop) != nil {
		_ = server.Close() // a command that runs on is paused with the rest
	}
	<-served
	return nil
}
