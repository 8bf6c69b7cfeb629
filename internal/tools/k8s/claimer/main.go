// Command claimer claims a sandbox of a warm pool with agent-sandbox's own Go client, uses it, and
// gives it back. It fails at the first thing that is not as the client promises.
//
//	claimer POOL
//
// The variable KUBECONFIG names the cluster. The sandboxes' pods must be reachable from here.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/agent-sandbox/clients/go/sandbox"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "claimer:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	if len(os.Args) != 2 {
		return errors.New("usage: claimer POOL")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	client, err := sandbox.NewClient(ctx, sandbox.Options{RestConfig: config, Namespace: "default",
		WarmPoolName: os.Args[1], Connectivity: sandbox.ConnectivityInClusterPodIP, Quiet: true})
	if err != nil {
		return err
	}
	box, err := client.CreateSandbox(ctx, os.Args[1], "default")
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	defer func() { err = errors.Join(err, client.DeleteSandbox(ctx, box.ClaimName(), "default")) }()
	return use(ctx, box)
}

// use makes each call of the protocol once.
func use(ctx context.Context, box *sandbox.Sandbox) error {
	out, err := box.Run(ctx, "echo words; echo more >&2; exit 7")
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if out.Stdout != "words\n" || out.Stderr != "more\n" || out.ExitCode != 7 {
		return fmt.Errorf("run gave %+v", out)
	}
	data := bytes.Repeat([]byte("0123456789abcdef\x00\xff"), 60000)
	const name = "data.bin"
	if err := box.Write(ctx, name, data); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	back, err := box.Read(ctx, name)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if !bytes.Equal(back, data) {
		return fmt.Errorf("%d bytes came back, not the %d that were written", len(back), len(data))
	}
	for name, want := range map[string]bool{name: true, "no such file": false} {
		if found, err := box.Exists(ctx, name); err != nil || found != want {
			return fmt.Errorf("exists %q: %v, %w", name, found, err)
		}
	}
	entries, err := box.List(ctx, ".")
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	for _, e := range entries {
		if e.Name == name && e.Size == int64(len(data)) && e.Type == sandbox.FileTypeFile && time.Since(e.ModTime) < time.Hour {
			fmt.Println("the client is content with", box.SandboxName())
			return nil
		}
	}
	return fmt.Errorf("%s is not in %+v", name, entries)
}
