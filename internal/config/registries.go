package config

import (
	"net/url"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
)

// Registries has the settings for container registries, from which templates are pulled.
type Registries struct {
	// Allow are hosts that may have private addresses: HOST, HOST:PORT or http://HOST:PORT.
	Allow []string
	// Mirrors are of the form HOST=URL. The mirror of a registry is asked first.
	Mirrors []string
	// Offline forbids connections to registries.
	Offline bool
	// ImageStore is a directory with an OCI image layout, in which images are first looked up; ""
	// is none.
	ImageStore string
	// LayerCache bounds the space of kept layers, in bytes; 0 keeps none.
	LayerCache int64
}

// AllowWebhookFlag adds the flag for hosts that webhooks may be sent to.
func AllowWebhookFlag(f *pflag.FlagSet, hosts *[]string) {
	f.StringSliceVar(hosts, "allow-webhook", *hosts,
		"host that webhooks may be sent to although its address is private: HOST, HOST:PORT, or http://HOST:PORT without TLS (repeat)")
}

// registryFlags adds the flags for registries.
func (c *Config) registryFlags(f *pflag.FlagSet) {
	r := &c.Registries
	AllowWebhookFlag(f, &c.AllowWebhooks)
	f.StringSliceVar(&r.Allow, "allow-registry", r.Allow,
		"registry that may have a private address: HOST, HOST:PORT, or http://HOST:PORT without TLS (repeat)")
	f.StringSliceVar(&r.Mirrors, "registry-mirrors", r.Mirrors,
		"HOST=URL of a mirror that is asked before a registry, such as registry.example.com=https://mirror.example.com (repeat)")
	f.BoolVar(&r.Offline, "offline", r.Offline,
		"reach no registry: images come from --image-store only")
	f.StringVar(&r.ImageStore, "image-store", r.ImageStore,
		"directory with an OCI image layout, in which images are first looked up (default: none)")
	f.Var((*Size)(&r.LayerCache), "layer-cache",
		"how much of pulled images' layers is kept, for the next pull (0: none)")
}

// MirrorList returns the mirrors as pairs of a registry and a URL.
func (r Registries) MirrorList() [][2]string {
	out := make([][2]string, 0, len(r.Mirrors))
	for _, m := range r.Mirrors {
		host, where, _ := strings.Cut(m, "=")
		out = append(out, [2]string{strings.TrimSpace(host), strings.TrimSpace(where)})
	}
	return out
}

// checkRegistries checks the fields.
func (c Config) checkRegistries() error {
	r := c.Registries
	for _, a := range r.Allow {
		rest := strings.TrimPrefix(strings.TrimPrefix(a, "http://"), "https://")
		if u, err := url.Parse("//" + rest); err != nil || u.Hostname() == "" || u.Host != rest {
			return bad("allow-registry", "%q is not HOST, HOST:PORT or http://HOST:PORT", a)
		}
	}
	for _, a := range c.AllowWebhooks {
		rest := strings.TrimPrefix(a, "http://")
		if u, err := url.Parse("//" + rest); err != nil || u.Hostname() == "" || u.Host != rest {
			return bad("allow-webhook", "%q is not HOST, HOST:PORT or http://HOST:PORT", a)
		}
	}
	for _, m := range r.MirrorList() {
		u, err := url.Parse(m[1])
		if m[0] == "" || err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
			u.RawQuery != "" || u.User != nil {
			return bad("registry-mirrors", "%q is not HOST=URL", m[0]+"="+m[1])
		}
	}
	if r.ImageStore != "" && !filepath.IsAbs(r.ImageStore) {
		return bad("image-store", "%q is not an absolute path", r.ImageStore)
	}
	if r.LayerCache < 0 {
		return bad("layer-cache", "%d bytes are less than none", r.LayerCache)
	}
	return nil
}
