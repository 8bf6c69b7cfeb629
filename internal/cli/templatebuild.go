package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build/buildcontext"
	"github.com/carrel-dev/carrel/internal/build/dockerfile"
)

// cancelPatience is how long an interrupted build may take to end.
const cancelPatience = 30 * time.Second

// maxSecretBytes bounds the value of a secret.
const maxSecretBytes = 1 << 20

// buildFlags are the flags of "carrel template build".
type buildFlags struct {
	file               string
	args, secrets      []string
	registries         []string
	cpus               float64
	memory, disk       int
	minFree            int
	tier               string
	quiet              bool
	spec               carrel.BuildSpec
	network            networkFlags
	startCmd, readyCmd string
}

// templateBuildCommand is "carrel template build".
func (a templateCommands) templateBuildCommand() *cobra.Command {
	var how buildFlags
	c := &cobra.Command{
		Use:   "build NAME[:TAG] [PATH]",
		Short: "Make a template from a Dockerfile",
		Long: `Makes a template from a Dockerfile. PATH is the directory whose files COPY sees, without those
that its .dockerignore leaves out; without PATH it is the current directory.

Each step runs in a sandbox of its own, with the network that --allow, --policy and --internet
give to it. A step that was done before on the same files is taken from the cache. The log of the
steps goes to stderr, then the template's ID and its image's to stdout. Ctrl-C cancels the build.

A CMD or an ENTRYPOINT of the Dockerfile becomes the start command, unless it is only a shell. A
HEALTHCHECK becomes the ready command: the template is started once, and each sandbox goes on from
the moment in which the command succeeded. See docs/templates.md.`,
		Example: `  carrel template build web .
  carrel template build web:v2 . -f ci/Dockerfile --build-arg NODE=22 --allow registry.example.com
  carrel template build web . --secret id=token,env=TOKEN --start "npm start" --ready "curl -sf localhost:3000"`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error { return a.runBuild(c, args, &how) },
	}
	f := c.Flags()
	f.StringVarP(&how.file, "file", "f", "",
		"the Dockerfile, \"-\" for stdin (default PATH/Dockerfile)")
	f.StringArrayVar(&how.args, "build-arg", nil,
		"KEY=VALUE of an ARG; KEY alone takes it from the environment (repeat)")
	f.StringVar(&how.spec.Target, "target", "", "stage to build (default: the last)")
	f.StringArrayVar(&how.secrets, "secret", nil,
		"id=NAME,src=FILE or id=NAME,env=VARIABLE for RUN --mount=type=secret (repeat)")
	f.StringArrayVar(&how.registries, "registry", nil,
		"HOST=FILE with the credentials for a registry, as JSON: {type: registry|aws|gcp, …} (repeat)")
	f.BoolVar(&how.spec.NoCache, "no-cache", false, "do every step, whatever the cache has")
	f.StringArrayVar(&how.spec.Tags, "tag", nil, "tag of the template (default: default; repeat)")
	f.Var((*cores)(&how.cpus), "cpus",
		"processor cores of the build's sandboxes and of the template's (default: the daemon's)")
	f.Var((*mebibytes)(&how.memory), "memory",
		"memory of them, such as 512M or 4GiB (default: the daemon's)")
	f.Var((*mebibytes)(&how.disk), "disk", "disk of them, in the same way (default: the daemon's)")
	f.Var((*mebibytes)(&how.minFree), "min-free-disk",
		"least free disk that a sandbox of the template has")
	f.StringVar(&how.startCmd, "start", "",
		"shell command that sandboxes start with, in place of the Dockerfile's")
	f.StringVar(&how.readyCmd, "ready", "",
		"shell command that succeeds when that is up, in place of the Dockerfile's")
	f.BoolVar(&how.spec.Public, "public", false,
		"let every project make sandboxes of it (administrators)")
	f.StringVar(&how.tier, "tier", "", "tier of the build's sandboxes (default: the best one)")
	f.DurationVar(&how.spec.Timeout, "timeout", 0,
		"longest time for the build (default: the daemon's)")
	f.DurationVar(&how.spec.StepTimeout, "step-timeout", 0,
		"longest time for one step (default: the daemon's)")
	f.BoolVarP(&how.quiet, "quiet", "q", false, "print only the template's ID")
	how.network.addRules(f)
	return c
}

// runBuild starts a build and follows it to its end.
func (a templateCommands) runBuild(c *cobra.Command, args []string, how *buildFlags) error {
	dir, text, err := a.readDockerfile(args, how)
	if err != nil {
		return err
	}
	file, err := dockerfile.Parse(text)
	if err != nil {
		return a.withExcerpt(text, err)
	}
	if err := how.fill(args[0], text); err != nil {
		return err
	}
	if how.spec.Registries, err = a.registryLogins(how.registries); err != nil {
		return err
	}
	if !how.quiet {
		for _, w := range file.Warnings() {
			fmt.Fprintf(a.err, "warning: %s\n", printable(w.String()))
		}
	}
	ctx := c.Context()
	if file.UsesContext() || len(args) == 2 {
		files, err := buildcontext.Open(ctx, dir, buildcontext.Options{Dockerfile: how.file})
		if err != nil {
			return err
		}
		stream := streamContext(ctx, files, newBar(a.err))
		defer stream.Close()
		how.spec.Context = stream
	}
	return a.withService(ctx, func(svc carrel.Service) error {
		begun := a.now()
		b, err := svc.StartBuild(ctx, how.spec)
		if err != nil {
			return a.withExcerpt(text, err)
		}
		follow := &buildFollower{app: a.app, svc: svc, quiet: how.quiet, dockerfile: text, begun: begun}
		return follow.run(ctx, b)
	})
}

