package build

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build/plan"
	"github.com/carrel-dev/carrel/internal/image"
)

// base is where a stage begins.
type base struct {
	once sync.Once
	made
	err error
}

// base makes a base ready. Each is made once.
func (r *run) base(ctx context.Context, from plan.Source) (*base, error) {
	name := fmt.Sprintf("%v %q %q", from.Scratch, from.Image, from.Template)
	r.mu.Lock()
	b := r.bases[name]
	if b == nil {
		b = &base{}
		r.bases[name] = b
	}
	r.mu.Unlock()
	b.once.Do(func() {
		var img image.Image
		if img, b.key, b.err = r.findBase(ctx, from); b.err == nil {
			b.image, b.config = img.ID, configOf(img.Template)
		}
	})
	return b, b.err
}

// findBase finds or pulls a base, and holds it. key names its content.
func (r *run) findBase(ctx context.Context,
	from plan.Source) (img image.Image, key string, err error) {
	if isSDKBase(from.Image) {
		from = plan.Source{Template: image.Base}
	}
	switch {
	case from.Scratch:
		img, err = r.hold(ctx, func() (image.Image, error) { return r.scratch(ctx) })
		return img, "scratch", err
	case from.Image != "":
		opts := carrel.PullOptions{Image: from.Image, Credentials: r.credentials(from)}
		r.j.write(line(levelInfo, stepBase, "pull "+opts.Image))
		img, err = r.hold(ctx, func() (image.Image, error) { return r.pull(ctx, opts) })
		return img, img.Key, err
	case from.Template != "":
		img, err = r.hold(ctx, func() (image.Image, error) { return r.template(ctx, from.Template) })
		if err != nil {
			return img, "", err
		}
		info, err := os.Stat(img.Path)
		if err != nil {
			return img, "", &carrel.Error{Op: opBuild, Kind: carrel.Internal, Err: err}
		}
		// The built-in base keeps its ID when it is packed anew.
		return img, fmt.Sprintf("template:%s/%d/%d", img.ID, info.Size(), info.ModTime().UnixNano()), nil
	}
	return img, "", &carrel.Error{Op: opBuild, Kind: carrel.Internal,
		Err: errors.New("a stage begins from nothing")}
}

// isSDKBase reports whether an image is the one for which the template base stands, with any tag or
// none. An image with a digest is pulled: its caller wants exactly that one.
func isSDKBase(ref string) bool {
	plain, _, _ := strings.Cut(strings.TrimPrefix(ref, "docker.io/"), ":")
	return plain == sdkBase
}

// pull returns an image of a registry. An image that is here already waits for nobody's turn.
func (r *run) pull(ctx context.Context, opts carrel.PullOptions) (image.Image, error) {
	if img, found, err := r.e.opts.Images.FindBase(ctx, opts); found || err != nil {
		return img, err
	}
	done, err := r.e.opts.Sandboxes.EnterBuild(ctx, opBuild)
	if err != nil {
		return image.Image{}, err
	}
	defer done()
	return r.e.opts.Images.PullBase(ctx, opts, nil)
}

// template finds a template of this machine.
func (r *run) template(ctx context.Context, text string) (image.Image, error) {
	ref, err := carrel.ParseTemplateRef(text)
	if err != nil {
		return image.Image{}, err
	}
	t, snapshot, err := r.e.opts.Sandboxes.ResolveTemplate(ctx, opBuild, ref)
	switch {
	case err != nil:
		return image.Image{}, err
	case snapshot != "":
		return image.Image{}, &carrel.Error{Op: opBuild, Kind: carrel.Unsupported, Field: "fromTemplate",
			Err: fmt.Errorf("%.100q is a snapshot, and a build begins from a template", text)}
	case t.Tier == carrel.Sim:
		return image.Image{}, &carrel.Error{Op: opBuild, Kind: carrel.Unsupported, Field: "fromTemplate",
			Err: fmt.Errorf("template %.100q is for simulated sandboxes only", text)}
	}
	return r.e.opts.Images.Get(ctx, t.ID)
}

// scratchName is the name of the empty image.
const scratchName = image.HiddenMark + "scratch"

// scratch returns the empty image. Each project has its own.
func (r *run) scratch(ctx context.Context) (image.Image, error) {
	if t, ok := r.e.opts.Images.Named(r.j.project, scratchName); ok {
		if img, err := r.e.opts.Images.Get(ctx, t.ID); carrel.KindOf(err) != carrel.NotFound {
			return img, err
		} // else it was collected just now
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755}),
		w.Close()); err != nil {
		return image.Image{}, err
	}
	return r.e.opts.Images.Import(ctx, scratchName, &b, nil)
}

// credentials returns the credentials for an image's registry; nil is none.
func (r *run) credentials(from plan.Source) *carrel.RegistryCredentials {
	if from.Registry != nil {
		return &carrel.RegistryCredentials{Type: carrel.CredentialsBasic,
			Username: from.Registry.Username, Password: from.Registry.Password}
	}
	c, ok := r.j.registries[registryOf(from.Image)]
	if !ok {
		if c, ok = r.j.registries[""]; !ok || from.Image != r.spec.FromImage {
			return nil
		}
	}
	return &c
}

// registryOf returns the host of an image's registry.
func registryOf(ref string) string {
	host, _, more := strings.Cut(ref, "/")
	if more && (strings.ContainsAny(host, ".:") || host == "localhost") {
		return host
	}
	return "docker.io"
}

// configOf is the configuration of a template.
func configOf(t carrel.Template) plan.Config {
	entry := min(max(t.Entry, 0), len(t.Start))
	c := plan.Config{User: t.User, Workdir: t.WorkDir, Entrypoint: slices.Clone(t.Start[:entry]),
		Cmd:     slices.Clone(t.Start[entry:]),
		OnBuild: slices.Clone(t.OnBuild)}
	for _, name := range slices.Sorted(maps.Keys(t.Env)) {
		c.Env = append(c.Env, plan.Variable{Name: name, Value: t.Env[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(t.Labels)) {
		c.Labels = append(c.Labels, plan.Variable{Name: name, Value: t.Labels[name]})
	}
	if t.Ready != "" {
		c.Ready = &plan.Ready{Command: t.Ready, Interval: t.ReadyCheck.Interval,
			Timeout: t.ReadyCheck.Timeout, Grace: t.ReadyCheck.Within}
	}
	return c
}

// keyOf makes a key of the key before it and of everything that a step depends on.
func keyOf(parent string, parts ...any) string {
	raw, err := json.Marshal(append([]any{parent}, parts...))
	if err != nil { // only texts, numbers and lists of them are given
		panic(err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// userOf is the account that a configuration's processes run as, perhaps with a group.
func userOf(c plan.Config) string { return cmp.Or(c.User, "root") }