// readDockerfile returns the context's directory and the Dockerfile's text.
func (a templateCommands) readDockerfile(args []string,
	how *buildFlags) (dir, text string, err error) {
	dir = "."
	if len(args) == 2 {
		dir = args[1]
	}
	if strings.Contains(dir, "://") {
		return "", "", usage(fmt.Errorf("%s: a context is a directory of this machine", dir))
	}
	var raw []byte
	switch how.file {
	case "-":
		how.file = ""
		raw, err = io.ReadAll(a.in)
	case "":
		how.file = filepath.Join(dir, "Dockerfile")
		raw, err = os.ReadFile(how.file)
		if errors.Is(err, os.ErrNotExist) {
			how.file = filepath.Join(dir, "Containerfile")
			if other, again := os.ReadFile(how.file); again == nil {
				raw, err = other, nil
			}
		}
	default:
		raw, err = os.ReadFile(how.file)
	}
	if err != nil {
		return "", "", &carrel.Error{Kind: carrel.Invalid, Err: err,
			Hint: "name the Dockerfile with -f, and the directory of its files after the template's name"}
	}
	return dir, string(raw), nil
}

// fill turns the flags into the build's specification.
func (how *buildFlags) fill(name, text string) (err error) {
	s := &how.spec
	s.Dockerfile, s.Start, s.Ready, s.Tier = text, how.startCmd, how.readyCmd, carrel.Tier(how.tier)
	s.CPUs, s.MemoryMB, s.DiskMB, s.MinFreeDiskMB = how.cpus, how.memory, how.disk, how.minFree
	name, tag, tagged := strings.Cut(name, ":")
	if s.Name = name; tagged {
		s.Tags = append([]string{tag}, s.Tags...)
	}
	if s.Args, err = buildArgs(how.args); err != nil {
		return err
	}
	if s.Secrets, err = buildSecrets(how.secrets); err != nil {
		return err
	}
	network, said, err := how.network.network()
	if said {
		s.Network = &network
	}
	return err
}

// registryLogins reads HOST=FILE pairs.
func (a templateCommands) registryLogins(
	pairs []string) (map[string]carrel.RegistryCredentials, error) {
	var out map[string]carrel.RegistryCredentials
	for _, p := range pairs {
		host, file, ok := strings.Cut(p, "=")
		if !ok || host == "" || file == "" {
			return nil, usage(fmt.Errorf("--registry %q: write HOST=FILE", p))
		}
		own, err := (&registryLogin{file: file}).read(a.app)
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = map[string]carrel.RegistryCredentials{}
		}
		out[host] = *own
	}
	return out, nil
}

// buildArgs reads KEY=VALUE and KEY, whose value is in the environment. A KEY that the environment
// does not have is left out, so that the ARG's default counts.
func buildArgs(pairs []string) (map[string]string, error) {
	out := map[string]string{}
	for _, p := range pairs {
		key, value, given := strings.Cut(p, "=")
		if key == "" {
			return nil, usage(fmt.Errorf("--build-arg %q: write KEY=VALUE", p))
		}
		if !given {
			if value, given = os.LookupEnv(key); !given {
				continue
			}
		}
		out[key] = value
	}
	return out, nil
}

// buildSecrets reads the values of secrets, from files or from the environment.
func buildSecrets(specs []string) (map[string]string, error) {
	out := map[string]string{}
	for _, spec := range specs {
		var id, file, variable string
		for part := range strings.SplitSeq(spec, ",") {
			key, value, _ := strings.Cut(part, "=")
			switch key {
			case "id":
				id = value
			case "src", "source":
				file = value
			case "env":
				variable = value
			case "type":
				if value == "file" || value == "env" {
					continue
				}
				fallthrough
			default:
				return nil, usage(fmt.Errorf(
					"--secret %q: %q is not known: write id=NAME,src=FILE or id=NAME,env=VARIABLE", spec, part))
			}
		}
		if id == "" || file != "" && variable != "" {
			return nil, usage(fmt.Errorf("--secret %q: write id=NAME,src=FILE or id=NAME,env=VARIABLE",
				spec))
		}
		value, err := secretValue(id, file, variable)
		if err != nil {
			return nil, err
		}
		out[id] = value
	}
	return out, nil
}

// secretValue reads one secret. With neither a file nor a variable it is the variable of its name.
func secretValue(id, file, variable string) (string, error) {
	if file == "" {
		if variable == "" {
			variable = id
		}
		value, ok := os.LookupEnv(variable)
		if !ok {
			return "", usage(fmt.Errorf("--secret id=%s: the environment has no %s", id, variable))
		}
		return value, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return "", usage(fmt.Errorf("--secret id=%s: %w", id, err))
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
	if err == nil && len(raw) > maxSecretBytes {
		err = fmt.Errorf("%s is larger than %d bytes", file, maxSecretBytes)
	}
	if err != nil {
		return "", usage(fmt.Errorf("--secret id=%s: %w", id, err))
	}
	return string(raw), nil
}

// streamContext sends a context as the service reads it. Closing it early ends the sending.
func streamContext(ctx context.Context, files *buildcontext.Context, bar *bar) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		err := files.WriteTar(ctx, w, func(done int64) {
			bar.update(carrel.Progress{Stage: "sending the context", Done: done, Total: files.Bytes()})
		})
		bar.done()
		w.CloseWithError(err)
	}()
	return r
}
